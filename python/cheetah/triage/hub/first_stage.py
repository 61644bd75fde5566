"""The first stage of YARA rules with `--at-nodes`: their atoms are searched where the bytes lie, before files are read.

Workers then read only the files that may have an atom, and those of which the search says nothing. The result is the same. If every
file is read anyway, nothing is searched, and the report says why.
"""

import dataclasses
from typing import Any

import cheetah
from cheetah.search import Coverage
from cheetah.triage.search import atom_map, atom_search, atoms
from cheetah.triage.settings import Settings
from cheetah.triage.task import Problem

GAPS_MAX = 1000
"""The gaps that the summary lists."""
NAMED_MAX = 20
"""The rules that one sentence names."""


@dataclasses.dataclass
class FirstStage:
    """The first stage of a run, whose workers read the source at `shared_uri`: `problems` are remarks about it, and `facts` what the
    summary says of it."""

    settings: Settings
    shared_uri: str
    problems: list[Problem] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] | None = None

    def begin(self) -> None:
        """Removes what an earlier run found: only what this run finds counts."""
        if self.settings.at_nodes:
            atom_map.path_in(self.settings.out).unlink(missing_ok=True)

    def run(self, told: atom_search.Told) -> None:
        """Searches the source, if that saves reading. `told` receives the bytes that are searched, and their total."""
        if not self.settings.at_nodes:
            return
        split = atoms.of(self.settings.yara)
        why_all = why_all_are_read(self.settings, split)
        self.facts = {
            "atoms": len(split.atoms),
            "central": [dataclasses.asdict(one) for one in split.central],
            "read_all": why_all,
        }
        if split.central:
            self._remark(f"{_named(split)}, must be tried on every file")
        if why_all:
            self._remark(f"nothing was searched at the nodes, since every file is read: {'; '.join(why_all)}")
            return
        try:
            self._covered(self._search(split, told))
        except (OSError, ValueError) as error:
            why = f"the search for the atoms of the rules failed: {error}"
            self.facts |= {"read_all": [why], "failed": True}
            self._remark(f"every file is read, since {why}")

    def _search(self, split: atoms.Split, told: atom_search.Told) -> Coverage:
        """Searches the source, and writes where atoms are."""
        settings = self.settings
        with self._open() as device:
            # Nodes hold what is on the disk, and not what keys open.
            at_nodes, lend_key = (False, ()) if settings.unlock else (True, settings.lend_key)
            found, coverage = atom_search.search(device, split, at_nodes, lend_key, settings.workers or None, told)
            found.save(atom_map.path_in(settings.out))
        return coverage

    def _open(self) -> cheetah.Device:
        """Opens the source. With keys it is that of the workers, as the same volumes must be open: a second opening may read no key, since
        a key file may be a pipe."""
        settings = self.settings
        return (
            cheetah.open(self.shared_uri) if settings.unlock else cheetah.open(settings.source, beside=settings.beside)
        )

    def _covered(self, coverage: Coverage) -> None:
        """Notes what was searched, and where."""
        gaps = [dataclasses.asdict(gap) for gap in coverage.gaps]
        self.facts = {
            **(self.facts or {}),
            "size_bytes": coverage.size_bytes,
            "searched_bytes": coverage.searched_bytes,
            "gaps": gaps[:GAPS_MAX],
            "gaps_total": len(gaps),
            "nodes": coverage.at_nodes,
            "hits": sum(pattern.hits for pattern in coverage.patterns),
        }
        left = coverage.size_bytes - coverage.searched_bytes
        if left:
            self._remark(
                f"{left} bytes could not be searched for the atoms of the rules: files in them are read, as far as they can be"
            )

    def _remark(self, sentence: str) -> None:
        self.problems.append(Problem("content", sentence))


def why_all_are_read(settings: Settings, split: atoms.Split) -> list[str]:
    """Returns why every file is read whatever a search finds; nothing if that is not so."""
    reasons = (
        (bool(settings.hashes), "hashes are computed, which --hash none leaves out"),
        (bool(settings.known or settings.wanted), "hashes are compared with lists"),
        (bool(settings.keywords), "there are keywords, which are searched in every file"),
        (bool(split.central), "there are rules that must be tried on every file"),
        (not split.atoms and not split.central, "the rules need nothing that could be searched for"),
    )
    return [why for holds, why in reasons if holds]


def _named(split: atoms.Split) -> str:
    """Returns the rules without atoms, in words."""
    sentences = [one.sentence() for one in split.central[:NAMED_MAX]]
    more = len(split.central) - len(sentences)
    rest = f"; and {more} more, which summary.json lists" if more else ""
    return f"of the YARA rules, {'; '.join(sentences)}{rest}"
