"""The steps with the real tools on a small image with two partitions: each has the result that an examiner expects."""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import MIB, PATIENCE_S, noise, program, run

from cheetah.bench.failure import Misuse
from cheetah.bench.storage.settings import Scope, Settings
from cheetah.bench.storage.steps import NotReached, Skipped, Step, Workplace, described, need_bytes, steps, volumes

SECTOR = 512
STARTS = (2048, 2048 + 4 * MIB // SECTOR)
DELETED = b"what the suspect has deleted " * 40
SENTENCE = "meet me behind the harbour office at nine"
PAGE = b"<html><body>" + b"".join(b"<p>paragraph %d</p>\n" % number for number in range(1500)) + b"</body></html>"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disk: an MBR, FAT in its first partition, ext4 in the second."""
    folder = tmp_path_factory.mktemp("disk")
    tree = folder / "tree"
    tree.mkdir()
    for index in range(20):
        (tree / f"note{index}.txt").write_text(f"{index}: {SENTENCE}\n" * (index + 1))
    (tree / "page.htm").write_bytes(PAGE)
    fat, ext4 = folder / "fat.raw", folder / "ext4.raw"
    run(program("mkfs.vfat"), "-C", fat, str(4 * 1024))
    run(program("mkfs.ext4"), "-q", "-b", "1024", "-d", tree, ext4, "6M")
    # Free blocks at the end of the file system.
    with ext4.open("r+b") as file:
        file.seek(5 * MIB)
        file.write(DELETED)
    disk = folder / "disk.raw"
    content = bytearray(STARTS[1] * SECTOR + 6 * MIB)
    for number, (kind, part) in enumerate(((0x0C, fat), (0x83, ext4))):
        size = part.stat().st_size
        entry = struct.pack("<BxxxBxxxII", 0, kind, STARTS[number], size // SECTOR)
        content[446 + 16 * number : 462 + 16 * number] = entry
        content[STARTS[number] * SECTOR : STARTS[number] * SECTOR + size] = part.read_bytes()
    content[510:512] = b"\x55\xaa"
    disk.write_bytes(content)
    return disk


@pytest.fixture
def place(image: Path, tmp_path: Path) -> Workplace:
    """A target with the copy of the image."""
    there = Workplace(tmp_path / "target", image)
    there.directory.mkdir()
    do(step("copy"), there)
    return there


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A target of one MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small target")
    directory = tmp_path / "small"
    directory.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=1M", "none", directory)
    yield directory
    run("umount", directory)


def chosen(*keys: str, extent: Scope = Scope.QUICK) -> list[Step]:
    """The steps of a run."""
    return steps(Settings((), "", Path("/"), steps=keys, extent=extent))


def step(key: str) -> Step:
    """One of them."""
    return next(one for one in chosen(key) if one.key == key)


def do(one: Step, place: Workplace) -> str:
    """Does a step as the harness does; returns its output. Skips if its tools are not installed."""
    for tool in one.tools:
        program(tool)
    for path in one.outputs(place):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    printed = ""
    for command in one.commands(place):
        out = command.stdout.open("wb") if command.stdout else subprocess.PIPE
        done = subprocess.run(
            command.argv, stdout=out, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False, cwd=place.directory
        )
        said = ((done.stdout or b"") + done.stderr).decode(errors="replace")
        assert done.returncode in command.good, f"{command.argv}: {done.returncode}: {said}"
        printed += said
    return printed


def left(one: Step, place: Workplace) -> list[Path]:
    """Returns the files made by a step."""
    found = [path for top in one.outputs(place) for path in (top, *top.rglob("*"))]
    return [path for path in found if path.is_file()]


def test_the_copy_equals_the_image(place: Workplace) -> None:
    """Every byte, without holes."""
    assert place.image.read_bytes() == place.source.read_bytes()
    assert place.image.stat().st_blocks * SECTOR >= place.source.stat().st_size


@pytest.mark.parametrize(("key", "algorithm"), [("md5sum", "md5"), ("sha256sum", "sha256")])
def test_digests_are_those_of_the_image(place: Workplace, key: str, algorithm: str) -> None:
    """The digest is in the target."""
    assert not step(key).failure(place, do(step(key), place))
    digest = hashlib.new(algorithm, place.source.read_bytes()).hexdigest()
    assert left(step(key), place)[0].read_text().startswith(digest)


def test_strings_have_offsets(place: Workplace) -> None:
    """The offset is decimal and correct."""
    one = step("strings")
    assert not one.failure(place, do(one, place))
    index = left(one, place)[0].read_text()
    line = next(line for line in index.splitlines() if SENTENCE in line)
    offset = int(line.split()[0])
    assert place.source.read_bytes()[offset:].startswith(line.split(maxsplit=1)[1].encode())


def test_unallocated_space_of_every_file_system_is_extracted(place: Workplace) -> None:
    """One file per partition; it has the unallocated space, and no allocated blocks."""
    one = step("unallocated")
    do(one, place)
    extracts = left(one, place)
    assert {path.name for path in extracts} == {f"unallocated-{start}.raw" for start in STARTS}
    ext4 = next(path for path in extracts if str(STARTS[1]) in path.name).read_bytes()
    assert DELETED in ext4
    assert SENTENCE.encode() not in ext4


def test_an_image_without_a_file_system_has_no_unallocated_space(tmp_path: Path) -> None:
    """It is reported, and not a failure."""
    for tool in step("unallocated").tools:
        program(tool)
    place = Workplace(tmp_path, tmp_path / "noise.raw")
    place.source.write_bytes(noise(MIB, 3))
    place.image.write_bytes(place.source.read_bytes())
    for key in ("unallocated", "tsk_recover", "sorter"):
        with pytest.raises(Skipped, match="no file system"):
            step(key).commands(place)


@pytest.mark.parametrize(("starts", "there"), [((2048, 4096, 2048), (2048, 4096)), (range(2048, 2148), ())])
def test_crafted_partition_tables_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: Sequence[int], there: Sequence[int]
) -> None:
    """Overlapping ones count once; a huge table is refused."""
    table = "".join(f"{index:03}:  000:{index:03}   {start}   9999   1   Linux\n" for index, start in enumerate(starts))
    monkeypatch.setattr(volumes, "_output_of", lambda tool, *_: table if tool == "mmls" else "ext4")
    image = tmp_path / "made-up.raw"
    image.touch()
    if there:
        assert [volume.start for volume in volumes.volumes(image)] == list(there)
    else:
        with pytest.raises(Skipped, match="the image has 100 partitions"):
            volumes.volumes(image)


@pytest.mark.parametrize("key", ["foremost", "scalpel"])
def test_carvers_find_an_html_page(place: Workplace, key: str) -> None:
    """Byte for byte, besides other things they take for a file."""
    one = step(key)
    assert not one.failure(place, do(one, place))
    assert any(path.read_bytes() == PAGE for path in left(one, place) if path.suffix == ".htm")
    # Again: neither accepts an existing directory.
    do(one, place)


def test_files_are_recovered_and_archived(place: Workplace) -> None:
    """The archive has the files of the file system."""
    do(step("tsk_recover"), place)
    tar = step("tar")
    do(tar, place)
    with tarfile.open(left(tar, place)[0]) as archive:
        found = {Path(member.name).name: member for member in archive.getmembers()}
        page = archive.extractfile(found["page.htm"])
        assert page is not None
        assert page.read() == PAGE
    assert {f"note{index}.txt" for index in range(20)} <= set(found)
    assert len(tar.inputs(place)) >= 21


def test_without_recovered_files_nothing_is_archived(place: Workplace) -> None:
    """The reason names the missing step."""
    with pytest.raises(NotReached, match="tsk_recover"):
        step("tar").commands(place)


def test_files_are_sorted(place: Workplace) -> None:
    """By type."""
    one = step("sorter")
    do(one, place)
    assert any("page.htm" in path.read_text(errors="replace") for path in left(one, place))


def test_a_targets_name_is_not_run_as_a_command(place: Workplace, tmp_path: Path) -> None:
    """`sorter` passes its arguments to a shell, and a directory may be named after a disk's label."""
    odd = Workplace(tmp_path / "a b$(touch here)`touch there`;'\"", place.source)
    odd.directory.mkdir()
    os.link(place.image, odd.image)
    one = step("sorter")
    do(one, odd)
    assert any("page.htm" in path.read_text(errors="replace") for path in left(one, odd))
    assert not any(odd.directory.rglob("*here"))


def test_a_step_brings_the_steps_it_needs() -> None:
    """The user need not know that an archive needs recovered files, and those a copy."""
    assert [one.key for one in chosen("tar")] == ["copy", "tsk_recover", "tar"]
    assert [one.key for one in chosen("fio/read/16MiB/4KiB")] == ["fio/read/16MiB/4KiB"]
    with pytest.raises(Misuse, match="there is no step 'md6sum'; a similar step exists: 'md5sum'"):
        chosen("md6sum")


@pytest.mark.parametrize("key", ["strings", "tsk_recover", "foremost", "scalpel"])
def test_a_tool_without_space_is_a_failure(image: Path, small: Path, key: str) -> None:
    """Some tools end with 0 nevertheless."""
    one = step(key)
    for tool in one.tools:
        program(tool)
    place = Workplace(small, image)
    # The image is elsewhere here; only the tool's output has to fit.
    os.symlink(image, place.image)
    (small / "fill").write_bytes(bytes(MIB - 16 * 1024))
    try:
        failed = bool(one.failure(place, do(one, place)))
    except AssertionError:
        failed = True
    assert failed


def offsets(argv: tuple[str, ...], folder: Path) -> list[int]:
    """Returns where fio reads or writes, according to its own log, however long it takes."""
    log = folder / "offsets.log"
    log.unlink(missing_ok=True)
    run(*argv, f"--write_iolog={log}", "--runtime=1h", cwd=folder)
    lines = [line.split() for line in log.read_text().splitlines()]
    return [int(words[-2]) for words in lines if len(words) >= 4 and words[-3] in ("read", "write")]


def test_access_orders_match_their_names(tmp_path: Path) -> None:
    """A backward read goes backward, and a strided read skips records."""
    program("fio")
    place = Workplace(tmp_path, tmp_path / "none")
    record = 1 << 20
    described_steps = {
        key: offsets(step(f"fio/{key}/16MiB/1MiB").commands(place)[0].argv, tmp_path)
        for key in ("read", "backward", "random-read")
    }
    strided = offsets(step("fio/strided/16MiB/4KiB").commands(place)[0].argv, tmp_path)
    assert described_steps["read"] == list(range(0, 16 * MIB, record))
    # fio begins with the first record.
    assert described_steps["backward"][1:] == sorted(described_steps["backward"][1:], reverse=True)
    assert len(set(described_steps["backward"])) >= 15
    assert sorted(described_steps["random-read"]) == described_steps["read"] != described_steps["random-read"]
    assert strided[:3] == [0, 17 * 4096, 34 * 4096]
    assert max(strided) > 15 * MIB


def test_cells_have_a_rate(tmp_path: Path) -> None:
    """Every access order; of a reread only the second pass counts."""
    program("fio")
    place = Workplace(tmp_path, tmp_path / "none")
    cells = chosen("fio")
    assert {one.key.split("/")[1] for one in cells} == {
        "write", "rewrite", "read", "reread", "random-read", "random-write", "backward", "strided",
        "cached",
    }  # fmt: skip
    for one in cells:
        if not one.key.endswith("/16MiB/1MiB"):
            continue
        printed = do(one, place)
        jobs = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["jobs"]
        rate = one.rate(printed)
        assert rate is not None
        # fio's own figure is in whole milliseconds.
        side = jobs[-1]["read"] if jobs[-1]["read"]["total_ios"] else jobs[-1]["write"]
        assert side["io_bytes"] / (side["runtime"] + 1) * 1000 <= rate * 1.01
        assert len(jobs) == (2 if "/reread/" in one.key or "/cached/" in one.key else 1)
    assert step("fio/read/16MiB/4KiB").rate("fio: it could not") is None


def test_the_full_matrix_has_all_cells() -> None:
    """From 64 KiB to 4 GiB, in records from 4 KiB to 16 MiB, none of them larger than its file."""
    keys = [one.key for one in chosen("fio", extent=Scope.FULL)]
    assert "fio/write/64KiB/4KiB" in keys
    assert "fio/random-read/4GiB/16MiB" in keys
    assert "fio/read/64KiB/256KiB" not in keys
    assert len(keys) == len(set(keys))


def test_versions_and_space_are_described() -> None:
    """For the report, and before anything is written."""
    described_steps = {row["key"]: row for row in described(chosen("copy", "md5sum"))}
    assert "coreutils" in described_steps["md5sum"]["version"] or described_steps["md5sum"]["version"]
    settings = Settings((), "", Path("/"), steps=("md5sum",), extent=Scope.QUICK)
    assert need_bytes(settings, 100 * MIB) >= 200 * MIB
