"""Free blocks as recorded by each file system, compared with blkls; and findings in them."""

import itertools
import random
from pathlib import Path

import pytest
import pytsk3
from conftest import MIB, noise, program, run
from triage_worker import Raw, fat, worker

from cheetah.triage.content import analysis, unallocated
from cheetah.triage.filesystem import allocation
from cheetah.triage.hub import plan
from cheetah.triage.search import scan
from cheetah.triage.task import Finding, Volume

WORD = "Rosenkohl"


def made(folder: Path, kind: str) -> Path:
    """A file system with some files in it."""
    image = folder / f"{kind}.raw"
    tree = folder / "tree"
    tree.mkdir(exist_ok=True)
    for number in range(30):
        (tree / f"f{number}").write_bytes(noise(3000 * number, number))
    size = {"fat12": 2, "fat16": 5, "fat32": 36, "exfat": 8, "ntfs": 4}.get(kind, 24) * MIB
    with image.open("wb") as file:
        file.truncate(size)
    if kind.startswith("fat"):
        run(program("mkfs.vfat"), "-F", kind[3:], "-s", "1", image)
        run(program("mcopy"), "-i", image, *sorted(tree.iterdir()), "::")
    elif kind == "exfat":
        run(program("mkfs.exfat"), image)
    elif kind == "ntfs":
        run(program("mkntfs"), "-F", "-Q", "-q", image)
        run(program("ntfscp"), "-f", "-q", image, tree / "f29", "f29")
    else:
        more = {"ext2": ["-b", "1024"], "ext4": [], "ext4-32": ["-O", "^64bit,^flex_bg"], "ext4-4k": ["-b", "4096"]}[
            kind
        ]
        run(program("mke2fs"), "-q", "-F", "-t", kind.partition("-")[0], *more, "-d", tree, image)
    return image


def free_by_blkls(image: Path) -> set[int]:
    lines = run(program("blkls"), "-l", image).splitlines()[3:]
    return {int(line.split("|")[0]) for line in lines if line.endswith("|f")}


def free_by_dumpe2fs(image: Path) -> set[int]:
    """In groups that were never written to, The Sleuth Kit reports copies of the superblock as free; e2fsprogs does
    not."""
    lines = [line.strip() for line in run(program("dumpe2fs"), image).splitlines()]
    groups = lines[next(number for number, line in enumerate(lines) if line.startswith("Group 0:")) :]
    ranges = [part.split("-") for line in groups if line.startswith("Free blocks: ") for part in line[13:].split(", ")]
    return {block for one in ranges for block in range(int(one[0]), int(one[-1]) + 1)}


