"""`cheetah search --yara` over real file systems: each match is in the file and in the source where it is said to be."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytsk3
import triage_worker
from conftest import run
from test_triage_at_nodes import ATOMS, CENTRAL, KINDS, SPLIT, rule
from test_triage_at_nodes import lending as lending
from triage_images import made as made

import cheetah
from cheetah import rule_search
from cheetah.places import rules as file_rules
from cheetah.places.pipe import Pipe
from cheetah.triage.content import analysis
from cheetah.triage.filesystem import distrust
from cheetah.triage.reading.reader import OpenStream
from cheetah.triage.search import scan
from cheetah.triage.task import Result

# The beginning of bytes that a rule needs, and that each image has in a file.
BEGINNING = ATOMS[0][:6]
EXPRESSION = "".join(f"\\x{byte:02x}" for byte in BEGINNING)
# A word in a file of NTFS.
WORD = "takes the place"
TAGGED = 'rule tagged : one two { strings: $letter = "Dear Sir" $wide = "Dear Sir" wide condition: any of them }\n'


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A file with rules that all have atoms."""
    path = tmp_path / "rules.yar"
    path.write_text(SPLIT + TAGGED)
    return path


def searched(
    binary: str, image: Path, rules: Path, out: Path, *more: str, code: int = 0
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The answer and the rows of a search."""
    command = [binary, "--json", "search", str(image), "--yara", str(rules), "--out", str(out), *more]
    environment = {**os.environ, "CHEETAH_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    with (out / "hits.csv").open(newline="", encoding="utf-8") as file:
        return json.loads(done.stdout.splitlines()[0]), list(csv.DictReader(file))


@pytest.mark.parametrize("name", KINDS)
def test_a_match_lies_in_its_file_and_in_the_source_where_it_is_said_to(
    binary: str, made: Callable[[str], Path], rules: Path, tmp_path: Path, name: str
) -> None:
    image = made(name)
    answer, rows = searched(binary, image, rules, tmp_path / "out")
    assert answer["rules"]["searched"] and answer["complete"], answer
    assert answer["rules"]["without_atoms"] > 0 and answer["rules"]["untried_files"] == 0
    assert {row["pattern"] for row in rows} and len(rows) == answer["hits"]
    assert all(row["tags"] == ("one two" if row["pattern"] == "tagged" else "") for row in rows)
    disk, system = image.read_bytes(), pytsk3.FS_Info(pytsk3.Img_Info(str(image)))
    needles = {f"r{number}": atom for number, atom in enumerate(ATOMS)} | {"tagged": b"Dear Sir"}
    for row in rows:
        needle, length = needles[row["pattern"]], int(row["length"])
        if row["offset"]:
            assert disk[int(row["offset"]) :][:length] == needle, row
        # The Sleuth Kit does not find these names again.
        if row["state"] == "allocated" and not set(row["path"]) & set(":^\\"):
            content = system.open(row["path"]).read_random(int(row["file_offset"]), length)
            assert content == needle, row
    assert any(row["offset"] for row in rows)


@pytest.mark.parametrize("name", KINDS)
def test_a_rule_without_atoms_has_every_file_read_and_the_other_rules_match_the_same(
    binary: str, made: Callable[[str], Path], rules: Path, tmp_path: Path, name: str
) -> None:
    image = made(name)
    _, some = searched(binary, image, rules, tmp_path / "some")
    rules.write_text(SPLIT + TAGGED + CENTRAL)
    answer, rows = searched(binary, image, rules, tmp_path / "all")
    assert [one["rule"] for one in answer["rules"]["central"]] == ["large"] and not answer["rules"]["searched"]
    assert [row for row in rows if row["pattern"] != "large"] == some
    large = [row for row in rows if row["pattern"] == "large"]
    assert large and {(row["string"], row["offset"], row["file_offset"]) for row in large} == {("", "", "")}


@pytest.mark.parametrize("seal", ["--no-seal", "--seal"])
def test_a_drive_has_the_rows_of_its_image_whether_nodes_search_or_not(
    binary: str, made: Callable[[str], Path], rules: Path, tmp_path: Path, lending: str, seal: str
) -> None:
    drive, image = tmp_path / "case.drive", made("ext4")
    run(binary, "create", drive, "--nodes", lending, "--layout", "stripe", seal, "--from", image)
    _, expected = searched(binary, image, rules, tmp_path / "image")
    _, here = searched(binary, drive, rules, tmp_path / "here")
    answer, near = searched(binary, drive, rules, tmp_path / "near", "--at-nodes")
    assert expected and here == expected and near == expected
    assert (sum(answer["at_nodes"]["node_bytes"].values()) > 0) == (seal == "--no-seal")
    also = ("--regex", EXPRESSION, "--files")
    _, expected = searched(binary, image, rules, tmp_path / "image-also", *also)
    _, here = searched(binary, drive, rules, tmp_path / "here-also", *also)
    answer, near = searched(binary, drive, rules, tmp_path / "near-also", *also, "--at-nodes")
    assert any(row["pattern"] == EXPRESSION for row in expected)
    assert here == expected and without_nodes(near) == without_nodes(expected)
    assert (sum(answer["at_nodes"]["node_bytes"].values()) > 0) == (seal == "--no-seal")


def without_nodes(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows without what tells who found a hit."""
    return [{name: value for name, value in row.items() if name not in ("node", "instance")} for row in rows]


@pytest.mark.parametrize("name", KINDS)
def test_expressions_beside_rules_have_the_rows_of_both_alone(
    binary: str, made: Callable[[str], Path], rules: Path, tmp_path: Path, name: str
) -> None:
    image = made(name)
    _, alone = searched(binary, image, rules, tmp_path / "alone")
    answer, rows = searched(binary, image, rules, tmp_path / "both", "--regex", EXPRESSION, "--files")
    others = [row for row in rows if row["pattern"] == EXPRESSION]
    assert others and rows == others + alone and answer["hits"] == len(rows)
    disk = image.read_bytes()
    assert all(disk[int(row["offset"]) :].startswith(BEGINNING) for row in others)
    # Each match of this rule begins with a match of the expression.
    volumes = {row["offset"]: row["volume"] for row in others}
    matched = [row for row in alone if row["pattern"] == "r0" and row["offset"]]
    # Of that file in exFAT, no offset is known.
    assert (matched or name == "exfat") and all(volumes[row["offset"]] == row["volume"] for row in matched)


def test_python_returns_what_the_command_writes(
    binary: str, made: Callable[[str], Path], rules: Path, tmp_path: Path
) -> None:
    image = made("ntfs")
    answer, rows = searched(binary, image, rules, tmp_path / "out")
    with cheetah.open(str(image)) as device:
        hits = device.search(yara=rules)
        found = [hit for hit in hits if isinstance(hit, cheetah.RuleHit)]
        assert hits.coverage.complete and hits.coverage.tried == answer["rules"]["files"]
        assert hits.coverage.searched is not None and hits.coverage.searched.complete
        assert device.search(yara=rules).to_arrow().num_rows == len(found)
    told = [
        {
            "offset": "" if hit.offset is None else str(hit.offset),
            "pattern": hit.rule,
            "rules": hit.rules,
            "tags": " ".join(hit.tags),
            "string": hit.string or "",
            "path": hit.path,
            "state": hit.state,
            "file_offset": str(hit.file_offset),
        }
        for hit in found
    ]
    assert told == [{name: row[name] for name in told[0]} for row in rows]


@pytest.mark.parametrize("central", ["", CENTRAL])
def test_python_returns_words_and_then_the_matches_of_rules(
    made: Callable[[str], Path], rules: Path, central: str
) -> None:
    rules.write_text(SPLIT + TAGGED + central)
    with cheetah.open(str(made("ntfs"))) as device:
        words = [(hit.offset, hit.pattern, hit.encoding) for hit in device.search([WORD])]
        matches = [hit for hit in device.search(yara=rules) if isinstance(hit, cheetah.RuleHit)]
        hits = device.search([WORD], yara=rules)
        found = list(hits)
        coverage = hits.coverage
        assert coverage.complete and coverage.searched is not None and coverage.searched.patterns[0].hits == len(words)
        assert coverage.searched.searched_bytes == device.size and bool(coverage.central) == bool(central)
        table = device.search([WORD], yara=rules).to_arrow()
    assert words and matches and found[len(words) :] == matches
    others = [hit for hit in found if not isinstance(hit, cheetah.RuleHit)]
    assert [(hit.offset, hit.pattern, hit.encoding) for hit in others] == words
    assert table.num_rows == len(found)
    assert table.column("pattern").to_pylist()[: len(words)] == [WORD] * len(words)
    assert table.column("content").to_pylist()[-1] == matches[-1].content


def test_known_files_beside_rules_are_said(made: Callable[[str], Path], rules: Path, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_bytes(os.urandom(16384))
    with cheetah.open(str(made("ntfs"))) as device:
        hits = device.search(yara=rules, known=known)
        assert hits.known is None
        assert list(hits) == list(device.search(yara=rules))
        assert hits.known is not None and hits.known.files[0].found == 0


def test_rules_that_do_not_compile_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    image, rules = tmp_path / "disk.raw", tmp_path / "broken.yar"
    image.write_bytes(bytes(1 << 20))
    rules.write_text("rule broken { condition: none_such }")
    with cheetah.open(str(image)) as device:
        with pytest.raises(ValueError, match="broken.yar"):
            device.search(yara=rules)
        rules.write_text(TAGGED)
        with pytest.raises(ValueError, match="inside"):
            device.search(yara=rules, inside=["zip"])
        with pytest.raises(ValueError, match="ignore_case"):
            device.search(yara=rules, ignore_case=True)
        rules.write_text("// nothing")
        with pytest.raises(ValueError, match="no rule"):
            device.search(yara=rules)


def test_a_source_without_a_file_system_has_no_file_and_is_not_said_to_have_no_hits(
    binary: str, rules: Path, tmp_path: Path
) -> None:
    image = tmp_path / "text.raw"
    image.write_bytes(b"text " * 200_000 + b"Dear Sir" + b" text" * 200)
    answer, rows = searched(binary, image, rules, tmp_path / "out", code=3)
    assert not rows and not answer["complete"] and answer["rules"]["volumes"][0]["listing"] == "unsupported"


def test_matches_are_kept_with_their_strings_across_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 4096)
    monkeypatch.setattr(scan, "OVERLAP_BYTES", 512)
    engine = scan.Engine((), [("a.yar", TAGGED + rule("other", b"elsewhere"))], keeps_matches=True)
    assert engine.rules == [("a.yar", "tagged"), ("a.yar", "other")]
    content = bytearray(20_000)
    wide = "Dear Sir".encode("utf-16-le")
    content[4094 : 4094 + 8] = content[9000:9008] = b"Dear Sir"
    content[4200 : 4200 + len(wide)] = wide
    stream = scan.Stream(engine)
    stream.feed(bytes(content), 0)
    (hit,) = stream.finish()
    assert [(match.string, match.offset, match.wide) for match in hit.matches] == [
        ("$letter", 4094, False),
        ("$wide", 4200, True),
        ("$letter", 9000, False),
    ]
    assert (hit.file, hit.tags, hit.more_matches) == ("a.yar", ("one", "two"), False)


def test_a_process_that_says_nothing_is_ended_and_volumes_are_said_to_be_missing(
    rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    monkeypatch.setattr(rule_search, "_SILENCE_MAX_S", 0.0)
    monkeypatch.setattr(sys, "executable", str(silent))
    image = tmp_path / "disk.raw"
    image.write_bytes(bytes(1 << 20))
    rules.write_text(CENTRAL)
    with cheetah.open(str(image)) as device:
        hits = device.search(yara=rules)
        assert not list(hits) and not hits.coverage.complete and len(hits.coverage.problems) == 1


class Told(Pipe):
    """A source, and what is said of it."""

    def __init__(self, image: Path):
        self._content = image.read_bytes()
        self.size, self.sector_size = len(self._content), None
        self.messages: list[dict[str, Any]] = []

    def say(self, **message: Any) -> None:
        self.messages.append(json.loads(json.dumps(message)))

    def flush(self) -> None:
        """Keeps nothing back."""

    def pread(self, offset: int, length: int) -> bytes:
        return self._content[offset : offset + length]

    def of(self, kind: str) -> list[Any]:
        """The messages of a kind."""
        return [message[kind] for message in self.messages if kind in message]


def tried(image: Path, *texts: str) -> Told:
    """What is said of the files of an image without partitions, on which rules in files are tried."""
    told = Told(image)
    files = [(f"{number}.yar", text) for number, text in enumerate(texts)]
    order = {"first": 0, "logical": {"volumes": [], "not_opened": [], "shadow_copies": []}, "locked": [], "near": True}
    order |= {"sector_size": None, "unlocked": None, "rules": {"files": files, "searched": None}}
    file_rules.say_all(told, order)
    return told


def test_rules_of_the_same_name_in_two_files_both_match_in_one(tmp_path: Path) -> None:
    image = triage_worker.fat(tmp_path / "image.raw", {"BOTH.BIN": b"first word, second word"})
    told = tried(image, rule("same", b"first word"), rule("same", b"second word"))
    assert [(one["file"], one["rule"], one["file_offset"]) for one in told.of("match")] == [
        ("0.yar", "same", 0),
        ("1.yar", "same", 12),
    ]


def test_a_condition_may_hold_for_an_empty_file(tmp_path: Path) -> None:
    image = triage_worker.fat(tmp_path / "image.raw", {"EMPTY.BIN": b"", "FULL.BIN": b"word"})
    told = tried(image, "rule empty { condition: filesize == 0 }")
    assert [one["path"] for one in told.of("match")] == ["/EMPTY.BIN"]
    assert sum(one["tried"] for one in told.of("tried")) == 2 and not told.of("untried")


def test_a_file_in_pieces_is_not_tried_as_a_whole_if_a_condition_needs_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 4096)
    monkeypatch.setattr(scan, "OVERLAP_BYTES", 512)
    image = triage_worker.fat(tmp_path / "image.raw", {"LARGE.BIN": bytes(20_000), "SMALL.BIN": b"word"})
    assert [one["path"] for one in tried(image, CENTRAL).of("untried")] == ["/LARGE.BIN"]
    told = tried(image, rule("short", b"a short match"))
    assert not told.of("untried") and sum(one["in_pieces"] for one in told.of("tried")) == 1


def test_a_volume_that_is_encrypted_or_has_another_file_system_may_have_more_files(tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    for at, magic, problems in ((3, b"-FVE-FS-", 1), (0, b"XFSB", 1), (0xFF6, b"SWAPSPACE2", 0), (0, b"nothing", 0)):
        content = bytearray(4 << 20)
        content[at : at + len(magic)] = magic
        image.write_bytes(content)
        (volume,) = tried(image, CENTRAL).of("volume")
        assert (volume["fs"], len(volume["problems"])) == ("", problems), magic


def test_a_file_that_the_file_system_encrypts_is_not_said_to_have_been_tried(
    made: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distrust, "is_encrypted", lambda *arguments: True)
    told = tried(made("ext4"), CENTRAL)
    untried = told.of("untried")
    assert untried and all("encrypted" in one["why"] for one in untried)


def test_a_file_on_which_rules_fail_hides_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_stream = analysis.read_stream

    def failing(tools: Any, one: Any, *arguments: Any, **more: Any) -> analysis.Read:
        if one.entry.name == "BAD.BIN":
            raise ValueError("hostile")
        return read_stream(tools, one, *arguments, **more)

    monkeypatch.setattr(analysis, "read_stream", failing)
    image = triage_worker.fat(tmp_path / "image.raw", {"BAD.BIN": b"a word", "GOOD.BIN": b"a word"})
    told = tried(image, rule("some", b"a word"))
    assert [one["path"] for one in told.of("match")] == ["/GOOD.BIN"]
    assert [(one["path"], "hostile" in one["why"]) for one in told.of("untried")] == [("/BAD.BIN", True)]


def test_a_file_on_which_rules_took_too_long_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 4096)
    monkeypatch.setattr(scan, "FILE_S", -1.0)
    image = triage_worker.fat(tmp_path / "image.raw", {"LARGE.BIN": bytes(12_000_000)})
    worker = triage_worker.worker(image, "fat16", hashes=())
    tools = analysis.Tools(worker, scan.Engine((), [("a.yar", CENTRAL)]))
    one = analysis.open_stream(worker, tools, triage_worker.entries(image)["/LARGE.BIN"], Result())
    assert isinstance(one, OpenStream)
    read = analysis.read_stream(tools, one, worker, gives_up=True)
    assert read.reader.bytes_read < one.size and read.unsearched is not None
