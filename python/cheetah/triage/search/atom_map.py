"""Where in a source atoms were found, and what of it was searched for them.

Places are kept as numbers of blocks, which become larger if there are too many. So more ranges seem to have an atom than do, and never
fewer.
"""

import io
import os
import pathlib
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from cheetah.durable import replace

SHIFT = 9
"""A block has at least `1 << SHIFT` bytes, a sector."""
BLOCKS_MAX = 1 << 22
"""The largest number of blocks: 32 MiB."""
_GATHERED = 1 << 16
"""Places that are gathered before they are sorted in."""
_NAMES = ("size", "shift", "blocks", "gaps", "atoms", "lengths", "ignore_case")

Blocks = npt.NDArray[np.int64]


class AtomMap:
    """Where atoms were found in the first `size` bytes of a source. `gaps` are the ranges that were not searched, as starts and ends, in
    order."""

    def __init__(
        self, size: int, shift: int, blocks: Blocks, gaps: Blocks, atoms: tuple[bytes, ...], ignore_case: bool
    ):
        self.size = size
        self._atoms = tuple(atom.lower() for atom in atoms) if ignore_case else atoms
        self._ignore_case = ignore_case
        self._reach = max((len(atom) for atom in atoms), default=1) - 1
        self._shift = shift
        self._blocks = blocks
        self._gaps = gaps

    def has_none(self, start: int, length: int) -> bool:
        """Returns whether a range was searched as a whole, and no atom has a byte in it."""
        end = start + length
        if start < 0 or length < 0 or end > self.size:
            return False
        starts, ends = self._gaps[:, 0], self._gaps[:, 1]
        gap = int(np.searchsorted(ends, start, side="right"))
        if gap < len(starts) and int(starts[gap]) < end:
            return False
        place = int(np.searchsorted(self._blocks, start >> self._shift))
        return place == len(self._blocks) or int(self._blocks[place]) << self._shift >= end

    def is_over(self, read: Callable[[int, int], bytes], seam: int, end: int) -> bool:
        """Returns whether an atom lies over an offset of a stream that ends at `end`, or that is in doubt. `read` returns its bytes, of
        an offset and a length."""
        first, until = max(0, seam - self._reach), min(end, seam + self._reach)
        if first >= until:
            return False
        content = read(first, until - first)
        if len(content) != until - first:
            return True
        content = content.lower() if self._ignore_case else content
        return any(atom in content for atom in self._atoms)

    def places(self) -> dict[str, Any]:
        """Returns the numbers of the blocks that have a byte of an atom, the power of two that is their size, and offset and length of
        the ranges that were not searched."""
        gaps = [(int(start), int(end) - int(start)) for start, end in self._gaps]
        return {"blocks": self._blocks.tolist(), "gaps": gaps, "shift": self._shift}

    def save(self, path: pathlib.Path) -> None:
        """Writes it to a file, which is its owner's alone."""
        content = io.BytesIO()
        size, shift = np.array(self.size, np.int64), np.array(self._shift, np.int64)
        # Arrays of bytes would lose zeros at their ends.
        atoms = np.frombuffer(b"".join(self._atoms), np.uint8)
        lengths = np.array([len(atom) for atom in self._atoms], np.int64)
        ignore_case = np.array(self._ignore_case)
        np.savez(
            content,
            size=size,
            shift=shift,
            blocks=self._blocks,
            gaps=self._gaps,
            atoms=atoms,
            lengths=lengths,
            ignore_case=ignore_case,
        )
        replace(path, content.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "AtomMap | None":
        """Returns the map in a file; None if there is none, or it is damaged."""
        try:
            with np.load(path, allow_pickle=False) as found:
                size, shift, blocks, gaps, joined, lengths, ignore_case = (found[name] for name in _NAMES)
            whole, ends = joined.astype(np.uint8).tobytes(), np.cumsum(lengths).tolist()
            atoms = tuple(whole[start:end] for start, end in zip([0, *ends], ends, strict=False))
            gaps = gaps.astype(np.int64).reshape(-1, 2)
            return cls(int(size), int(shift), blocks.astype(np.int64), gaps, atoms, bool(ignore_case))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None


class Gatherer:
    """Gathers the places of atoms."""

    def __init__(self) -> None:
        self._shift = SHIFT
        self._blocks: Blocks = np.zeros(0, np.int64)
        self._new: list[int] = []

    def add(self, offset: int, length: int) -> None:
        """Adds a place, in bytes."""
        self._new += range(offset >> self._shift, (offset + max(length, 1) - 1 >> self._shift) + 1)
        if len(self._new) >= _GATHERED:
            self._sort_in()

    def map(
        self, size: int, gaps: Iterable[tuple[int, int]], atoms: Iterable[bytes], ignore_case: bool = False
    ) -> AtomMap:
        """Returns the map of `atoms` in a source of `size` bytes. `gaps` are offset and length of what was not searched."""
        self._sort_in()
        ranges = sorted((offset, offset + length) for offset, length in gaps if length)
        found = np.array(ranges, np.int64).reshape(-1, 2)
        return AtomMap(size, self._shift, self._blocks, found, tuple(atoms), ignore_case)

    def _sort_in(self) -> None:
        self._blocks = np.unique(np.concatenate((self._blocks, np.array(self._new, np.int64))))
        self._new = []
        while len(self._blocks) > BLOCKS_MAX:
            self._shift += 1
            self._blocks = np.unique(self._blocks >> 1)


def path_in(out: str | os.PathLike[str]) -> pathlib.Path:
    """Returns where the map of a run is while it runs."""
    return pathlib.Path(out) / "parts" / "atoms.npz"
