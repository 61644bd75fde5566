"""Previews of NTFS names come before the listing, agree with it, and do no harm."""

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
import triage_images
from conftest import MIB, noise, program, run
from triage_worker import Raw, worker
from triage_workers import Alone

from cheetah.triage.filesystem import mft_record
from cheetah.triage.hub.closing import DONE
from cheetah.triage.hub.run import Run
from cheetah.triage.listing import mft_preview, walk
from cheetah.triage.reading.worker import Worker
from cheetah.triage.settings import Settings
from cheetah.triage.task import Event, Finding, Result, Task


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The searched content."""
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("ledger\nbottom\n")
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An NTFS volume where only the last file's name holds the keyword, and one file has it as its content."""
    folder = tmp_path_factory.mktemp("many")
    image = folder / "many.raw"
    with image.open("wb") as file:
        file.truncate(16 * MIB)
    run(program("mkntfs"), "-F", "-Q", "-q", "-c", "1024", image)
    for number in range(20):
        name = f"file{number}.bin"
        (folder / name).write_bytes("ledger".encode("utf-16-le") if number == 3 else noise(2000, number))
        run(program("ntfscp"), "-f", "-q", image, folder / name, name)
    run(program("ntfscp"), "-f", "-q", image, folder / "file0.bin", "the LEDGER.xlsx")
    return image


def looker(image: Path, words: Path, source: Any = None) -> Worker:
    """A worker over a volume."""
    return worker(image, "ntfs", source, keywords=(str(words),))


def looks(one: Worker) -> Iterator[Result]:
    """The results of a preview's tasks; each task names the next."""
    tasks = [mft_preview.first_task(0)]
    while tasks:
        result = mft_preview.look(one, tasks.pop())
        tasks += result.tasks
        yield result


def listed(one: Worker) -> list[Finding]:
    """The findings of the listing in names."""
    tasks, found = [walk.first_task(0, one.volumes[0].root_inode)], []
    while tasks:
        result = walk.listing(one, tasks.pop())
        tasks += result.tasks
        found += result.findings
    return found


def test_a_preview_finds_what_the_listing_finds(many: Path, words: Path) -> None:
    one = looker(many, words)
    (found,) = [finding for result in looks(one) for finding in result.findings]
    assert (found.kind, found.rule, found.path) == ("name", "ledger", "/the LEDGER.xlsx")
    assert [found] == listed(one)


def test_a_preview_shows_the_known_part_of_a_path(words: Path, tmp_path: Path) -> None:
    one = looker(triage_images.ntfs(tmp_path), words)
    (found,) = [finding for result in looks(one) for finding in result.findings]
    assert found.path is not None and found.path.startswith("/level0/level1/") and found.path.endswith("/bottom.txt")
    assert [found] == listed(one)


def test_a_preview_continues_until_it_finds_something(many: Path, words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mft_preview, "FIRST_BYTES", 4096)
    monkeypatch.setattr(mft_preview, "TASK_BYTES_MAX", 16384)
    monkeypatch.setattr(mft_preview, "PIECE_BYTES", 2048)
    one = looker(many, words)
    results = list(looks(one))
    assert [len(result.findings) for result in results] == [0] * (len(results) - 1) + [1]
    assert len(results) > 3
    assert [result.findings[0] for result in results[-1:]] == listed(one)
    monkeypatch.setattr(mft_preview, "MFT_BYTES_MAX", 20_000)
    assert not any(result.findings for result in looks(one))


def test_without_keywords_or_an_mft_there_is_no_preview(many: Path, words: Path, tmp_path: Path) -> None:
    (result,) = looks(worker(many, "ntfs"))
    assert result == Result()
    empty = tmp_path / "empty.raw"
    empty.write_bytes(bytes(MIB))
    (result,) = looks(looker(many, words, Raw(empty)))
    assert result == Result()
    (result,) = looks(looker(many, words, Raw(many, (0, MIB))))
    assert result == Result()


class Flipped:
    """An image with flipped bits, or one that ends early."""

    def __init__(self, content: bytes):
        self.name, self.size, self._content = "flipped", len(content), content

    def pread(self, offset: int, length: int) -> bytes:
        assert 0 <= offset and 0 <= length <= MIB
        return self._content[offset : offset + length]

    def close(self) -> None:
        """Nothing to release."""


