"""The part of files through a mount: its cells, its rows, and how requests are counted. No time is tested."""

from __future__ import annotations

import pytest

from bench.images.site import LOCAL, OURS, REQUEST
from bench.parts import icat
from bench.settings import Settings

# What nbdkit's log filter writes about one connection that asks for two things.
LOG = """\
2026-01-02 03:04:05.000001 Ready thread_model=3
2026-01-02 03:04:05.000002 Preconnect id=1 readonly=1 ...
2026-01-02 03:04:05.000003 ...Preconnect id=1 return=0
2026-01-02 03:04:05.000004 connection=1 Connect export="" tls=0 size=0x200000 write=0 flush=1
2026-01-02 03:04:05.000005 connection=1 Extents id=1 offset=0x0 count=0x200000 req_one=0 ...
2026-01-02 03:04:05.000006 connection=1 ...Extents id=1 extents=(0x0 0x200000 "") return=0
2026-01-02 03:04:05.000007 connection=1 Read id=2 offset=0x0 count=0x40000 ...
2026-01-02 03:04:05.000008 connection=1 ...Read id=2 return=0
2026-01-02 03:04:05.000009 connection=1 Disconnect transactions=2
"""
FILES = 200


def results(again_requests: float) -> dict[str, list[dict[str, float]]]:
    """One round in which a file takes 0.5 ms longer after the listing, and as long as on the image at hand again."""
    ours = {"after": 2.1, "again": 2.0, "after_requests": 50.0, "again_requests": again_requests, "resident": 0.0}
    return {OURS: [ours], LOCAL: [{**ours, "after": 2.0, "after_requests": 0.0, "again_requests": 0.0}]}


def met(again_requests: float) -> dict[str, bool | None]:
    """Whether each figure of a cell meets its bar."""
    cell = icat.cells(Settings.of(quick=True))[0]
    figures = icat.figures_of(cell, FILES, results(again_requests))
    return {figure.id.rpartition("/")[2]: figure.met() for figure in figures}


def test_each_request_is_counted_once_and_connections_are_none() -> None:
    assert sum(REQUEST.search(line) is not None for line in LOG.splitlines()) == 2


def test_what_a_file_takes_longer_is_the_difference_of_the_same_round() -> None:
    assert icat.files_ms(results(0.0), "after", FILES) == pytest.approx([0.5])
    assert icat.files_ms(results(0.0), "again", FILES) == [0.0]
    swapped = results(0.0)
    swapped[OURS], swapped[LOCAL] = swapped[LOCAL], swapped[OURS]
    assert icat.files_ms(swapped, "after", FILES) == [0.0], "less is no negative time"


def test_a_request_for_a_file_that_was_read_before_misses_the_bar() -> None:
    bars = {"after": True, "after-ms": True, "again": True, "again-ms": True, "after-requests": None}
    assert met(again_requests=0.0) == {**bars, "again-requests": True}
    assert met(again_requests=1.0) == {**bars, "again-requests": False}


def test_cells_are_the_small_images_and_all_of_them_in_a_full_run() -> None:
    names = [str(cell) for cell in icat.cells(Settings.of(False))]
    assert len(names) == 4 and "ntfs-320MiB, 1 Gbit/s, 20 ms one way" in names
    every = [str(cell) for cell in icat.cells(Settings.of(False, full=True))]
    assert len(every) == 8 and set(names) < set(every)
