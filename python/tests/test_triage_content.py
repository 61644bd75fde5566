"""The analysis of files' content, compared with icat and hashlib."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yara_x
from conftest import MIB, noise, program, run
from triage_worker import Raw, entries, fat, icat, worker

from cheetah.triage.content import analysis, unallocated
from cheetah.triage.reading import salvage
from cheetah.triage.settings import Settings
from cheetah.triage.task import Entry, Result

JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0" + noise(50_000, 1)


def rows(result: Result) -> dict[int, dict[str, Any]]:
    assert result.rows is not None
    return {row["row"]: row for row in result.rows.to_pylist()}


def test_hashes_are_those_of_icat_and_rows_come_in_the_order_of_the_batch(ntfs: Path, ext4: Path) -> None:
    for image, fs in ((ntfs, "ntfs"), (ext4, "ext4")):
        batch = [one for one in entries(image).values() if "$BadClus" not in one.path]
        result = analysis.analyse(worker(image, fs), batch)
        assert result.rows is not None and result.rows.column("row").to_pylist() == [one.row for one in batch]
        assert not result.problems
        found = rows(result)
        for entry in batch:
            row, data = found[entry.row], icat(image, entry)
            assert (row["read_state"], row["bytes_read"]) == ("whole", len(data)), entry.path
            for name in ("md5", "sha1", "sha256"):
                assert row[name] == hashlib.new(name, data).hexdigest(), entry.path
        assert result.bytes_read == sum(row["bytes_read"] for row in found.values())


def test_every_file_of_a_real_ntfs_volume_has_the_hash_that_icat_gives(
    evidence: Callable[[str], Path], tmp_path: Path
) -> None:
    image = tmp_path / "volume.raw"
    run(program("qemu-img"), "convert", "-O", "raw", evidence("windows_volume.qcow2"), image)
    if not run(program("fls"), image):
        pytest.skip("needs an image with one file system")
    batch = [one for one in entries(image).values() if "$BadClus" not in one.path]
    for row in rows(analysis.analyse(worker(image, "ntfs"), batch)).values():
        entry = next(one for one in batch if one.row == row["row"])
        if row["sha256"] is not None:
            assert row["sha256"] == hashlib.sha256(icat(image, entry)).hexdigest(), entry.path
        else:
            assert row["read_state"] != "whole" and row["why"]


def test_an_alternate_data_stream_is_read_separately(tmp_path: Path) -> None:
    image = tmp_path / "ads.raw"
    with image.open("wb") as file:
        file.truncate(4 * MIB)
    run(program("mkntfs"), "-F", "-Q", "-q", image)
    (tmp_path / "host.txt").write_bytes(b"nothing to see here\n")
    (tmp_path / "hidden.exe").write_bytes(b"MZ" + bytes(58) + b"\x40\0\0\0" + b"PE\0\0" + noise(3000, 3))
    run(program("ntfscp"), "-f", "-q", image, tmp_path / "host.txt", "host.txt")
    run(program("ntfscp"), "-f", "-q", "-N", "payload", image, tmp_path / "hidden.exe", "host.txt")
    found = entries(image)
    batch = [found["/host.txt"], found["/host.txt:payload"]]
    host, stream = rows(analysis.analyse(worker(image, "ntfs"), batch)).values()
    assert (host["type"], stream["type"]) == ("text", "pe")
    assert stream["md5"] == hashlib.md5((tmp_path / "hidden.exe").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def stick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stick with a deleted picture, an overwritten one, and one with a misleading name."""
    image = tmp_path_factory.mktemp("stick") / "stick.raw"
    fat(
        image,
        {"KEPT.JPG": JPEG, "GONE.JPG": JPEG + b"gone", "OVER.JPG": JPEG, "LIAR.TXT": JPEG},
        ["GONE.JPG", "OVER.JPG"],
    )
    return image


def test_a_deleted_file_with_free_clusters_is_hashed(stick: Path) -> None:
    found = entries(stick)
    gone = next(one for path, one in found.items() if path.endswith("ONE.JPG"))
    (row,) = rows(analysis.analyse(worker(stick, "fat16"), [gone])).values()
    assert row["sha1"] == hashlib.sha1(JPEG + b"gone").hexdigest()
    assert "deleted" in row["why"] and row["type"] == "jpeg"


