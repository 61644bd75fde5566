"""YARA rules in two stages: the result is that of reading every file, and less is read."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import triage_worker
from conftest import PATIENCE_S, noise, program, run
from triage_images import made as made

import cheetah
from cheetah.triage import cli
from cheetah.triage.content import analysis, unallocated
from cheetah.triage.hub import first_stage
from cheetah.triage.hub.closing import DONE
from cheetah.triage.hub.run import Run
from cheetah.triage.reading.worker import Worker
from cheetah.triage.report import verdict
from cheetah.triage.search import atom_map, scan
from cheetah.triage.settings import Settings

KINDS = ("ext4", "fat12", "fat16", "fat32", "exfat", "ntfs")


def searched(number: int) -> bytes:
    """Bytes in the middle of a file of `triage_images.fill`, which others have not."""
    return noise(number * 700, number)[number * 300 :][:16]


NUMBERS = (3, 5, 11, 20, 39)
ATOMS = [searched(number) for number in NUMBERS] + [b"takes the place", b"stream of a folder", b"Dear Sir", b"gone too"]


def rule(name: str, atom: bytes) -> str:
    """A rule that needs an atom."""
    return f"rule {name} {{ strings: $a = {{ {atom.hex(' ')} }} condition: $a }}\n"


SPLIT = "".join(rule(f"r{number}", atom) for number, atom in enumerate(ATOMS)) + rule("nowhere", b"is in no file")
CENTRAL = "rule large { condition: filesize > 20000 }\n"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A file with rules that all have atoms."""
    path = tmp_path / "rules.yar"
    path.write_text(SPLIT)
    return path


def workers(image: Path, name: str, rules: Path, folder: Path) -> tuple[Worker, Worker]:
    """A worker that reads everything, and one that knows where atoms are."""
    content = image.read_bytes()
    gatherer = atom_map.Gatherer()
    for atom in ATOMS:
        place = content.find(atom)
        while place >= 0:
            gatherer.add(place, len(atom))
            place = content.find(atom, place + 1)
    path = atom_map.path_in(folder)
    path.parent.mkdir(parents=True)
    gatherer.map(len(content), (), ATOMS).save(path)
    settings = {"yara": (str(rules),), "hashes": ()}
    everything = triage_worker.worker(image, name, **settings)
    some = triage_worker.worker(image, name, at_nodes=True, **settings)
    some.settings = dataclasses.replace(some.settings, out=str(folder))
    return everything, some


