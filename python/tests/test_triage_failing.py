"""Sources that fail: what could not be read is said, where it is; all else is right."""

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import triage_images
from triage_listing import Listed, by_fls

import cheetah
from cheetah.triage import worker
from cheetah.triage.image import Source
from cheetah.triage.run import DONE, EVIDENCE, Run
from cheetah.triage.settings import Settings
from cheetah.triage.task import Event


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ext4 volume."""
    return triage_images.ext4(tmp_path_factory.mktemp("image"))


def test_a_directory_that_cannot_be_read_is_a_problem_and_the_rest_is_listed(
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
    for line in missing:
        path = line.split(b"|")[1].decode()
        assert any(path.startswith(problem.path.rstrip("/")) for problem in problems if problem.path), path


class _With:
    """A source with another `pread`."""

    def __init__(self, source: Source, pread: Callable[[int, int], bytes]):
        self.name, self.size, self.pread, self.close = source.name, source.size, pread, source.close


def test_a_source_that_fails_midway_is_said_and_read_again_with_the_same_command(
    image: Path, tmp_path: Path, nbdkit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    share = cheetah.share
    # Otherwise all of so small an image is near before the source fails.
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