@pytest.mark.parametrize("kind", ["fat12", "fat16", "fat32", "exfat", "ntfs", "ext2", "ext4", "ext4-32", "ext4-4k"])
def test_free_blocks_agree_with_other_tools(tmp_path: Path, kind: str) -> None:
    image = made(tmp_path, kind)
    block = int(pytsk3.FS_Info(pytsk3.Img_Info(str(image))).info.block_size)
    theirs = free_by_dumpe2fs(image) if kind.startswith("ext") else free_by_blkls(image)
    size = image.stat().st_size
    found = analysis.Tools.of(worker(image, kind.partition("-")[0])).maps.of(0)
    ours = {place // block for start, length in found.free(0, size) for place in range(start, start + length, block)}
    # A remainder smaller than a cluster is not returned.
    assert ours <= theirs and len(theirs - ours) <= (1 if kind == "fat12" else 0)
    assert found.free_bytes() == len(ours) * block
    chance = random.Random(kind)
    for _ in range(30):
        start, length = chance.randrange(size), chance.randrange(1, 200_000)
        touched = range(start // block, (start + length - 1) // block + 1)
        pieces = list(found.free(start, length))
        assert all(start <= at and at + many <= start + length and many > 0 for at, many in pieces)
        assert {place // block for at, many in pieces for place in range(at, at + many)} == ours & set(touched)
        assert (found.in_use(start, length) == 0) == all(place in ours for place in touched)


def test_a_damaged_file_system_is_unknown_not_free(tmp_path: Path) -> None:
    chance = random.Random(5)
    for kind in ("fat16", "exfat", "ext4", "ntfs"):
        data = bytearray(made(tmp_path, kind).read_bytes())
        rest = bytes(data[64 << 10 :])
        for _ in range(12):
            damaged = bytearray(data[: 64 << 10])
            for _ in range(8):
                damaged[chance.randrange(2048)] = chance.randrange(256)
            whole = bytes(damaged) + rest

            def read(offset: int, length: int, whole: bytes = whole) -> bytes:
                return whole[offset : offset + length] if offset >= 0 else b""

            try:
                found = allocation.of(kind, len(whole), read, lambda most: bytes(1000))
                list(found.free(0, len(whole)))
            except allocation.Unknown as error:
                assert str(error)


def test_an_oversized_file_system_is_bounded_by_its_volume(tmp_path: Path) -> None:
    for kind, place, claim in (
        ("ntfs", 40, (1 << 50).to_bytes(8, "little")),
        ("ext4-32", 1024 + 4, (1 << 31).to_bytes(4, "little")),
        ("fat32", 32, (1 << 31).to_bytes(4, "little")),
        ("exfat", 92, (1 << 31).to_bytes(4, "little")),
    ):
        data = bytearray(made(tmp_path, kind).read_bytes())
        data[place : place + len(claim)] = claim
        asked: list[int] = []

        def read(offset: int, length: int, data: bytearray = data, asked: list[int] = asked) -> bytes:
            asked.append(length)
            return bytes(data[offset : offset + length])

        def bitmap(most: int, asked: list[int] = asked) -> bytes:
            asked.append(most)
            return bytes(min(most, 1 << 20))

        found = allocation.of(kind.partition("-")[0], len(data), read, bitmap)
        assert found.end <= len(data) and sum(asked) < MIB, kind
        assert all(start + length <= len(data) for start, length in found.free(0, 1 << 40))


@pytest.fixture(scope="module")
def stick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stick with the word in a deleted letter and in an existing file."""
    image = tmp_path_factory.mktemp("free") / "stick.raw"
    letter = b"x" * 3000 + WORD.encode() + b"y" * 60_000 + WORD.upper().encode("utf-16-le") + b"z" * 5000
    return fat(image, {"KEPT.TXT": letter + b"kept", "GONE.TXT": letter, "TAIL.TXT": b"t" * 9000}, ["GONE.TXT"])


def findings(image: Path, cuts: list[int], **more: object) -> list[Finding]:
    words = image.with_name("words.txt")
    words.write_text(WORD + "\n")
    one = worker(image, "fat16", keywords=(str(words),), **more)
    found: list[Finding] = []
    for start, end in itertools.pairwise(cuts):
        found += unallocated.scan(one, 0, start, end - start).findings
    return sorted(found, key=lambda finding: finding.offset or 0)


def test_deleted_text_is_found_at_its_offset_and_existing_text_is_not(stick: Path) -> None:
    data = stick.read_bytes()
    first = data.find(WORD.encode(), data.find(WORD.encode()) + 1)
    second = data.find(WORD.upper().encode("utf-16-le"), first)
    found = findings(stick, [0, len(data)])
    assert [finding.offset for finding in found] == [first, second]
    assert all(finding.kind == "keyword" and finding.rule == WORD and finding.address is None for finding in found)
    assert WORD.upper() in (found[1].excerpt or "")


def test_the_division_of_the_image_does_not_matter(stick: Path) -> None:
    size = stick.stat().st_size
    whole = [(one.offset, one.rule) for one in findings(stick, [0, size])]
    chance = random.Random(2)
    for _ in range(8):
        cuts = sorted({0, size, *(chance.randrange(size) for _ in range(5)), (whole[0][0] or 0) + chance.randrange(9)})
        assert [(one.offset, one.rule) for one in findings(stick, cuts)] == whole


def test_unreadable_unallocated_space_is_reported(stick: Path) -> None:
    data = stick.read_bytes()
    first = data.find(WORD.encode(), data.find(WORD.encode()) + 1)
    words = stick.with_name("words.txt")
    words.write_text(WORD + "\n")
    source = Raw(stick, (first, first + 512))
    result = unallocated.scan(worker(stick, "fat16", source, keywords=(str(words),)), 0, 0, len(data))
    assert len(result.findings) == 1
    (problem,) = result.problems
    assert problem.offset is not None and problem.offset <= first < problem.offset + (problem.length or 0)


def test_space_outside_file_systems_is_searched(tmp_path: Path) -> None:
    image = tmp_path / "disk.raw"
    image.write_bytes(bytes(1000) + WORD.encode() + bytes(90_991) + WORD.encode()[:5] + WORD.encode()[5:] + bytes(100))
    words = tmp_path / "words.txt"
    words.write_text(WORD + "\n")
    stick = fat(tmp_path / "stick.raw", {})
    one = worker(stick, "fat16", keywords=(str(words),))
    one.source = Raw(image)
    one.volumes = (Volume(0, 92_005, 100, "fat16", ""),)
    found = unallocated.scan(one, -1, 0, 92_005).findings
    assert [finding.offset for finding in found] == [1000]
    one.volumes = ()
    assert [finding.offset for finding in unallocated.scan(one, -1, 0, 92_005).findings] == [1000, 92_000]


def test_the_rest_of_a_volume_after_its_file_system_is_searched(tmp_path: Path) -> None:
    image = fat(tmp_path / "stick.raw", {"KEPT.TXT": b"kept"})
    end = image.stat().st_size
    data = image.read_bytes() + b"x" * 70_000 + WORD.encode() + b"y" * 70_000
    # And one across the border: the last clusters of the file system are free.
    image.write_bytes(data[: end - 4] + WORD.encode() + data[end - 4 + len(WORD) :])
    for cuts in ([0, len(data)], [0, end, len(data)], [0, end - 2, end + 3, end + 70_003, len(data)]):
        assert [one.offset for one in findings(image, cuts)] == [end - 4, end + 70_000]


def test_overlapping_partitions_are_searched_and_reported(tmp_path: Path) -> None:
    image = fat(tmp_path / "stick.raw", {"KEPT.TXT": WORD.encode(), "GONE.TXT": WORD.encode()}, ["GONE.TXT"])
    words = tmp_path / "words.txt"
    words.write_text(WORD)
    one = worker(image, "fat16", keywords=(str(words),))
    size = image.stat().st_size
    one.volumes = (one.volumes[0], Volume(1, MIB, size - MIB, "hfs", ""), Volume(2, 2 * MIB, 4 * MIB, "xfs", ""))
    results = [
        (task.volume, unallocated.scan(one, task.volume, *task.what))
        for task in plan.unallocated_tasks(one.volumes, size)
    ]
    assert [found.volume for _, result in results for found in result.findings] == [0]
    said = [(volume, problem.sentence) for volume, result in results for problem in result.problems]
    assert [volume for volume, text in said if "not searched" in text] == [1, 2], "each once"
    assert [text[:25] for _, text in said if "overlap" in text] == [
        "volumes 0 and 1 overlap in"[:25],
        "volumes 0 and 2 overlap in"[:25],
        "volumes 1 and 2 overlap in"[:25],
    ]


def test_unknown_free_space_is_a_problem(stick: Path) -> None:
    words = stick.with_name("words.txt")
    words.write_text(WORD + "\n")
    one = worker(stick, "hfs", keywords=(str(words),))
    result = unallocated.scan(one, 0, 0, MIB)
    assert not result.findings and not unallocated.scan(one, 0, MIB, MIB).problems
    (problem,) = result.problems
    assert "not searched" in problem.sentence and problem.length == stick.stat().st_size


def test_an_unreadable_allocation_is_reported_and_tried_again(stick: Path) -> None:
    words = stick.with_name("words.txt")
    words.write_text(WORD + "\n")
    source = Raw(stick, (0, 512))
    one = worker(stick, "fat16", source, keywords=(str(words),))
    result = unallocated.scan(one, 0, MIB, MIB)
    (problem,) = result.problems
    assert result.failed and problem.offset == 0 and "bad sector" in problem.sentence
    source.bad = ()
    result = unallocated.scan(one, 0, MIB, MIB)
    assert not result.failed and not result.problems and result.bytes_read


def test_a_frequent_word_does_not_crowd_out_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MATCHES_MAX", 300)
    image = fat(tmp_path / "stick.raw", {"GONE.TXT": (WORD + " ").encode() * 2000}, ["GONE.TXT"])
    found = findings(image, [0, image.stat().st_size])
    assert len(found) == unallocated.FINDINGS_MAX and "omitted" in found[-1].detail
