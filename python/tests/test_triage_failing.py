"""Failing sources: unreadable ranges are reported where they are; all else is right."""

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import triage_images
from triage_listing import Listed, by_fls
from triage_workers import Alone

import cheetah
from cheetah.triage.hub import plan, run
from cheetah.triage.hub.closing import DONE, EVIDENCE
from cheetah.triage.hub.run import Run
from cheetah.triage.reading import shared_source, worker
from cheetah.triage.reading.image import Source
from cheetah.triage.settings import Settings
from cheetah.triage.task import Event


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ext4 volume."""
    return triage_images.ext4(tmp_path_factory.mktemp("image"))


def test_an_unreadable_directory_is_a_problem_and_the_rest_is_listed(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = image.read_bytes().index(b"\x0a\x01file00.bin") // 1024 * 1024
    bad = range(block, block + 1024)
    opened = worker.open_source

    def failing(uri: str) -> Source:
        source = opened(uri)
        pread = source.pread

        def read(offset: int, length: int) -> bytes:
            if offset < bad.stop and offset + length > bad.start:
                raise OSError(errno.EIO, "the disk has a bad sector")
            return pread(offset, length)

        return _With(source, read)

    monkeypatch.setattr(worker, "open_source", failing)
    listed = Listed(image, tmp_path)
    lines, expected = set(listed.lines), by_fls(image)
    missing = [line for line in expected if line not in lines]
    assert missing
    assert lines <= set(expected) | {line for line in listed.lines if b"|0|0|0|0|0|0|0" in line}
    problems = [problem for problem in listed.problems if problem.path]
    assert any("bad sector" in problem.sentence and problem.offset is not None for problem in problems)
    assert any("could not be listed" in problem.sentence for problem in problems)
    assert not any(".cpp" in problem.sentence for problem in problems), "a reader does not need the place in the code"
    for line in missing:
        path = line.split(b"|")[1].decode()
        assert any(path.startswith(problem.path.rstrip("/")) for problem in problems if problem.path), path


class _With:
    """A source with another `pread`."""

    def __init__(self, source: Source, pread: Callable[[int, int], bytes]):
        self.name, self.size, self.pread, self.close = source.name, source.size, pread, source.close


def test_a_source_that_fails_midway_is_read_by_the_same_command_later(
    image: Path, tmp_path: Path, nbdkit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    share = cheetah.share
    # Otherwise all of this small image is cached before the source fails.
    monkeypatch.setattr(cheetah, "share", lambda source, **how: share(source, cache=0, foresight=False, prefetch=0))
    trigger = tmp_path / "fail"
    filters = [
        "--filter=error",
        "file",
        str(image),
        "error-pread=EIO",
        "error-pread-rate=100%",
        f"error-pread-file={trigger}",
    ]
    source = nbdkit(*filters)
    out = tmp_path / "out"

    def tell(event: Event) -> None:
        if event.stage == "content":
            trigger.touch()

    code, summary = Run(Settings(source, str(out), workers=2), tell).go()
    assert code == EVIDENCE
    rows = pq.read_table(out / "files.parquet").to_pylist()
    unreadable = [row for row in rows if row["read_state"] in ("unreadable", "partial", "unread") and row["size"]]
    assert unreadable
    assert all(row["why"] and row["sha256"] is None for row in unreadable)
    assert summary["verdict"] != "whole"
    trigger.unlink()
    code, summary = Run(Settings(source, str(out), workers=2), lambda event: None).go()
    assert (code, summary["problems"]) == (DONE, [])
    assert (out / "bodyfile.txt").read_bytes().splitlines() == by_fls(image)
    again = pq.read_table(out / "files.parquet").to_pylist()
    assert not [row for row in again if row["read_state"] == "unreadable"]


def failing(bad: range, tried: list[int], trouble: Callable[[], bool] = lambda: True) -> Callable[[str], Source]:
    """Opens sources with unreadable bytes; `tried` lists the offsets of reads of them."""
    opened = cheetah.open

    def open_source(uri: str) -> Source:
        source = opened(uri)

        def read(offset: int, length: int) -> bytes:
            if offset < bad.stop and offset + length > bad.start and trouble():
                tried.append(offset)
                raise OSError(errno.EIO, "the disk has a bad sector")
            return source.pread(offset, length)

        return _With(source, read)

    return open_source


@pytest.fixture
def searching(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a run by one worker in this process, which searches unallocated space a little at a time."""
    words = tmp_path / "words.txt"
    words.write_text("bottom\n")
    monkeypatch.setattr(plan, "UNALLOCATED_BYTES", 1 << 20)
    monkeypatch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings))
    return Settings(str(image), str(tmp_path / "out"), keywords=(str(words),))


