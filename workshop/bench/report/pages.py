"""Writes the published results: workshop/bench/RESULTS.md, a page to read at a glance, and a page for each part below workshop/bench/results.

A part that was not measured since keeps its page, and the summary is made of the pages.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator

from bench import results_md
from bench.part import Part
from bench.report import guide, marked, overview, published, store, worth
from bench.report.overview import Strip
from bench.results_md import BENCH, PARTS

SUMMARY = os.path.join(BENCH, "RESULTS.md")
PAGES_DIR = published.PAGES_DIR
README = os.path.join(BENCH, "README.md")
OVERVIEW = os.path.join(BENCH, "plots/overview.svg")
MACHINE = "machine"
ROUNDS = re.compile(r"^\*[^*\n]*?(\d+) rounds", re.MULTILINE)
FINISHED = re.compile(r"^\*(\d{4}-\d\d-\d\d)", re.MULTILINE)
QUICK = "A quick run"
MET, MISSED = "| yes |", "| **no** |"
# The first row with a ratio: what, unit, ours, the peer, the ratio.
RATIO = re.compile(r"^\| (?P<what>[^|]*?) \([^|()]*\) \| [^|]* \| [^|]* \| \*\*(?P<ratio>[\d.]+)\*\*", re.MULTILINE)
# The first row of a table of equal candidates, and the head of that table.
CANDIDATES = re.compile(
    r"^\| what \| (?P<names>(?!ours).*) \|\n\|[-|:]*\|\n\| (?P<what>.*?) \| (?P<values>.*) \|$", re.MULTILINE
)
PLOT = re.compile(r"!\[[^\]]*\]\(\.\./(plots/[^)]+)\)")
ROUNDS_PART = "rounds"


@dataclasses.dataclass(frozen=True)
class Page:
    """The page of a part."""

    part: Part
    text: str

    @property
    def rounds(self) -> int:
        """The number of rounds; 0 if the page does not say it."""
        found = ROUNDS.search(self.text)
        return int(found[1]) if found else 0

    @property
    def link(self) -> str:
        """A link to it from the summary."""
        return f"[{self.part.title}](results/{self.part.key}.md)"

    def row(self) -> str:
        """Returns its row in the summary."""
        met, missed = self.text.count(MET), self.text.count(MISSED)
        bars = f"{met} of {met + missed}" if met + missed else ""
        finished = FINISHED.search(self.text)
        rounds = f"{self.rounds}, quick" if QUICK in self.text else str(self.rounds or "")
        return f"| {self.link} | {bars} | {self._first()} | {rounds} | {finished[1] if finished else ''} |"

    def _first(self) -> str:
        """Returns its first ratio, or its first row if its contenders are equal candidates."""
        if first := RATIO.search(self.text):
            return f"{first['ratio']} × {first['what']}"
        if not (row := CANDIDATES.search(self.text)):
            return ""
        pairs = zip(row["names"].split(" | "), row["values"].split(" | "), strict=False)
        return f"{row['what']}: {', '.join(f'{name} {value}' for name, value in pairs)}"


def path_of(key: str) -> str:
    """Returns where the page of a part is."""
    return os.path.join(PAGES_DIR, f"{key}.md")


def _read(key: str) -> str | None:
    try:
        with open(path_of(key), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def pages() -> list[Page]:
    """Returns the pages that exist, in the order of the parts."""
    return [Page(part, text) for part in PARTS if (text := _read(part.key)) is not None]


def write() -> str:
    """Writes the pages of parts in workshop/bench/out, then the summary, the charts of the guide, the rounds in the README, and
    what documents calculate from the pages; returns the summary's path."""
    os.makedirs(PAGES_DIR, exist_ok=True)
    why = results_md.reasons()
    contents = {part.key: store.load(part.key) for part in PARTS}
    for part in PARTS:
        if contents[part.key] is not None:
            _write(path_of(part.key), _moved(results_md.page(part, contents[part.key], why)))
    latest = max((content for content in contents.values() if content), key=lambda one: one["finished"], default=None)
    if latest:
        _write(path_of(MACHINE), _machine(latest["machine"]))
    _write(OVERVIEW, chart(pages()))
    _write(SUMMARY, summary(pages()))
    guide.write({page.part.key: page.text for page in pages()})
    with open(README, encoding="utf-8") as file:
        text = file.read()
    _write(README, with_rounds(text, pages()))
    worth.write()
    return SUMMARY


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _moved(lines: list[str]) -> str:
    """Returns a page's text: headings a level up, and links from its own directory."""
    text = "\n".join(re.sub(r"^###", "##", line) for line in lines).rstrip() + "\n"
    return re.sub(r"\]\((plots/|README\.md)", r"](../\1", text)


def _machine(machine: dict[str, str]) -> str:
    lines = ["# The machine", "", "That of the newest results; a page says if it was measured on another.", ""]
    lines += ["| machine | |", "|---|---|", *(f"| {name} | {text} |" for name, text in machine.items())]
    return "\n".join(lines) + "\n"


def chart(found: list[Page]) -> str:
    """Returns the chart of the summary: the parts that have bars."""
    strips = (Strip(page.part.title, overview.marks_of(page.text)) for page in found)
    return overview.render([strip for strip in strips if strip.marks])


def summary(found: list[Page]) -> str:
    """Returns the page to read at a glance."""
    met = sum(page.text.count(MET) for page in found)
    every = met + sum(page.text.count(MISSED) for page in found)
    lines = [
        "# Results",
        "",
        "Written by `workshop/bench/run report`; [README.md](README.md) describes the method of each figure. Every figure is compared",
        "with a peer measured in the same run, interleaved; medians over the rounds [lowest – highest]. The ratio is that of",
        f"the medians. The first ratio of each part is here; its page has all. [The machine](results/{MACHINE}.md).",
        "",
        f"**{met} of {every} bars met.**",
        "",
        "![Each figure as a multiple of its bar](plots/overview.svg)",
        "",
        "| part | bars met | first ratio | rounds | measured |",
        "|---|---|---|---|---|",
        *(page.row() for page in found),
        "",
    ]
    if missing := [part.title for part in PARTS if part.key not in {page.part.key for page in found}]:
        lines += [f"Not measured yet: {'; '.join(missing)}.", ""]
    plots = [f"[{os.path.basename(path)}]({path})" for page in found for path in dict.fromkeys(PLOT.findall(page.text))]
    if plots:
        lines += [f"Charts: {', '.join(plots)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def rounds_of(found: list[Page]) -> Iterator[str]:
    """Yields a line for each number of rounds: which parts have it."""
    for number in sorted({page.rounds for page in found}, reverse=True):
        keys = ", ".join(f"`{page.part.key}`" for page in found if page.rounds == number)
        yield f"  * {number} {'round' if number == 1 else 'rounds'}: {keys}"


def with_rounds(readme: str, found: list[Page]) -> str:
    """Returns the README with the rounds of the published results between its marks."""
    return marked.replaced(readme, ROUNDS_PART, rounds_of(found))
