"""Where files lie: each byte of a listed run is the byte that The Sleuth Kit reads at that offset of the file."""

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytsk3
from conftest import noise, program, run
from places_heard import Heard, heard
from triage_images import MADE, ExFat, made  # noqa: F401
from triage_worker import Raw, worker

from cheetah.places import files as places_files
from cheetah.places import listing, ntfs_records
from cheetah.places.pipe import Pipe
from cheetah.triage.task import Volume


@pytest.mark.parametrize("name", sorted(MADE))
def test_each_byte_of_a_run_is_that_of_the_file(made: Callable[[str], Path], name: str) -> None:  # noqa: F811
    image = made(name)
    said = heard(image, name)
    assert said.problems == []
    disk = image.read_bytes()
    system = pytsk3.FS_Info(pytsk3.Img_Info(str(image)))
    compared = 0
    for one in said.files:
        if one["deleted"] or one["metadata"] or not one["mapped"]:
            continue
        path, _, stream = one["path"].partition(":") if name == "ntfs" else (one["path"], "", "")
        # Characters that a listing replaces.
        if "^" in path or "\\" in path:
            continue
        file = system.open(path)
        wanted = stream.encode() or None
        attributes = [attribute for attribute in file if int(attribute.info.type) in (1, 128)]
        own = next(attribute for attribute in attributes if name != "ntfs" or (attribute.info.name or None) == wanted)
        content = b""
        if own.info.size:
            content = file.read_random(0, own.info.size, own.info.type, own.info.id)
        covered = 0
        for at, place, length in one["runs"]:
            length = min(length, one["valid"] - at)
            if length > 0:
                assert disk[place : place + length] == content[at : at + length], (one, at)
                covered += length
                compared += length
        # The targets of short links lie in inodes.
        assert covered == one["valid"] or one["path"] in ("/link", "/dangling"), one
    assert compared > 100_000


@pytest.mark.parametrize("name", sorted(MADE))
def test_free_clusters_hold_no_file(made: Callable[[str], Path], name: str) -> None:  # noqa: F811
    image = made(name)
    said = heard(image, name)
    (clusters,) = [message["clusters"] for message in said.messages if "clusters" in message]
    free = [tuple(one) for message in said.messages if "free" in message for one in message["free"]]
    assert free and all(clusters[0] <= at and at + length <= sum(clusters) for at, length in free)
    for one in said.files:
        if not one["deleted"]:
            for _, place, length in one["runs"]:
                assert not any(at < place + length and place < at + many for at, many in free), one


def test_hard_links_are_one_file_with_more_names(made: Callable[[str], Path]) -> None:  # noqa: F811
    said = heard(made("ext4"), "ext4")
    linked = [one for one in said.files if one["path"] in ("/hard", "/d0/plain.txt")]
    assert [one["names"] for one in linked] == [2]


def test_resident_content_over_the_end_of_a_sector_lies_in_the_update_sequence_array(tmp_path: Path) -> None:
    image, content = tmp_path / "ntfs.raw", noise(600, 7)
    with image.open("wb") as file:
        file.truncate(4 << 20)
    run(program("mkntfs"), "-F", "-Q", "-q", image)
    (tmp_path / "small").write_bytes(content)
    run(program("ntfscp"), "-f", "-q", image, tmp_path / "small", "small")
    one = heard(image, "ntfs").of("/small")
    assert one["resident"] and len(one["runs"]) > 1
    disk = image.read_bytes()
    assert b"".join(disk[place : place + length] for _, place, length in one["runs"]) == content
    assert content not in disk, "two bytes of it are elsewhere"


def test_files_of_ntfs_whose_record_is_not_found_make_a_listing_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "ntfs.raw"
    with image.open("wb") as file:
        file.truncate(4 << 20)
    run(program("mkntfs"), "-F", "-Q", "-q", image)
    for name, size in (("small", 100), ("large", 10_000)):
        (tmp_path / name).write_bytes(noise(size, 1))
        run(program("ntfscp"), "-f", "-q", image, tmp_path / name, name)
    assert heard(image, "ntfs").problems == []
    # Its pieces may lie apart.
    monkeypatch.setattr(ntfs_records.Records, "record", lambda *_: None)
    paths = [problem.partition(":")[0] for problem in heard(image, "ntfs").problems]
    assert {"/small", "/large"} <= set(paths)


