"""Tables of storage as Markdown."""

import re

from cheetah.bench.results import Part
from cheetah.bench.sheet import sheets


def tables(part: Part) -> list[str]:
    """Returns the tables of a part as lines of Markdown."""
    lines: list[str] = []
    for sheet in sheets(part, spread_in_cells=True):
        lines += [f"{_escaped(sheet.title)}:", "", f"| | {' | '.join(map(_escaped, sheet.heads))} |"]
        lines.append(
            "|---" + "".join("|---" if column in sheet.left else "|---:" for column in range(len(sheet.heads))) + "|"
        )
        lines += [
            f"| {_escaped(line.label.strip())} | {' | '.join(map(_lightly, line.cells))} |" for line in sheet.lines
        ]
        lines.append("")
        lines += [text for note in sheet.notes for text in (_escaped(note), "")]
    return lines


def _escaped(text: str) -> str:
    """Escapes text so that it cannot end a cell or begin markup."""
    return re.sub(r"([\\|<>*_`\[\]])", r"\\\1", text)


def _lightly(text: str) -> str:
    """Escapes text but for brackets, which spreads are full of; links in a cell are harmless."""
    return re.sub(r"([\\|<>*_`])", r"\\\1", text)