def test_a_deleted_file_with_reused_clusters_has_no_hash(stick: Path, tmp_path: Path) -> None:
    image = tmp_path / "over.raw"
    image.write_bytes(stick.read_bytes())
    before = entries(image)
    deleted = [one for one in before.values() if one.deleted]
    (tmp_path / "NEW.BIN").write_bytes(noise(200_000, 9))
    # Without the hint of the last allocation, mtools fills free clusters from the start.
    run(program("mcopy"), "-i", image, tmp_path / "NEW.BIN", "::NEW.BIN")
    tools = analysis.Tools.of(worker(image, "fat16"))
    taken = [one for one in deleted if _in_use(tools, image, one)]
    if not taken:
        pytest.skip("mtools wrote elsewhere")
    for row in rows(analysis.analyse(worker(image, "fat16"), taken)).values():
        assert (row["read_state"], row["sha1"], row["type"]) == ("skipped", None, None)
        assert "belong to other files now" in row["why"]


def _in_use(tools: analysis.Tools, image: Path, entry: Entry) -> int:
    where = image.read_bytes().find(JPEG)
    assert where > 0
    words = run(program("istat"), image, entry.address).partition("Sectors:")[2].split()
    return tools.maps.of(0).in_use(int(words[0]) * 512, 50_000) if words and words[0] != "0" else 0


class NoTable(Raw):
    """A USB stick whose allocation table cannot be read in one piece while `fails`, but in small pieces, as The Sleuth
    Kit reads it."""

    fails = True

    def pread(self, offset: int, length: int) -> bytes:
        if self.fails and offset < TABLE.stop and offset + length > TABLE.start and length > 8192:
            raise OSError(5, "the disk is busy", "/tmp/link-4711/socket")
        return super().pread(offset, length)


TABLE = range(2048, 4096)


def test_a_deleted_file_with_unknown_clusters_is_tried_again(
    stick: Path,
) -> None:
    found = entries(stick)
    gone = next(one for path, one in found.items() if path.endswith("ONE.JPG"))
    source = NoTable(stick)
    one = worker(stick, "fat16", source)
    result = analysis.analyse(one, [gone, found["/KEPT.JPG"]])
    lost, kept = rows(result).values()
    assert (lost["read_state"], lost["sha256"], lost["type"]) == ("unreadable", None, None)
    assert lost["why"].endswith("could not be read: the disk is busy")
    (problem,) = result.problems
    assert (problem.path, problem.sentence) == (gone.path, lost["why"]) and problem.offset in TABLE
    assert kept["read_state"] == "whole"
    source.fails = False
    result = analysis.analyse(one, [gone])
    (row,) = rows(result).values()
    assert row["sha1"] == hashlib.sha1(JPEG + b"gone").hexdigest() and not result.problems


def test_an_unreadable_file_is_reported_and_never_hashed(stick: Path) -> None:
    found = entries(stick)
    where = stick.read_bytes().find(JPEG)
    source = Raw(stick, (where + 19_968, where + 20_480))
    result = analysis.analyse(worker(stick, "fat16", source), [found["/KEPT.JPG"], found["/LIAR.TXT"]])
    lost, other = rows(result).values()
    assert lost["read_state"] == "partial" and lost["sha256"] is None and lost["md5"] is None
    assert "the disk has a bad sector" in lost["why"]
    assert other["read_state"] == "whole" and other["sha1"] == hashlib.sha1(JPEG).hexdigest()
    (problem,) = result.problems
    assert problem.path == "/KEPT.JPG" and problem.offset is not None and problem.offset <= where + 19_968


def test_a_file_beside_a_bad_sector_is_whole(tmp_path: Path) -> None:
    # The Sleuth Kit reads ahead, into the bad sector; that must neither fail the file nor be forgotten for the next.
    image = fat(tmp_path / "two.raw", {"A.BIN": noise(20_000, 1), "B.BIN": noise(20_000, 2), "C.BIN": noise(20_000, 3)})
    where = image.read_bytes().find(noise(20_000, 2))
    source = Raw(image, (where + 5000, where + 5512))
    found = entries(image)
    result = analysis.analyse(worker(image, "fat16", source), [found["/A.BIN"], found["/B.BIN"], found["/C.BIN"]])
    before, lost, behind = rows(result).values()
    assert before["sha1"] == hashlib.sha1(noise(20_000, 1)).hexdigest()
    assert behind["sha1"] == hashlib.sha1(noise(20_000, 3)).hexdigest()
    assert (lost["sha1"], lost["read_state"]) == (None, "partial")
    assert {problem.path for problem in result.problems} == {"/B.BIN"}