@pytest.mark.parametrize(("lengths", "outcome"), [((64 << 10,), DONE), ((64 << 10, 160), EVIDENCE)])
def test_times_that_could_not_be_read_are_read_when_the_run_resumes(
    lengths: tuple[int, ...], outcome: int, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, trouble = cheetah.open, [True]

    def open_source(uri: str) -> Source:
        source = opened(uri)

        def read(offset: int, length: int) -> bytes:
            # So long are the reads of a part of the inode table, and of what is needed of an inode.
            if offset and length in lengths and trouble[0]:
                raise OSError(errno.EIO, "the disk has a bad sector")
            return source.pread(offset, length)

        return _With(source, read)

    monkeypatch.setattr(worker, "open_source", open_source)
    monkeypatch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings))
    settings = Settings(str(image), str(tmp_path / "out"))
    code, summary = Run(settings, lambda event: None).go()
    assert code == outcome
    rows = pq.read_table(tmp_path / "out" / "files.parquet").to_pylist()
    assert all((row["sha256"] is not None) == (row["read_state"] == "whole") for row in rows)
    doubted = [row for row in rows if row["read_state"] == "whole" and "metadata" in (row["why"] or "")]
    assert bool(doubted) == (outcome == EVIDENCE)
    assert any("times may be wrong" in one["sentence"] for one in summary["problems"]) == (outcome == EVIDENCE)
    trouble[0] = False
    code, summary = Run(settings, lambda event: None).go()
    assert (code, summary["problems"]) == (DONE, [])
    assert (tmp_path / "out" / "bodyfile.txt").read_bytes().splitlines() == by_fls(image)


def test_a_large_unreadable_part_does_not_stop_the_run(searching: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    open_source = failing(range(9 << 20, 16 << 20), [])
    monkeypatch.setattr(worker, "open_source", open_source)
    monkeypatch.setattr(shared_source, "open_source", open_source)
    code, summary = Run(searching, lambda event: None).go()
    assert (code, summary["complete"]) == (EVIDENCE, True)
    lost = [one for one in summary["problems"] if one["stage"] == "unallocated"]
    assert sum(one["length"] for one in lost) > 6 << 20
    space = summary["coverage"]["unallocated"]
    assert space["searched"] > 6 << 20
    assert space["bytes"] - space["searched"] == sum(one["length"] for one in lost)
    assert 0 < space["unreadable"] <= space["bytes"] - space["searched"]


def test_a_lost_source_stops_the_run_and_resuming_searches_everything(
    searching: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = [False]
    open_source = failing(range(24 << 20), [], lambda: gone[0])
    monkeypatch.setattr(worker, "open_source", open_source)
    monkeypatch.setattr(shared_source, "open_source", open_source)

    def tell(event: Event) -> None:
        gone[0] = event.stage == "unallocated"

    for _ in range(2):
        code, summary = Run(searching, tell).go()
        assert (code, summary["complete"], summary["verdict"]) == (EVIDENCE, False, "stopped")
        assert "no longer answers" in summary["problems"][0]["sentence"]
        space, stage = summary["coverage"]["unallocated"], summary["coverage"]["stages"]["unallocated"]
        assert space["bytes"] - space["searched"] - space["unreadable"] > 6 << 20
        assert stage["done"] < stage["total"] == 24
        gone[0] = False
    code, summary = Run(searching, lambda event: None).go()
    assert (code, summary["complete"], summary["problems"]) == (DONE, True, [])
    space = summary["coverage"]["unallocated"]
    assert space["bytes"] == space["searched"] > 6 << 20


def test_a_resumed_run_tries_new_files_before_unreadable_ones(
    searching: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    stages = [""]
    bad = range(9 << 20, 24 << 20)
    monkeypatch.setattr(worker, "open_source", failing(bad, tried, lambda: stages[-1] == "unallocated"))
    monkeypatch.setattr(shared_source.SharedSource, "answers", lambda self: False)
    furthest = []
    for _ in range(2):
        assert Run(searching, lambda event: stages.append(event.stage)).go()[0] == EVIDENCE
        furthest.append(max(tried))
    assert furthest[1] > furthest[0]
