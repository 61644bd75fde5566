"""YARA rules in two stages: the atoms that are searched where the bytes lie, and the rules that have none.

A file that a rule matches has at least one of the rule's atoms in it. The Rust part derives them; where it is in doubt, a rule has none,
and is tried on every file.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from cheetah import _native
from cheetah.triage.search import scan

ENCODING = "windows-1252"
"""The encoding in which atoms are searched: each byte is a character of it."""
_CONTROLS = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))
"""The bytes that are control characters there, and that Python leaves out."""
_WHY = {
    "condition": "its condition may hold where none of its strings is",
    "strings": "its strings have too few bytes that are fixed",
    "too-many": "there are too many strings in all rules",
    "not-parsed": "they are not understood as a whole",
}


@dataclasses.dataclass(frozen=True)
class Central:
    """A rule that must be tried on every file. `rule` is None for all rules of the file, and `why` "condition", "strings", "too-many" or
    "not-parsed"."""

    file: str
    rule: str | None
    why: str

    def sentence(self) -> str:
        """Returns which rule it is, and why, in words."""
        what = f"the rules of {self.file}" if self.rule is None else f"{self.rule} of {self.file}"
        return f"{what}, since {_WHY[self.why]}"


@dataclasses.dataclass(frozen=True)
class Split:
    """Rules, divided. An atom is its bytes, and whether the case of letters is ignored."""

    atoms: tuple[tuple[bytes, bool], ...]
    central: tuple[Central, ...]

    @property
    def words(self) -> list[str]:
        """The atoms as words in `ENCODING`."""
        return sorted({_word(atom) for atom, _ in self.atoms})

    @property
    def ignore_case(self) -> bool:
        """Whether the case of letters is ignored: for all atoms, if for one. More is found then, and nothing is missed."""
        return any(ignore_case for _, ignore_case in self.atoms)


def of(rule_files: Iterable[str]) -> Split:
    """Divides the rules in files. Raises OSError if one cannot be read."""
    return of_texts(scan.read_rules(rule_files))


def of_texts(rules: Sequence[tuple[str, str]]) -> Split:
    """Divides rules, of which these are the names of their files and the texts."""
    atoms, central = _native.split_rules([text for _, text in rules])
    return Split(
        tuple((bytes(atom), ignore_case) for atom, ignore_case in atoms),
        tuple(Central(rules[file][0], rule, why) for file, rule, why in central),
    )


def need_whole_files(rules: Sequence[tuple[str, str]]) -> bool:
    """Returns whether rules may match a file and no piece of it, or the other way round."""
    return _native.rules_need_whole_files([text for _, text in rules])


def _word(atom: bytes) -> str:
    """Returns the text whose bytes these are."""
    return "".join(chr(byte) if byte in _CONTROLS else bytes((byte,)).decode("cp1252") for byte in atom)