def test_the_readable_rest_of_a_damaged_file_is_searched(tmp_path: Path) -> None:
    data = bytearray(noise(3 * MIB, 5))
    data[100:111] = b"code HERING"
    data[3 * MIB - 50 : 3 * MIB - 39] = b"code HERING"
    image = fat(tmp_path / "big.raw", {"BIG.BIN": bytes(data)})
    where = image.read_bytes().find(b"code HERING")
    keywords = tmp_path / "words.txt"
    keywords.write_text("hering\n")
    source = Raw(image, (where + MIB, where + MIB + 512))
    result = analysis.analyse(worker(image, "fat16", source, keywords=(str(keywords),)), [entries(image)["/BIG.BIN"]])
    (row,) = rows(result).values()
    assert (row["read_state"], row["hits"], row["md5"]) == ("partial", 2, None)
    assert row["bytes_read"] == 3 * MIB - salvage.LEAST_BYTES
    assert f"{salvage.LEAST_BYTES} of its {3 * MIB} bytes could not be read" in row["why"]
    (finding,) = [one for one in result.findings if one.kind == "keyword"]
    assert finding.offset == 105 and "2 matches" in finding.detail


def test_a_file_above_the_limit_is_read_up_to_it(tmp_path: Path) -> None:
    image = fat(tmp_path / "large.raw", {"LARGE.JPG": JPEG + bytes(2 * MIB)})
    result = analysis.analyse(worker(image, "fat16", max_file=2 * MIB), [entries(image)["/LARGE.JPG"]])
    (row,) = rows(result).values()
    assert (row["read_state"], row["type"], row["sha1"], row["bytes_read"]) == (
        "partial",
        "jpeg",
        None,
        2 * MIB,
    )
    assert "limit" in row["why"]


def test_mismatches_and_wanted_files_are_findings_and_known_files_are_not(stick: Path, tmp_path: Path) -> None:
    known, wanted = tmp_path / "known.txt", tmp_path / "wanted.txt"
    found = entries(stick)
    gone = next(one for path, one in found.items() if path.endswith("ONE.JPG"))
    batch = [found["/LIAR.TXT"], gone]
    wanted.write_text(hashlib.md5(JPEG + b"gone").hexdigest() + "\n")
    lists: dict[str, Any] = {"wanted": (str(wanted),), "hashes": ("sha256",)}
    result = analysis.analyse(worker(stick, "fat16", **lists), batch)
    liar, deleted = rows(result).values()
    assert liar["type_mismatch"] and not deleted["type_mismatch"]
    assert (liar["wanted"], deleted["wanted"]) == (None, "wanted.txt")
    assert deleted["md5"], "a list needs MD5, so MD5 is made"
    assert {one.kind for one in result.findings} == {"mismatch", "wanted-hash"}
    assert max(result.findings, key=lambda one: one.score).kind == "wanted-hash"

    known.write_text(hashlib.sha1(JPEG).hexdigest() + "\n")
    result = analysis.analyse(worker(stick, "fat16", known=(str(known),)), batch)
    liar, _ = rows(result).values()
    assert liar["known"] and not liar["type_mismatch"] and not result.findings


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_an_invalid_list_or_rule_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("nonsense\n")
    (tmp_path / "rule").write_text("rule {")
    for option, name in (("known", "list"), ("wanted", "list"), ("yara", "rule")):
        with pytest.raises(ValueError, match=r"list, line 1: |rule: these YARA rules"):
            analysis.prepare(dataclasses.replace(Settings(source="", out=""), **{option: (str(tmp_path / name),)}))


class _Endless:
    """A scanner with a rule that always takes too long."""

    def set_global(self, name: str, value: str) -> None:
        pass

    def scan(self, data: bytes) -> None:
        raise yara_x.TimeoutError("timeout")


