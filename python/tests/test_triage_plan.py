"""The order and the batches in which files are read."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cheetah.triage.hub import plan
from cheetah.triage.settings import Settings
from cheetah.triage.tables.schemas import LISTING
from cheetah.triage.tables.store import ArrowRows, Writer
from cheetah.triage.task import Entry


def listing(path: Path, inodes: list[int]) -> ArrowRows:
    """A file for each inode."""
    rows: list[dict[str, Any]] = []
    for row, inode in enumerate(inodes):
        one: dict[str, Any] = dict.fromkeys(LISTING.names)
        one.update(volume=0, address=str(inode), path=f"/{row}", name=f"{row}", kind="r", deleted=False)
        one.update(allocated=True, size=100, inode=inode, extension="")
        rows.append(one)
    writer = Writer(path, LISTING)
    writer.write(pa.Table.from_pylist(rows, LISTING))
    writer.close()
    return ArrowRows(path)


@pytest.mark.parametrize("quick", [False, True])
def test_hard_links_are_in_one_batch_at_the_best_rank(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "QUICK_FILES", 700)
    chance = random.Random(1)
    inodes = [chance.randrange(300) for _ in range(1000)]
    ranks = [chance.randrange(100) for _ in inodes]
    rows = listing(tmp_path / "listing.arrow", inodes)
    settings = Settings("source", str(tmp_path), quick=quick)
    order = plan.ReadingOrder(settings)
    for batch in rows.batches():
        order.add(batch, pa.array(ranks, pa.int32()))
    batches = [task.entries() for task in plan.content_tasks(rows, order.rows(), settings)]
    read = [one for batch in batches for one in batch]
    best = sorted(range(1000), key=lambda row: (-ranks[row], row))[: 700 if quick else 1000]
    assert sorted(one.row for one in read) == sorted(best)
    first_names: dict[int, int] = {}
    for row in best:
        first_names.setdefault(inodes[row], row)
    assert list(dict.fromkeys(one.inode for one in read)) == list(first_names)
    assert all(len({which(one.inode, batches)}) == 1 for one in read)


def which(inode: int, batches: list[list[Entry]]) -> int:
    """The only batch that reads a file."""
    (found,) = [number for number, batch in enumerate(batches) if any(one.inode == inode for one in batch)]
    return found
