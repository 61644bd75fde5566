"""Where the content of files lies in an image, and where in it atoms are: what is said to be searched is."""

import random
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import triage_worker
from conftest import noise, program, run
from triage_images import made as made

from cheetah.triage.content import analysis, stored
from cheetah.triage.filesystem import opening
from cheetah.triage.search import atom_map

SIZE = 1 << 20


def test_a_range_has_no_atom_only_if_it_was_searched_and_none_has_a_byte_in_it() -> None:
    chance = random.Random(1)
    for _ in range(200):
        atoms = [(chance.randrange(SIZE - 40), chance.randrange(1, 33)) for _ in range(chance.randrange(20))]
        gaps = [(number * (SIZE // 8), chance.randrange(5000)) for number in chance.sample(range(8), 2)]
        gatherer = atom_map.Gatherer()
        for atom in atoms:
            gatherer.add(*atom)
        found = gatherer.map(SIZE, gaps, ())
        for _ in range(50):
            start, length = chance.randrange(SIZE), chance.randrange(1, 100_000)
            touched = any(at < start + length and start < at + size for at, size in atoms + gaps if size)
            # Rounded to blocks, more may seem to have one.
            near = any(at < start + length + 512 and start - 512 < at + size for at, size in atoms)
            none = found.has_none(start, length)
            assert not none or not touched
            assert none or touched or near or start + length > SIZE


def test_too_many_places_become_fewer_larger_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atom_map, "BLOCKS_MAX", 16)
    gatherer = atom_map.Gatherer()
    places = [number * 10_000 for number in range(100)]
    for place in places:
        gatherer.add(place, 8)
    found = gatherer.map(2 * SIZE, (), ())
    assert not any(found.has_none(place, 1) for place in places)
    assert found.has_none(SIZE + SIZE // 2, 1000)


def test_a_map_is_the_same_after_it_was_stored_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    gatherer = atom_map.Gatherer()
    gatherer.add(5000, 8)
    path = tmp_path / "atoms.npz"
    gatherer.map(SIZE, [(70_000, 512)], [b"a\0atom", b"Other\xff"], ignore_case=True).save(path)
    assert path.stat().st_mode & 0o077 == 0
    found = atom_map.AtomMap.load(path)
    assert found is not None
    ranges = [(0, 4000), (4999, 2), (69_000, 1000), (69_000, 1001), (70_512, 8), (SIZE, 1)]
    assert [found.has_none(*one) for one in ranges] == [True, False, True, False, True, False]
    for text, is_over in ((b"is A\0AtOm here", True), (b"OTHER\xff", True), (b"a atom, othe", False)):
        assert found.is_over(lambda offset, length, text=text: text[offset:][:length], 5, len(text)) == is_over, text
    assert found.is_over(lambda offset, length: b"", 5, 10), "what cannot be read may have one"
    path.write_bytes(path.read_bytes()[:-30])
    assert atom_map.AtomMap.load(path) is None
    assert atom_map.AtomMap.load(tmp_path / "nowhere") is None
    np.savez(path, size=np.array(1))
    assert atom_map.AtomMap.load(path) is None


@pytest.mark.parametrize("name", ["ext4", "fat12", "fat16", "fat32", "exfat"])
def test_the_content_of_a_file_is_what_lies_at_its_place(made: Callable[[str], Path], name: str) -> None:
    assert in_place(made(name), name) > 10


def test_the_content_of_a_file_of_ntfs_is_what_lies_at_its_place(ntfs: Path) -> None:
    assert in_place(ntfs, "ntfs") == 3


def test_resident_compressed_and_deleted_files_and_streams_of_a_real_ntfs_have_no_place(
    evidence: Callable[[str], Path], tmp_path: Path
) -> None:
    image = tmp_path / "ntfs.bin"
    image.write_bytes(zlib.decompress(evidence("ntfs.bin.gz").read_bytes(), wbits=31))
    # It has no other files.
    assert in_place(image, "ntfs") == 0


def in_place(image: Path, fs: str) -> int:
    """Compares the content of files that have a place with what lies there; returns their number."""
    worker = triage_worker.worker(image, fs)
    content = image.read_bytes()
    count = 0
    for entry in triage_worker.entries(image).values():
        file = opening.file_system(worker, 0).open_meta(inode=entry.inode)
        attribute = analysis._attribute(file, entry)
        places = stored.places(worker, entry, attribute) if attribute is not None else []
        if not places:
            continue
        count += 1
        own = triage_worker.icat(image, entry)
        there = b"".join(content[start : start + length] for start, length in places)[: len(own)]
        # Behind what was written of a file, The Sleuth Kit reads zeros, whatever lies there.
        written = len(own.rstrip(b"\0"))
        assert there[:written] == own[:written] and len(there) == len(own), entry.path
        assert not entry.deleted
    return count


def test_a_file_in_several_pieces_has_several_places_and_none_if_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"F{number}.BIN": noise(100_000, number) for number in range(4)}
    image = triage_worker.fat(tmp_path / "image.raw", files, delete=["F0.BIN", "F2.BIN"])
    large = tmp_path / "LARGE.BIN"
    large.write_bytes(noise(300_000, 9))
    run(program("mcopy"), "-i", image, large, "::LARGE.BIN")
    assert in_place(image, "fat16") >= 3
    assert len(places_of(image, "fat16", "/LARGE.BIN")) > 1
    monkeypatch.setattr(stored, "RUNS_MAX", 1)
    assert places_of(image, "fat16", "/LARGE.BIN") == []
    assert len(places_of(image, "fat16", "/F1.BIN")) == 1


def test_a_file_with_holes_and_a_deleted_file_have_no_place(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "whole.bin").write_bytes(noise(50_000, 1))
    (tree / "gone.bin").write_bytes(noise(50_000, 2))
    with (tree / "holes.bin").open("wb") as file:
        file.write(noise(8192, 3))
        file.seek(1 << 20)
        file.write(noise(8192, 4))
    image = tmp_path / "ext4.raw"
    run(program("mkfs.ext4"), "-q", "-F", "-d", tree, image, "8M")
    run(program("debugfs"), "-w", "-R", "rm /gone.bin", image)
    assert len(places_of(image, "ext4", "/whole.bin")) == 1
    assert places_of(image, "ext4", "/holes.bin") == []
    assert places_of(image, "ext4", "/gone.bin") == []


def places_of(image: Path, fs: str, path: str) -> list[tuple[int, int]]:
    worker = triage_worker.worker(image, fs)
    entry = triage_worker.entries(image)[path]
    attribute = analysis._attribute(opening.file_system(worker, 0).open_meta(inode=entry.inode), entry)
    return [] if attribute is None else stored.places(worker, entry, attribute)