@pytest.mark.parametrize("name", KINDS)
def test_free_space_without_atoms_is_not_read_and_counts_as_searched(
    made: Callable[[str], Path], rules: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = made(name)
    everything, some = workers(image, name, rules, tmp_path)
    scans = []
    stream = scan.Stream
    monkeypatch.setattr(scan, "Stream", lambda *arguments: scans.append(arguments) or stream(*arguments))
    of_all = unallocated.scan(everything, 0, 0, image.stat().st_size)
    count = len(scans)
    of_some = unallocated.scan(some, 0, 0, image.stat().st_size)
    assert of_some.findings == of_all.findings and of_some.problems == of_all.problems
    assert of_some.bytes_read == of_all.bytes_read
    assert len(scans) - count < count


@pytest.mark.parametrize("name", KINDS)
def test_batches_give_the_same_findings_and_no_more_is_read(
    made: Callable[[str], Path], rules: Path, tmp_path: Path, name: str
) -> None:
    image = made(name)
    entries = list(triage_worker.entries(image).values())
    everything, some = workers(image, name, rules, tmp_path)
    all_read, some_read = analysis.analyse(everything, entries), analysis.analyse(some, entries)
    assert some_read.findings == all_read.findings and some_read.findings
    assert some_read.problems == all_read.problems
    assert some_read.rows is not None and all_read.rows is not None
    apart = ["why", "bytes_read"]
    assert some_read.rows.drop_columns(apart).equals(all_read.rows.drop_columns(apart))
    assert some_read.bytes_read <= all_read.bytes_read


def test_of_a_large_file_without_atoms_only_the_beginning_is_read(rules: Path, tmp_path: Path) -> None:
    files = {"NONE.BIN": noise(3_000_000, 70), "SOME.BIN": noise(2_000_000, 71)}
    image = triage_worker.fat(tmp_path / "image.raw", files)
    rules.write_text(rule("some", noise(2_000_000, 71)[1_500_000:][:16]))
    triage(image, tmp_path / "all", rules)
    _, summary = triage(image, tmp_path / "some", rules, at_nodes=True)
    assert_same(tmp_path / "some", tmp_path / "all")
    assert 2_000_000 < summary["bytes"]["read"] < 3_000_000
    rows = {row["path"]: row for row in pq.read_table(tmp_path / "some/files.parquet").to_pylist()}
    assert "searched where they lie" in rows["/NONE.BIN"]["why"] and rows["/SOME.BIN"]["why"] is None
    assert [rows[path]["hits"] for path in ("/NONE.BIN", "/SOME.BIN")] == [0, 1]


def test_each_name_of_a_file_says_that_its_rest_was_not_read(
    rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = triage_worker.fat(tmp_path / "image.raw", {"NONE.BIN": noise(300_000, 70)})
    entry = triage_worker.entries(image)["/NONE.BIN"]
    # As if a seam could not be read the second time: the file is read once, for both names.
    answers = iter([True, False])
    monkeypatch.setattr(analysis, "_is_without_atoms", lambda *arguments: next(answers))
    _, some = workers(image, "fat16", rules, tmp_path / "out")
    rows = analysis.analyse(some, [entry, dataclasses.replace(entry, row=entry.row + 1)]).rows
    assert rows is not None
    assert all("only its beginning was read" in (why or "") for why in rows["why"].to_pylist())


def test_of_a_file_beyond_the_limit_no_more_is_said_to_be_read_than_was(rules: Path, tmp_path: Path) -> None:
    image = triage_worker.fat(tmp_path / "image.raw", {"NONE.BIN": noise(300_000, 70)})
    entry = triage_worker.entries(image)["/NONE.BIN"]
    _, some = workers(image, "fat16", rules, tmp_path / "out")
    some.settings = dataclasses.replace(some.settings, max_file=200_000)
    rows = analysis.analyse(some, [entry]).rows
    assert rows is not None
    (row,) = rows.to_pylist()
    assert row["read_state"] == "partial" and row["bytes_read"] < 200_000
    assert "larger than the limit of 200000 bytes; " in row["why"] and "first 200000 bytes" not in row["why"]


def triage(source: Path, out: Path, rules: Path, **more: Any) -> tuple[int, dict[str, Any]]:
    """A run without hashes."""
    settings = {"workers": 2, "yara": (str(rules),), "hashes": (), **more}
    return Run(Settings(str(source), str(out), **settings), lambda event: None).go()


def assert_same(out: Path, other: Path) -> None:
    """Asserts that two results are the same but for the reasons of what was not read."""
    for name in ("bodyfile.txt", "findings.parquet", "timeline.parquet", "notable.csv"):
        assert (out / name).read_bytes() == (other / name).read_bytes(), name
    one, two = (pq.read_table(folder / "files.parquet").drop_columns(["why"]) for folder in (out, other))
    assert one.equals(two)


@pytest.mark.parametrize("name", KINDS)
def test_a_run_has_the_same_result_and_reads_no_more(
    made: Callable[[str], Path], rules: Path, tmp_path: Path, name: str
) -> None:
    image = made(name)
    code, summary = triage(image, tmp_path / "all", rules)
    assert triage(image, tmp_path / "some", rules, at_nodes=True)[0] == code == DONE
    assert_same(tmp_path / "some", tmp_path / "all")
    found = json.loads((tmp_path / "some/summary.json").read_text())
    assert found["bytes"]["read"] <= summary["bytes"]["read"]
    assert found["at_nodes"]["read_all"] == [] and found["at_nodes"]["searched_bytes"] == image.stat().st_size
    assert found["coverage"]["unallocated"] == summary["coverage"]["unallocated"]
    assert found["problems"] == summary["problems"]


def test_rules_without_atoms_are_named_and_tried_on_every_file(
    made: Callable[[str], Path], rules: Path, tmp_path: Path
) -> None:
    rules.write_text(SPLIT + CENTRAL)
    image = made("ext4")
    triage(image, tmp_path / "all", rules)
    _, summary = triage(image, tmp_path / "some", rules, at_nodes=True)
    assert_same(tmp_path / "some", tmp_path / "all")
    assert summary["at_nodes"]["central"] == [{"file": "rules.yar", "rule": "large", "why": "condition"}]
    sentences = " ".join(problem["sentence"] for problem in summary["problems"])
    assert "large of rules.yar" in sentences and "nothing was searched at the nodes" in sentences
    assert not atom_map.path_in(tmp_path / "some").exists()


@pytest.mark.parametrize("more", [{"hashes": ("md5",)}, {"keywords": True}, {"known": True}])
def test_whatever_needs_every_file_has_every_file_read(
    made: Callable[[str], Path], rules: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    words, known = tmp_path / "words.txt", tmp_path / "known.txt"
    words.write_text("bottom\n")
    known.write_text("0" * 32 + "\n")
    paths = {"keywords": (str(words),), "known": (str(known),)}
    settings = {name: paths.get(name, value) for name, value in more.items()}
    image = made("ext4")
    triage(image, tmp_path / "all", rules, **settings)
    _, summary = triage(image, tmp_path / "some", rules, at_nodes=True, **settings)
    assert_same(tmp_path / "some", tmp_path / "all")
    assert len(summary["at_nodes"]["read_all"]) == 1 and "searched_bytes" not in summary["at_nodes"]


def test_files_in_ranges_that_were_not_searched_are_read(
    made: Callable[[str], Path], rules: Path, tmp_path: Path
) -> None:
    image = tmp_path / "ext4.raw"
    shutil.copy(made("ext4"), image)
    size, missing = image.stat().st_size, 1 << 20
    Path(f"{image}.map").write_text(f"0x0 + 1\n0x0 0x{size - missing:x} +\n0x{size - missing:x} 0x{missing:x} ?\n")
    triage(image, tmp_path / "all", rules)
    _, summary = triage(image, tmp_path / "some", rules, at_nodes=True)
    assert_same(tmp_path / "some", tmp_path / "all")
    assert summary["at_nodes"]["searched_bytes"] == size - missing and summary["at_nodes"]["gaps_total"] == 1
    assert any(f"{missing} bytes could not be searched" in problem["sentence"] for problem in summary["problems"])


def test_a_run_that_resumes_does_not_trust_what_an_earlier_one_found(
    made: Callable[[str], Path], rules: Path, tmp_path: Path
) -> None:
    image, out = made("ext4"), tmp_path / "some"
    triage(image, tmp_path / "all", rules)

    def interrupt(event: Any) -> None:
        if event.stage == "listing":
            raise KeyboardInterrupt

    settings = Settings(str(image), str(out), workers=2, yara=(str(rules),), hashes=(), at_nodes=True)
    Run(settings, interrupt).go()
    # As if no atom were anywhere.
    atom_map.Gatherer().map(image.stat().st_size, (), ()).save(atom_map.path_in(out))
    assert Run(settings, lambda event: None).go()[0] == DONE
    assert_same(out, tmp_path / "all")


def test_a_resumed_run_whose_search_fails_says_that_files_were_only_searched(
    rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, out = triage_worker.fat(tmp_path / "image.raw", {"NONE.BIN": noise(300_000, 70)}), tmp_path / "some"
    rules.write_text(rule("nowhere", b"is in no file"))

    def interrupt(event: Any) -> None:
        if event.stage == "unallocated":
            raise KeyboardInterrupt

    settings = Settings(str(image), str(out), workers=2, yara=(str(rules),), hashes=(), at_nodes=True)
    Run(settings, interrupt).go()

    def fail(*arguments: Any) -> None:
        raise OSError("as if it were gone")

    monkeypatch.setattr(first_stage.FirstStage, "_search", fail)
    code, summary = Run(settings, lambda event: None).go()
    assert code == DONE and summary["at_nodes"]["failed"]
    (row,) = [row for row in pq.read_table(out / "files.parquet").to_pylist() if row["path"] == "/NONE.BIN"]
    assert row["read_state"] == "whole" and "searched where they lie" in row["why"]
    assert "or searched where it lies" in verdict.of(summary).sentence
    assert "Read whole" not in (out / "report.html").read_text()


@pytest.fixture
def lending(tmp_path: Path, binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two nodes of a room, the only one that this test knows; they lend their processors."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    run(binary, "room", "init", "lab")
    monkeypatch.setenv("CHEETAH_ROOM", "lab")
    argv = [binary, "--json", "node", "--memory", "48MiB", "--listen", "127.0.0.1:0", "--room", "lab", "--scan", "1"]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        yield ",".join(json.loads(node.stdout.readline())["nbd"] for node in running if node.stdout)
    finally:
        for node in running:
            node.terminate()
            node.wait(PATIENCE_S)


@pytest.mark.parametrize("seal", ["--no-seal", "--seal"])
def test_nodes_search_for_atoms_and_a_sealed_drive_is_searched_here(
    made: Callable[[str], Path], rules: Path, tmp_path: Path, binary: str, lending: str, seal: str
) -> None:
    drive = tmp_path / "case.drive"
    run(binary, "create", drive, "--nodes", lending, "--layout", "stripe", seal, "--from", made("ext4"))
    environment = {**os.environ, "CHEETAH_PYTHON": sys.executable}
    triaged = [binary, "triage", str(drive), "--yara", str(rules), "--hash", "none", "--out"]
    run(*triaged, tmp_path / "all", env=environment)
    run(*triaged, tmp_path / "some", "--at-nodes", env=environment)
    assert_same(tmp_path / "some", tmp_path / "all")
    found = json.loads((tmp_path / "some/summary.json").read_text())["at_nodes"]
    assert found["read_all"] == [] and found["gaps"] == []
    assert (sum(found["nodes"]["node_bytes"].values()) > 0) == (seal == "--no-seal")


def test_a_fragmented_file_with_an_atom_over_the_seam_is_found(rules: Path, tmp_path: Path) -> None:
    files = {f"F{number}.BIN": noise(100_000, number) for number in range(4)}
    image = triage_worker.fat(tmp_path / "image.raw", files, delete=["F0.BIN", "F2.BIN"])
    large = noise(300_000, 9)
    (tmp_path / "LARGE.BIN").write_bytes(large)
    run(program("mcopy"), "-i", image, tmp_path / "LARGE.BIN", "::LARGE.BIN")
    content = image.read_bytes()
    seam = next(at for at in range(512, len(large), 512) if large[at - 512 : at + 512] not in content)
    rules.write_text(rule("seam", large[seam - 8 : seam + 8]))
    triage(image, tmp_path / "all", rules)
    triage(image, tmp_path / "some", rules, at_nodes=True)
    assert_same(tmp_path / "some", tmp_path / "all")
    found = pq.read_table(tmp_path / "some/findings.parquet").to_pylist()
    assert any((row["kind"], row["path"]) == ("yara", "/LARGE.BIN") for row in found)


def test_a_fragmented_file_is_read_only_if_an_atom_is_in_it_or_over_a_seam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"F{number}.BIN": noise(100_000, number) for number in range(4)}
    image = triage_worker.fat(tmp_path / "image.raw", files, delete=["F0.BIN", "F2.BIN"])
    large = noise(400_000, 9)
    (tmp_path / "LARGE.BIN").write_bytes(large)
    run(program("mcopy"), "-i", image, tmp_path / "LARGE.BIN", "::LARGE.BIN")
    content = image.read_bytes()
    seam = next(at for at in range(512, len(large), 512) if large[at - 512 : at + 512] not in content)
    entry = triage_worker.entries(image)["/LARGE.BIN"]
    rules = tmp_path / "rules.yar"
    atoms = {
        "nowhere": b"is in no file",
        "over the seam": large[seam - 8 : seam + 8],
        "before": large[seam - 16 : seam],
    }
    read: dict[str, int] = {}
    for number, (where, atom) in enumerate(atoms.items()):
        rules.write_text(rule("tried", atom))
        monkeypatch.setattr(sys.modules[__name__], "ATOMS", [atom])
        everything, some = workers(image, "fat16", rules, tmp_path / str(number))
        all_read, some_read = analysis.analyse(everything, [entry]), analysis.analyse(some, [entry])
        assert some_read.findings == all_read.findings and bool(some_read.findings) == (where != "nowhere")
        read[where] = some_read.bytes_read
    assert read["nowhere"] < 200_000 and read["over the seam"] == read["before"] == 400_000


def test_a_source_with_keys_is_searched_as_the_workers_read_it_and_no_key_is_read_again(
    tmp_path: Path, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def refuse(source: str, **options: Any) -> None:
        opened.append((source, options))
        raise OSError("as if it were gone")

    monkeypatch.setattr(cheetah, "open", refuse)
    keys = str(tmp_path / "keys")
    os.mkfifo(keys)
    for unlock in ((), (keys,)):
        settings = Settings("disk.raw", str(tmp_path), yara=(str(rules),), hashes=(), at_nodes=True, unlock=unlock)
        stage = first_stage.FirstStage(settings, "nbd+unix:///?socket=/shared")
        stage.run(lambda done, total: None)
        assert stage.facts is not None and len(stage.facts["read_all"]) == len(stage.problems) == 1
    assert opened == [("disk.raw", {"beside": ()}), ("nbd+unix:///?socket=/shared", {})]


def test_options_that_make_no_sense_are_refused_with_the_reason(
    tmp_path: Path, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["disk.raw", "--out", str(tmp_path / "out"), "--at-nodes"]
    with pytest.raises(SystemExit):
        cli.parse(start)
    assert "--yara" in capsys.readouterr().err
    assert cli.parse([*start, "--yara", str(rules), "--scheduler", "tcp://lab1:8786"]).at_nodes
    given = cli.parse([*start, "--yara", str(rules), "--hash", "none"])
    assert given.at_nodes and given.hashes == () and given.lend_key == ()
    lent = cli.parse([*start, "--yara", str(rules), "--lend-key", "lab7,lab8"])
    assert lent.lend_key == ("lab7", "lab8") and lent.binding() == cli.parse([*start, "--yara", str(rules)]).binding()
    with pytest.raises(SystemExit):
        cli.parse(["disk.raw", "--out", str(tmp_path / "out"), "--yara", str(rules), "--lend-key", "all"])
    assert "--at-nodes" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.parse([*start, "--yara", str(rules), "--hash", "md5,none"])