def test_streams_of_the_mft_have_paths_of_their_own(tmp_path: Path) -> None:
    image = tmp_path / "ntfs.raw"
    with image.open("wb") as file:
        file.truncate(4 << 20)
    run(program("mkntfs"), "-F", "-Q", "-q", image)
    said = heard(image, "ntfs")
    assert said.of("/$MFT")["metadata"] and said.of("/$MFT:$BITMAP")["metadata"]


def test_the_indexes_of_a_real_ntfs_are_told_apart(evidence: Callable[[str], Path], tmp_path: Path) -> None:
    image = tmp_path / "ntfs.bin"
    image.write_bytes(zlib.decompress(evidence("ntfs.bin.gz").read_bytes(), wbits=31))
    said = heard(image, "ntfs")
    assert said.of("/$Secure:$SDH:$INDEX_ALLOCATION")["runs"] and said.of("/$Secure:$SII:$INDEX_ALLOCATION")["runs"]
    assert said.of("/Large Directory:$INDEX_ALLOCATION")["runs"]


def test_streams_in_records_beside_that_of_the_file_have_their_places(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("needs root and FUSE, to fill an NTFS volume")
    image, mount = tmp_path / "ntfs.raw", tmp_path / "mnt"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    mount.mkdir()
    run(program("mkntfs"), "-F", "-Q", "-q", image)
    run(program("ntfs-3g"), "-o", "streams_interface=windows", image, mount)
    streams = {f"stream{number:02}": noise(40, number) for number in range(60)}
    try:
        (mount / "file").write_bytes(noise(5000, 99))
        (mount / "other").write_bytes(b"")
        (mount / "other:a\tname").write_bytes(noise(30, 98))
        for name, content in streams.items():
            (mount / f"file:{name}").write_bytes(content)
    finally:
        run("umount", mount)
    said, disk = heard(image, "ntfs"), image.read_bytes()
    assert said.of("/file:$ATTRIBUTE_LIST")["metadata"] and said.of("/file")["valid"] == 5000
    (other,) = [one for one in said.files if one["path"].startswith("/other:")]
    assert b"".join(disk[place : place + length] for _, place, length in other["runs"]) == noise(30, 98)
    # All are of one size, and The Sleuth Kit numbers them otherwise than their records do.
    for name, content in streams.items():
        runs = said.of(f"/file:{name}")["runs"]
        assert b"".join(disk[place : place + length] for _, place, length in runs) == content, name


def test_runs_at_offsets_that_no_file_has_are_left_out(made: Callable[[str], Path]) -> None:  # noqa: F811
    image = made("ext4")
    one = worker(image, "ext4")
    system = pytsk3.FS_Info(pytsk3.Img_Info(str(image)))
    files = places_files.Files(one, one.volumes[0], system, Heard(), lambda sentence: None)
    block = int(system.info.block_size)
    runs = [SimpleNamespace(flags=0, offset=at, addr=2, len=1) for at in (0, (1 << 63) // block - 1, 1 << 60, 7)]
    assert list(files._runs(runs)) == [(0, 2 * block, block), (7 * block, 2 * block, block)]


def test_an_attribute_list_that_is_hostile_names_no_record_and_ends() -> None:
    name = "ab".encode("utf-16-le")
    entry = struct.pack("<IHBBQQH", 128, 30, 2, 26, 0, 7 << 48 | 42, 3) + name
    later = struct.pack("<IHBBQQH", 128, 30, 2, 26, 9, 43, 3) + name
    assert ntfs_records.listed(later + entry) == {(128, "ab"): 42}
    for content in (bytes(26), entry[:20], bytes(4) + b"\x01\0" + bytes(50), noise(300, 1)):
        assert (128, "ab") not in ntfs_records.listed(content)


def test_a_file_whose_record_is_damaged_makes_a_listing_partial(tmp_path: Path) -> None:
    image, tree = tmp_path / "ext4.raw", tmp_path / "tree"
    tree.mkdir()
    for name in ("damaged", "sound"):
        (tree / name).write_bytes(noise(20_000, 1))
    run(program("mkfs.ext4"), "-q", "-F", "-d", tree, image, "8M")
    run(program("debugfs"), "-w", "-R", "set_inode_field /damaged block[0] 0", image)
    said = heard(image, "ext4")
    assert [problem.partition(":")[0] for problem in said.problems] == ["/damaged"]
    assert said.of("/sound")["runs"] and not any(one["path"] == "/damaged" for one in said.files)


def test_a_record_that_is_hostile_raises_nothing_and_has_no_run_beyond_itself() -> None:
    boot = bytearray(512)
    boot[11:13], boot[13], boot[64] = struct.pack("<H", 512), 1, 256 - 10
    for seed in range(300):
        raw = bytearray(noise(1024, seed))
        raw[:4], raw[4:8] = b"FILE", struct.pack("<HH", 48, 3 if seed % 2 else 65535)
        raw[20:22] = struct.pack("<H", 56)
        raw[56:64] = struct.pack("<II", 128, 512)
        raw[64] = seed % 2
        whole = bytes(boot) + bytes(raw)

        def read(offset: int, length: int, whole: bytes = whole) -> bytes:
            return whole[offset : offset + length]

        records = ntfs_records.Records(read, [(0, 512, 1024)])
        assert records.record(1) is None
        found = records.record(0)
        assert found is not None
        place, content = found
        for one in ntfs_records.mft_record.attributes(content):
            if one.resident:
                for _, at, length in ntfs_records.resident_runs(place, content, one):
                    assert 512 <= at and at + length <= len(whole)


def test_an_hfs_plus_in_a_wrapper_begins_where_the_wrapper_says() -> None:
    block = bytearray(162)
    block[:2], block[124:126] = b"BD", b"H+"
    struct.pack_into(">I", block, 20, 4096)
    struct.pack_into(">H", block, 28, 16)
    struct.pack_into(">H", block, 126, 3)
    embedded = places_files._embedded
    assert embedded(lambda at, length: bytes(block), "hfs") == 16 * 512 + 3 * 4096
    assert embedded(lambda at, length: bytes(block), "ntfs") == 0
    assert embedded(lambda at, length: b"H+" + bytes(160), "hfs") == 0


def test_an_hfs_plus_has_files_of_its_own_and_those_of_others_alone_and_in_a_wrapper(tmp_path: Path) -> None:
    tree, image = tmp_path / "tree", tmp_path / "disc.iso"
    tree.mkdir()
    (tree / "letter").write_bytes(noise(20_000, 1))
    run(program("xorriso"), "-as", "mkisofs", "-quiet", "-hfsplus", "-o", image, tree)
    disc = image.read_bytes()
    header = next(at for at in range(0, len(disc), 512) if disc[at : at + 2] in (b"H+", b"HX"))
    block, count = struct.unpack_from(">II", disc, header + 40)
    alone = disc[header - 1024 :][: block * count]
    alone += bytes(block * count - len(alone))
    wrapped = bytearray(8192) + alone
    wrapped[1024:1026], wrapped[1024 + 124 : 1024 + 126] = b"BD", b"H+"
    struct.pack_into(">I", wrapped, 1024 + 20, 4096)
    struct.pack_into(">H", wrapped, 1024 + 28, 8)
    struct.pack_into(">HH", wrapped, 1024 + 126, 1, len(alone) // 4096)
    for name, whole in (("alone.raw", alone), ("wrapped.raw", bytes(wrapped))):
        (tmp_path / name).write_bytes(whole)
        said = heard(tmp_path / name, "hfs")
        assert said.of("/$CatalogFile")["metadata"] and not said.of("/letter")["metadata"]
        runs = said.of("/letter")["runs"]
        assert b"".join(whole[at : at + length] for _, at, length in runs)[:20_000] == noise(20_000, 1)


def test_a_file_of_exfat_whose_valid_length_is_not_found_makes_a_listing_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = ExFat(tmp_path / "exfat.raw")
    image = volume.write(volume.file("letter", noise(5000, 1)) + volume.file("gone", noise(5000, 2), deleted=True))
    assert heard(image, "exfat").problems == []
    monkeypatch.setattr(places_files.distrust, "valid_length", lambda *_: None)
    # Of a deleted one, it is often not known.
    assert [problem.partition(":")[0] for problem in heard(image, "exfat").problems if "$" not in problem] == [
        "/letter"
    ]


def test_a_further_extent_of_a_file_of_iso_9660_has_no_offset_in_the_file(tmp_path: Path) -> None:
    tree, image = tmp_path / "tree", tmp_path / "disc.iso"
    tree.mkdir()
    for number, name in enumerate("ABC"):
        (tree / name).write_bytes(noise(4096, number))
    run(program("xorriso"), "-as", "mkisofs", "-quiet", "-o", image, tree)
    disc = bytearray(image.read_bytes())
    first, second = disc.index(b"A.;1"), disc.index(b"B.;1")
    # The record of the first extent says that another one follows.
    disc[first - 8], disc[second] = 0x80, ord("A")
    image.write_bytes(disc)
    said = [one for one in heard(image, "iso9660").files if one["path"] in ("/A", "/B", "/C")]
    assert [(one["path"], one["mapped"]) for one in said] == [("/A", True), ("/A", False), ("/C", True)]


def test_the_bitmap_of_exfat_is_its_own_and_a_file_with_its_name_a_users(tmp_path: Path) -> None:
    volume = ExFat(tmp_path / "exfat.raw")
    image = volume.write(volume.file("$ALLOC_BITMAP", noise(5000, 1)))
    said = [one for one in heard(image, "exfat").files if one["path"] in ("/$ALLOC_BITMAP", "/$UPCASE_TABLE")]
    assert sorted((one["valid"], one["metadata"]) for one in said) == [(256, True), (500, True), (5000, False)]


def test_unreadable_metadata_makes_a_listing_partial(made: Callable[[str], Path]) -> None:  # noqa: F811
    image = made("ext4")
    said = heard(image, "ext4", Raw(image, (64 << 10, 1 << 20)))
    assert said.problems


def test_a_pipe_reads_in_pieces_and_reports_what_cannot_be_read() -> None:
    answers = struct.pack("<BI", 0, 4) + b"abcd" + struct.pack("<BI", 1, 10) + b"bad sector"
    messages = io.BytesIO()
    pipe = Pipe(io.BytesIO(answers), messages, 10, None)
    assert pipe.pread(6, 100) == b"abcd"
    with pytest.raises(OSError, match="bad sector"):
        pipe.pread(0, 4)
    assert pipe.pread(10, 4) == b""
    said = [json.loads(line) for line in messages.getvalue().splitlines()]
    assert said == [{"read": [6, 4]}, {"read": [0, 4]}]


def test_a_sentence_with_bytes_that_are_no_text_is_understood_and_not_endless() -> None:
    assert listing.said("name \udcff: bad") == "name ?: bad"
    assert len(listing.said("x" * 5000)) == 1000


def test_a_volume_whose_blocks_have_headers_names_no_file(made: Callable[[str], Path]) -> None:  # noqa: F811
    image = made("ext4")
    one = worker(image, "ext4")
    one.volumes = (Volume(**{**vars(one.volumes[0]), "fs": "ext4"}),)
    said = Heard()
    system = pytsk3.FS_Info(pytsk3.Img_Info(str(image)))

    class Raw2352:
        info = type("Info", (), {"block_size": 2048, "block_pre_size": 16, "block_post_size": 288, "block_count": 1})

    assert int(system.info.block_pre_size) == 0
    with pytest.raises(OSError, match="do not follow each other"):
        places_files.Files(one, one.volumes[0], Raw2352(), said, lambda sentence: None)


def order_of(size: int, first: int = 0, logical: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """What the process is told at first."""
    return {
        "first": first,
        "logical": {"volumes": list(logical), "not_opened": []},
        "locked": [],
        "near": True,
        "sector_size": None,
        "size": size,
        "unlocked": None,
    }


def answered(image: Path, first: int = 0, logical: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """What the process says that lists the files of an image, whose reads are answered here."""
    disk = image.read_bytes()
    order = order_of(len(disk), first, logical)
    said = []
    command = [sys.executable, "-P", "-m", "cheetah.places"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        for line in process.stdout:
            message = json.loads(line)
            if "read" in message:
                at, length = message["read"]
                process.stdin.write(struct.pack("<BI", 0, length) + disk[at : at + length])
                process.stdin.flush()
            else:
                said.append(message)
    assert process.returncode == 0
    return said


@pytest.mark.parametrize("which", ["stdin", "stdout"])
def test_the_process_ends_at_once_if_nobody_answers_or_listens(made: Callable[[str], Path], which: str) -> None:  # noqa: F811
    disk = made("ext4").read_bytes()
    order = json.dumps(order_of(len(disk))).encode() + b"\n"
    command = [sys.executable, "-P", "-m", "cheetah.places"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        if which == "stdout":
            process.stdout.close()
        process.stdin.write(order)
        process.stdin.flush()
        if which == "stdin":
            assert b"read" in process.stdout.readline()
            process.stdin.close()
        assert process.wait() == 1
        # It does not go on with a source of which nothing can be read.
        assert process.stderr.read() == b""


def test_the_process_lists_each_volume_between_its_begin_and_its_end(made: Callable[[str], Path]) -> None:  # noqa: F811
    said = answered(made("ext4"))
    kinds = [next(iter(message)) for message in said]
    assert kinds[:2] == ["volume", "begin"] and kinds[-2:] == ["done", "end"]
    assert said[0]["volume"]["fs"] == "ext4" and said[-2]["done"]["problems"] == []
    assert "/d0/plain.txt" in [message["file"]["path"] for message in said if "file" in message]


def test_a_file_system_that_is_not_opened_is_told_with_its_volume(tmp_path: Path) -> None:
    image = tmp_path / "ntfs.raw"
    with image.open("wb") as file:
        file.truncate(4 << 20)
    run(program("mkntfs"), "-F", "-Q", "-q", image)
    with image.open("r+b") as file:
        file.seek(512)
        file.write(bytes((4 << 20) - 1024))
    volume, end = answered(image)
    assert volume["volume"]["fs"] == "" and "NTFS" in volume["volume"]["problems"][0]
    assert end == {"end": True}


def test_a_volume_in_several_pieces_is_told_and_not_listed(made: Callable[[str], Path]) -> None:  # noqa: F811
    image = made("ext4")
    volume = {"label": "vg-root", "offset": image.stat().st_size, "size_bytes": 1 << 20, "description": "LVM2 vg/root"}
    used = {**volume, "label": "md0", "is_used": True}
    problems, *rest = answered(image, logical=(volume, used))
    assert ["LVM2 vg/root" in sentence for sentence in problems["problems"]] == [True]
    assert [next(iter(message)) for message in rest][:2] == ["volume", "begin"]


def test_a_volume_before_the_first_one_that_is_asked_for_is_named_and_not_listed(
    made: Callable[[str], Path],  # noqa: F811
) -> None:
    assert [next(iter(message)) for message in answered(made("ext4"), first=1)] == ["volume", "end"]


def test_a_sparse_file_has_runs_around_its_holes(tmp_path: Path) -> None:
    image, tree = tmp_path / "ext4.raw", tmp_path / "tree"
    tree.mkdir()
    with (tree / "sparse").open("wb") as file:
        file.write(b"first")
        file.seek(1 << 20)
        file.write(b"second")
    run(program("mkfs.ext4"), "-q", "-F", "-d", tree, image, "8M")
    one, disk = heard(image, "ext4").of("/sparse"), image.read_bytes()
    assert one["mapped"] and [at for at, _, _ in one["runs"]] == [0, 1 << 20]
    assert [disk[place : place + 5] for _, place, _ in one["runs"]] == [b"first", b"secon"]


def test_a_compressed_file_of_ntfs_has_no_offsets(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("needs root and FUSE, to fill an NTFS volume")
    image, mount = tmp_path / "ntfs.raw", tmp_path / "mnt"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    mount.mkdir()
    run(program("mkntfs"), "-F", "-Q", "-q", "-c", "4096", image)
    run(program("ntfs-3g"), "-o", "compression", image, mount)
    try:
        (mount / "packed").mkdir()
        os.setxattr(mount / "packed", "system.ntfs_attrib_be", (0x800).to_bytes(4, "big"))
        (mount / "packed/text").write_bytes(b"the same again and again " * 10_000)
        (mount / "plain").write_bytes(b"the same again and again " * 10_000)
    finally:
        run("umount", mount)
    said = heard(image, "ntfs")
    assert said.problems == []
    assert not said.of("/packed/text")["mapped"] and said.of("/plain")["mapped"]