def test_no_bytes_raise_an_exception(many: Path, words: Path) -> None:
    whole = many.read_bytes()
    one = looker(many, words)
    found = mft_preview.find(one.source.pread, one.volumes[0])
    assert found is not None
    start = found.runs[0][0]
    chance = random.Random(42)
    # The boot sector and the MFT's own record, from which all else follows; all records; and truncated ones.
    for attempt in range(300):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 12)):
            first, length = ((0, 80), (start, 1024), (start, found.size))[attempt % 3]
            content[first + chance.randrange(length)] ^= 1 << chance.randrange(8)
        one.source = Flipped(bytes(content[: chance.randrange(start, len(content))] if attempt % 5 == 0 else content))
        results = list(looks(one))
        assert len(results) < 100
        assert all(finding.kind == "name" for result in results for finding in result.findings)


def test_random_records_are_parsed_or_rejected(many: Path, words: Path) -> None:
    one = looker(many, words)
    mft = mft_preview.find(one.source.pread, one.volumes[0])
    assert mft is not None
    good = mft.read(64 * mft.record_bytes, mft.record_bytes)
    assert good[:4] == b"FILE"
    chance = random.Random(7)
    for length in range(0, len(good), 3):
        mft_record.parse(good[:length])
        damaged = bytearray(good)
        for _ in range(20):
            damaged[4 + chance.randrange(len(good) - 4)] = chance.choice((0, 1, 127, 128, 255))
        parsed = mft_record.parse(bytes(damaged))
        for attribute in mft_record.attributes(bytes(damaged)):
            assert len(attribute.runs()) <= 4096 and attribute.size() >= 0 and len(attribute.content(100)) <= 100
        assert parsed is None or all(len(name.text) <= 255 for name in parsed.names)
    assert mft_record.parse(b"FILE") is None and mft_record.parse(noise(1024, 1)) is None


class PreviewFirst(Alone):
    """Acts as two workers, of which the one with the listing is slow."""

    workers = 2

    def results(self, more: Iterable[Task] = ()) -> Iterator[tuple[Task, Result] | None]:
        yield from super().results(sorted(more, key=lambda task: task.stage != "preview"))


def triage(image: Path, out: Path, words: Path, hands: Callable[..., Any] | None, workers: int = 2) -> list[Event]:
    """The events of a run."""
    events: list[Event] = []
    settings = Settings(str(image), str(out), workers=workers, keywords=(str(words),))
    if hands is None:
        assert Run(settings, events.append).go()[0] == DONE
    else:
        with mock.patch("cheetah.triage.hub.run._start_workers", hands):
            assert Run(settings, events.append).go()[0] == DONE
    return events


def test_previews_come_before_the_listing_and_are_not_stored(many: Path, words: Path, tmp_path: Path) -> None:
    events = triage(many, tmp_path / "early", words, PreviewFirst)
    first = next(event for event in events if event.findings)
    assert (first.stage, first.done, first.findings) == ("listing", 0, 1)
    assert first.latest[0].path == "/the LEDGER.xlsx"
    (ranking,) = [event for event in events if event.stage == "ranking"]
    assert (ranking.findings, ranking.latest) == (1, first.latest)
    rows = pq.read_table(tmp_path / "early/findings.parquet").to_pylist()
    assert [row["path"] for row in rows if row["kind"] == "name"] == ["/the LEDGER.xlsx"]
    for workers in (1, 2):
        triage(many, tmp_path / f"{workers}", words, None, workers)
        other = (tmp_path / f"{workers}/findings.parquet").read_bytes()
        assert other == (tmp_path / "early/findings.parquet").read_bytes()


def test_a_failing_preview_is_not_a_problem(
    many: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(worker: Worker, task: Task) -> Result:
        raise RuntimeError("a fault")

    monkeypatch.setattr(mft_preview, "look", fail)
    events = triage(many, tmp_path / "out", words, PreviewFirst)
    assert next(event for event in events if event.stage == "ranking").findings == 1


def test_a_single_worker_makes_no_preview(many: Path, words: Path, tmp_path: Path) -> None:
    stages: list[str] = []

    class Watched(Alone):
        def results(self, more: Iterable[Task] = ()) -> Iterator[tuple[Task, Result] | None]:
            for item in super().results(more):
                if item is not None:
                    stages.append(item[0].stage)
                yield item

    triage(many, tmp_path / "out", words, Watched)
    assert "listing" in stages and "preview" not in stages


def test_a_preview_stays_inside_its_volume(many: Path, words: Path) -> None:
    one = looker(many, words)
    volume = one.volumes[0]
    found = mft_preview.find(one.source.pread, volume)
    assert found is not None
    # The MFT would be beyond the end of such a short volume.
    short = dataclasses.replace(volume, length=found.runs[0][0])
    assert mft_preview.find(one.source.pread, short) is None
