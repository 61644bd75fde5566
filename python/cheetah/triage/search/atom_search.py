"""Searches a source for the atoms of rules, at the nodes that hold it or here."""

from collections.abc import Callable, Sequence

import cheetah
from cheetah.search import Coverage
from cheetah.triage.search import atom_map, atoms

Told = Callable[[int, int], None]


def search(
    device: cheetah.Device,
    split: atoms.Split,
    at_nodes: bool,
    lend_key: Sequence[str],
    workers: int | None,
    told: Told = lambda done, total: None,
) -> tuple[atom_map.AtomMap, Coverage]:
    """Returns where atoms are, and what was searched. `told` receives the bytes that are searched, and their total. Raises OSError if the
    source fails, and ValueError if something is left out."""
    found = atom_map.Gatherer()
    told(0, device.size)
    hits = device.search(
        split.words,
        encodings=(atoms.ENCODING,),
        ignore_case=split.ignore_case,
        context_bytes=0,
        at_nodes=at_nodes,
        lend_key=lend_key,
        workers=workers,
    )
    for hit in hits:
        found.add(hit.offset, hit.length)
        told(hit.offset, device.size)
    coverage = hits.coverage
    gaps = [(gap.offset, gap.length) for gap in coverage.gaps]
    counted = coverage.searched_bytes + sum(length for _, length in gaps)
    if counted != device.size:
        raise ValueError(f"it ended after {counted} of {device.size} bytes")
    return found.map(device.size, gaps, [atom for atom, _ in split.atoms], split.ignore_case), coverage
