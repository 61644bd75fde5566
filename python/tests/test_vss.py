"""Shadow copies of NTFS volumes: read as libvshadow reads them, and triaged."""

import dataclasses
import os
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from conftest import MIB, noise, program, run
from triage_workers import Alone

import cheetah
from cheetah.triage.cli import parse
from cheetah.triage.hub import run as hub
from cheetah.triage.hub.closing import DONE
from cheetah.triage.hub.run import Run
from cheetah.triage.settings import Settings

pyvshadow = pytest.importorskip("pyvshadow")

BLOCK = 16 << 10
IDENTIFIER = bytes.fromhex("6b87083876c1484eb7ae04046e6cc752")
CATALOG, LIST, STORE, RANGES, BITMAP = 2, 3, 4, 5, 6
FORWARDER, OVERLAY, NOT_USED = 1, 2, 4
CREATED, LATER = 132_999_104_000_000_000, 36_000_000_000


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, in this process."""
    monkeypatch.setattr(hub, "_start_workers", lambda uri, settings: Alone(uri, settings))


@dataclasses.dataclass
class Store:
    """What the store of a shadow copy says: descriptors of (original, relative, kept, flags, sectors), and its bitmaps."""

    descriptors: list[tuple[int, int, int, int, int]] = dataclasses.field(default_factory=list)
    unused: bytes = b""
    previous: bytes | None = None


def write(volume: bytearray, stores: Sequence[Store], area: Iterator[int]) -> None:
    """Writes shadow copies, the oldest first, into a volume, with their structures in free blocks: offsets of `area`."""
    catalog = next(area)
    entries = b""
    for number, store in enumerate(stores, 1):
        header = _block(volume, STORE, next(area), _information(number))
        lists = [store.descriptors[start : start + 9] for start in range(0, len(store.descriptors), 9)] or [[]]
        places = [next(area) for _ in lists]
        for at, after, descriptors in zip(places, [*places[1:], 0], lists, strict=True):
            _block(volume, LIST, at, b"".join(struct.pack("<QQQII", *one) for one in descriptors), after)
        ranges = _block(volume, RANGES, next(area))
        bitmap = _block(volume, BITMAP, next(area), store.unused)
        previous = 0 if store.previous is None else _block(volume, BITMAP, next(area), store.previous)
        guid = bytes([number]) * 16
        created = CREATED + LATER * number
        entries += struct.pack("<QQ16sQQQ72x", 2, len(volume), guid, number, 0x40, created)
        entries += struct.pack("<QQ16sQQQQQQ48x", 3, places[0], guid, header, ranges, bitmap, 0, 0, previous)
    _block(volume, CATALOG, catalog, entries)
    # The header of the volume.
    volume[0x1E00:0x1E80] = struct.pack("<16sIIQQQQ72x", IDENTIFIER, 1, 1, 0x1E00, 0x1E00, 0, catalog)


def _block(volume: bytearray, kind: int, at: int, content: bytes = b"", after: int = 0) -> int:
    header = struct.pack("<16sIIQQQQ72x", IDENTIFIER, 1, kind, 0, at, after, 0)
    volume[at : at + BLOCK] = (header + content).ljust(BLOCK, b"\0")
    return at


def _information(number: int) -> bytes:
    machine = "LAB".encode("utf-16-le")
    said = struct.pack("<H", len(machine)) + machine
    return bytes(16) + bytes([number | 0x80]) * 16 + bytes(16) + struct.pack("<IIII", 9, 1, 0x420009, 0) + said * 2


def anything(seed: int) -> bytearray:
    """A volume whose stores say anything that is allowed."""
    chance = random.Random(seed)
    data_blocks, blocks = 40, 160
    volume = bytearray(noise(blocks * BLOCK, seed))
    volume[:512] = volume[-512:] = _boot_sector(len(volume))
    stores = []
    for _ in range(chance.randrange(1, 5)):
        unused = bytearray(chance.randbytes(blocks // 8))
        # The first block, with the boot sector, is in use.
        unused[0] &= 0xFE
        store = Store(unused=bytes(unused), previous=chance.choice((None, chance.randbytes(blocks // 8))))
        moved: set[int] = set()
        for _ in range(chance.randrange(40)):
            original, other = (chance.randrange(1, data_blocks) * BLOCK for _ in range(2))
            kept = chance.randrange(data_blocks, 100) * BLOCK
            flags = chance.choice((0, 0x88, 0x88, OVERLAY, OVERLAY, NOT_USED, FORWARDER))
            # What was moved back is an error here.
            if flags == FORWARDER and not moved & {original, other}:
                moved |= {original, other}
                store.descriptors.append((original, other, 0, flags, 0))
            elif flags != FORWARDER:
                store.descriptors.append((original, 0, kept, flags, chance.getrandbits(32)))
        stores.append(store)
    write(volume, stores, iter(range(100 * BLOCK, (blocks - 1) * BLOCK, BLOCK)))
    return volume


def _boot_sector(size: int) -> bytes:
    """The boot sector of an NTFS volume. Its copy is the last sector."""
    sizes = struct.pack("<HB26xQQQII", 512, 8, size // 512 - 1, 4, 2, 0xF6, 0xF6)
    return (b"\xeb\x52\x90NTFS    " + sizes[:10] + b"\xf8" + sizes[11:]).ljust(510, b"\0") + b"\x55\xaa"


@pytest.mark.parametrize("seed", range(12))
def test_any_shadow_copy_reads_as_libvshadow_reads_it(seed: int, tmp_path: Path) -> None:
    image = tmp_path / "volume.raw"
    image.write_bytes(anything(seed))
    compare(image, lambda size: range(0, size, BLOCK))


def compare(image: Path, offsets: Callable[[int], Sequence[int]]) -> None:
    """Compares the blocks at some offsets of all shadow copies with those of libvshadow."""
    theirs = pyvshadow.volume()
    theirs.open(str(image))
    try:
        with cheetah.open(image, shadow_copies="all") as device:
            listed = device.logical["shadow_copies"]
            shown = {one["label"]: one for one in device.logical["volumes"]}
            assert not device.logical["not_opened"]
            assert len(listed) == theirs.number_of_stores
            for number, one in enumerate(listed):
                store = theirs.get_store(number)
                assert one["label"] == f"vss{number + 1}"
                assert one["is_shown"]
                assert (one["id"], one["store_id"]) == (store.copy_identifier, store.identifier)
                assert one["size_bytes"] == store.volume_size
                assert one["created"].startswith(store.creation_time.strftime("%Y-%m-%dT%H:%M:%S"))
                place = shown[one["label"]]["offset"]
                for offset in offsets(store.volume_size):
                    length = min(BLOCK, store.volume_size - offset)
                    expected = store.read_buffer_at_offset(length, offset)
                    assert device.pread(place + offset, length) == expected, (number, offset)
    finally:
        theirs.close()


def test_shadow_copies_of_windows_read_as_libvshadow_reads_them(
    evidence: Callable[[str], Path], tmp_path: Path
) -> None:
    image = tmp_path / "volume.raw"
    run(program("qemu-img"), "convert", "-O", "raw", evidence("vsstest.qcow2"), image)
    compare(image, lambda size: [*range(0, size, 64 * BLOCK), *range(0x14700000, 0x14780000, BLOCK)])


@dataclasses.dataclass
class Changed:
    """An NTFS volume that was changed since its shadow copy was made."""

    path: Path
    before: bytes


@pytest.fixture
def changed(tmp_path: Path) -> Changed:
    """An NTFS volume with a file, which its shadow copy has with another content, beside one that is gone."""
    path, content = tmp_path / "volume.raw", tmp_path / "content"
    path.write_bytes(bytes(16 * MIB))
    run(program("mkntfs"), "-F", "-Q", "-q", "-c", "4096", path)
    content.write_bytes(b"as it was\n" * 900)
    run(program("ntfscp"), "-f", path, content, "/report.txt")
    before = path.read_bytes()
    content.write_bytes(b"as it is now\n" * 900)
    run(program("ntfscp"), "-f", path, content, "/report.txt")
    run(program("ntfscp"), "-f", path, content, "/new.txt")
    volume = bytearray(path.read_bytes())
    offsets = range(0, len(volume) - BLOCK, BLOCK)
    is_free = {at: not any(volume[at : at + BLOCK]) and not any(before[at : at + BLOCK]) for at in offsets}
    area = (at for at in reversed(offsets) if is_free[at])
    store = Store(unused=bytes(len(volume) // BLOCK // 8))
    for at in offsets:
        if volume[at : at + BLOCK] != before[at : at + BLOCK]:
            kept = next(area)
            volume[kept : kept + BLOCK] = before[at : at + BLOCK]
            store.descriptors.append((at, 0, kept, 0x88, 0))
    write(volume, [store], area)
    path.write_bytes(volume)
    # The shadow copy has the header of VSS, and what free space holds now, without the blocks that are kept there.
    as_it_was = bytearray(volume)
    for at in offsets:
        if not is_free[at]:
            as_it_was[at : at + BLOCK] = before[at : at + BLOCK]
    for _, _, kept, _, _ in store.descriptors:
        as_it_was[kept : kept + BLOCK] = bytes(BLOCK)
    if all(original > 0 for original, *_ in store.descriptors):
        as_it_was[0x1E00:0x1E80] = volume[0x1E00:0x1E80]
    return Changed(path, bytes(as_it_was))


def triaged(image: Path, out: Path, *copies: str) -> tuple[int, dict]:
    """The exit code and the summary of a triage."""
    settings = Settings(str(image), str(out), shadow_copies=copies)
    code, summary = Run(settings, lambda event: None, ("cheetah", "triage")).go()
    return code, summary


def test_a_shadow_copy_is_read_if_it_is_named_and_listed_otherwise(changed: Changed) -> None:
    with cheetah.open(changed.path) as device:
        assert not device.logical["volumes"]
        (copy,) = device.logical["shadow_copies"]
        assert (copy["label"], copy["is_shown"], copy["machine"]) == ("vss1", False, "LAB")
    with cheetah.open(changed.path, shadow_copies="vss1") as device:
        (volume,) = device.logical["volumes"]
        assert (volume["kind"], volume["label"]) == ("vss", "vss1")
        assert device.size == changed.path.stat().st_size <= volume["offset"]
        assert device.pread(volume["offset"], volume["size_bytes"]) == changed.before
    with cheetah.share(changed.path, shadow_copies=("vss1",)) as share, cheetah.open(share.uri) as reader:
        assert share.logical["shadow_copies"][0]["is_shown"]
        assert reader.pread(volume["offset"], volume["size_bytes"]) == changed.before
    with pytest.raises(cheetah.Error, match=r"no shadow copy is called vss2; it has vss1"):
        cheetah.open(changed.path, shadow_copies=["vss2"])


def test_files_in_a_shadow_copy_are_listed_if_it_is_named(changed: Changed, tmp_path: Path) -> None:
    code, summary = triaged(changed.path, tmp_path / "plain")
    assert code == DONE, summary["problems"]
    assert [one["fs"] for one in summary["volumes"]] == ["ntfs"]
    (said,) = [one["sentence"] for one in summary["problems"] if "shadow copy" in one["sentence"]]
    assert said.startswith("vss1 is a shadow copy of 2022-")
    assert "--shadow-copy vss1" in said
    assert summary["source"]["logical"]["shadow_copies"][0]["label"] == "vss1"

    code, summary = triaged(changed.path, tmp_path / "copy", "vss1")
    assert code == DONE, summary["problems"]
    assert [one["fs"] for one in summary["volumes"]] == ["ntfs", "ntfs"]
    described = sorted(one["description"] for one in summary["volumes"])
    assert described[0].startswith("shadow copy of 2022-")
    assert described[1].startswith("the whole source")
    assert "partition table" not in described[1]
    assert not [one for one in summary["problems"] if "not listed" in one["sentence"]]
    listed = (tmp_path / "copy/bodyfile.txt").read_text(errors="replace").splitlines()
    plain = (tmp_path / "plain/bodyfile.txt").read_text(errors="replace").splitlines()
    assert sum("/new.txt|" in line for line in listed) == sum("/new.txt|" in line for line in plain)
    assert sum("/report.txt|" in line for line in listed) == 2 * sum("/report.txt|" in line for line in plain)
    page = (tmp_path / "copy/report.html").read_text()
    assert "--shadow-copy LABEL" in page


def test_shadow_copies_are_not_read_by_a_cluster(tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(os.urandom(512))
    words = [str(image), "--out", str(tmp_path / "out"), "--shadow-copy", "all"]
    assert parse(words).shadow_copies == ("all",)
    with pytest.raises(SystemExit) as ended:
        parse([*words, "--scheduler", "tcp://127.0.0.1:1"])
    assert ended.value.code == 2