def test_a_slow_rule_is_reported_and_keywords_are_still_found(stick: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("JFIF\n")
    (tmp_path / "endless.yar").write_text("rule Endless { condition: true }")
    lists = {"keywords": (str(tmp_path / "words"),), "yara": (str(tmp_path / "endless.yar"),)}
    one = worker(stick, "fat16", **lists)
    engine = analysis.Tools.of(one).engine
    assert engine is not None
    engine._scanner = _Endless()
    result = analysis.analyse(one, [entries(stick)["/KEPT.JPG"]])
    (row,) = rows(result).values()
    assert (row["read_state"], row["hits"]) == ("whole", 1) and "YARA rules were not tried to the end" in row["why"]
    (problem,) = result.problems
    assert problem.path == "/KEPT.JPG" and "not searched completely" in problem.sentence
    assert problem.offset == stick.read_bytes().find(JPEG), "with a place it is tried again, and the exit code is 3"
    result = unallocated.scan(one, 0, 0, 2 * MIB)
    assert [finding.rule for finding in result.findings] == ["JFIF"] * 2
    assert result.problems and all("not tried to the end" in one.sentence for one in result.problems)


def test_unreadable_metadata_affects_only_its_file(tmp_path: Path) -> None:
    # Blocks of 1 KiB, and no extents: the block addresses of a larger file are in indirect blocks.
    (tmp_path / "tree").mkdir()
    for name in ("large", "last"):
        (tmp_path / "tree" / name).write_bytes(noise(400_000, len(name)))
    image = tmp_path / "disk.raw"
    run(program("mke2fs"), "-q", "-t", "ext2", "-b", "1024", "-d", tmp_path / "tree", image, "8M")
    found = entries(image)
    blocks = run(program("debugfs"), "-R", "stat /large", image)
    where = int(blocks.partition("(DIND):")[2].partition(",")[0]) * 1024
    one = worker(image, "ext2", Raw(image, (where, where + 1024)))
    result = analysis.analyse(one, [found["/large"], found["/last"]])
    large, last = rows(result).values()
    assert (large["read_state"], large["sha256"]) == ("unreadable", None)
    assert large["why"] == "its metadata could not be read: the disk has a bad sector"
    assert [(problem.path, problem.offset) for problem in result.problems] == [("/large", where)]
    assert (last["read_state"], last["why"]) == ("whole", None)


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ext4 with a file under five names that suggest different things, and a file with one name."""
    folder = tmp_path_factory.mktemp("linked")
    tree = folder / "tree"
    tree.mkdir()
    (tree / "picture.jpg").write_bytes(JPEG)
    for name in ("a.txt", "b.exe", "z.jpg", "copy"):
        (tree / name).hardlink_to(tree / "picture.jpg")
    (tree / "other.jpg").write_bytes(JPEG + b"other")
    image = folder / "linked.raw"
    run(program("mkfs.ext4"), "-q", "-d", tree, image, "8M")
    return image


class Counted(Raw):
    """Counts the reads of one place."""

    def __init__(self, path: Path, place: int):
        super().__init__(path)
        self._place = place
        self.reads = 0

    def pread(self, offset: int, length: int) -> bytes:
        self.reads += offset <= self._place < offset + length
        return super().pread(offset, length)


def test_a_hard_linked_file_is_read_once_and_judged_by_each_name(linked: Path) -> None:
    place = linked.read_bytes().find(JPEG[1000:2000])
    names = [one for one in entries(linked).values() if one.path.count("/") == 1 and one.attr_type is None]
    names = [one for one in names if not one.path.startswith("/$")]
    apart = {}
    for one in names:
        alone = analysis.analyse(worker(linked, "ext4"), [one])
        apart.update(rows(alone))
    assert rows(analysis.analyse(worker(linked, "ext4"), names)) == apart
    names = [one for one in names if one.path != "/other.jpg"]
    once, source = Counted(linked, place), Counted(linked, place)
    analysis.analyse(worker(linked, "ext4", once), names[:1])
    together = analysis.analyse(worker(linked, "ext4", source), names)
    assert source.reads == once.reads > 0
    odd = {one.path: apart[one.row]["type_mismatch"] for one in names}
    assert odd["/a.txt"] and not odd["/picture.jpg"]
    assert together.bytes_read == len(JPEG)
    assert {one.path for one in together.findings} == {path for path, is_odd in odd.items() if is_odd}


def test_rules_that_depend_on_names_run_for_each_name(linked: Path, tmp_path: Path) -> None:
    (tmp_path / "names.yar").write_text('rule named { condition: filename == "copy" }')
    names = [one for one in entries(linked).values() if one.path in ("/picture.jpg", "/a.txt", "/copy")]
    result = analysis.analyse(worker(linked, "ext4", yara=(str(tmp_path / "names.yar"),)), names)
    assert [one.path for one in result.findings if one.kind == "yara"] == ["/copy"]


def test_an_unreadable_hard_linked_file_is_reported_for_each_name(linked: Path) -> None:
    place = linked.read_bytes().find(JPEG[20_000:21_000])
    names = [one for one in entries(linked).values() if one.path in ("/picture.jpg", "/a.txt", "/other.jpg")]
    result = analysis.analyse(worker(linked, "ext4", Raw(linked, (place, place + 512))), names)
    states = {one.path: rows(result)[one.row]["read_state"] for one in names}
    assert states == {"/picture.jpg": "partial", "/a.txt": "partial", "/other.jpg": "whole"}
    assert {one.path for one in result.problems} == {"/picture.jpg", "/a.txt"}
