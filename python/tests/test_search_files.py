"""`cheetah search --files` over real file systems: each named place holds the hit, as The Sleuth Kit reads the file."""

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
from conftest import noise, program, run
from places_heard import heard
from triage_images import MADE, made  # noqa: F401

WORD = "Rosenkohl"


def searched(binary: str, image: Path, out: Path, *more: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The answer and the rows of a search for the word."""
    command = [binary, "--json", "search", str(image), "--word", WORD, "--files", "--out", str(out), *more]
    environment = {**os.environ, "CHEETAH_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    with (out / "hits.csv").open(newline="", encoding="utf-8") as file:
        return json.loads(done.stdout.splitlines()[0]), list(csv.DictReader(file))


def planted(image: Path, name: str, folder: Path) -> tuple[Path, list[int]]:
    """A copy of an image with the word in the content of its files and in its free space, and where."""
    disk = bytearray(image.read_bytes())
    said = heard(image, name)
    runs = [
        (place, min(length, one["valid"] - at))
        for one in said.files
        if not one["metadata"] and not one["deleted"]
        for at, place, length in one["runs"]
    ]
    runs += [(at, length) for message in said.messages for at, length in message.get("free", [])]
    places = sorted({place + 3 for place, length in runs if length >= 3 + len(WORD)})
    for at in places:
        disk[at : at + len(WORD)] = WORD.encode()
    copy = folder / "planted.raw"
    copy.write_bytes(disk)
    return copy, places


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_named_place_holds_the_hit(
    binary: str,
    made: Callable[[str], Path],  # noqa: F811
    tmp_path: Path,
    name: str,
) -> None:
    image, places = planted(made(name), name, tmp_path)
    answer, rows = searched(binary, image, tmp_path / "out")
    assert answer["files"]["volumes"][0]["listing"] == "whole", answer
    found = [int(row["offset"]) for row in rows if not row["fragments"]]
    assert len(places) > 10 and set(places) <= set(found)
    assert {row["state"] for row in rows} >= {"allocated", "unallocated"}
    system = pytsk3.FS_Info(pytsk3.Img_Info(str(image)))
    for row in rows:
        if row["state"] != "allocated" or ":" in row["path"] or "^" in row["path"] or "\\" in row["path"]:
            continue
        content = system.open(row["path"]).read_random(int(row["file_offset"]), len(WORD))
        # A hit may reach from a file's end into its slack.
        assert WORD.encode().startswith(content), row


def test_a_word_across_fragments_is_found_and_its_bytes_are_those_of_the_file(binary: str, tmp_path: Path) -> None:
    image = tmp_path / "fat.raw"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    run(program("mkfs.vfat"), "-F", "16", "-s", "1", image)
    content = bytearray(noise(40 * 512, 3))
    for at in range(512 - 4, len(content) - 512, 512):
        content[at : at + len(WORD)] = WORD.encode()
    for number in range(60):
        (tmp_path / f"small{number:02}").write_bytes(noise(512, number))
        run(program("mcopy"), "-i", image, tmp_path / f"small{number:02}", f"::small{number:02}")
    # Every second cluster becomes free; the file then takes these.
    for number in range(0, 60, 2):
        run(program("mdel"), "-i", image, f"::small{number:02}")
    (tmp_path / "large").write_bytes(content)
    run(program("mcopy"), "-i", image, tmp_path / "large", "::large")
    disk = image.read_bytes()
    answer, rows = searched(binary, image, tmp_path / "out")
    across = [row for row in rows if row["fragments"] and row["path"] == "/large"]
    everywhere = {at for at in range(512 - 4, len(content) - 512, 512)}
    in_one_piece = {int(row["file_offset"]) for row in rows if row["path"] == "/large" and not row["fragments"]}
    assert {int(row["file_offset"]) for row in across} | in_one_piece == everywhere and across
    for row in across:
        pieces = [piece.split(":") for piece in row["fragments"].split()]
        assert b"".join(disk[int(at) : int(at) + int(length)] for at, length in pieces) == WORD.encode()
        assert int(pieces[0][0]) == int(row["offset"])
    assert answer["files"]["across"]["hits"] == len([row for row in rows if row["fragments"]])
    assert answer["files"]["across"]["left_out"] == answer["files"]["across"]["unreadable"] == 0


def test_a_deleted_file_and_the_slack_of_another_one_are_told_apart(binary: str, tmp_path: Path) -> None:
    image = tmp_path / "fat.raw"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    run(program("mkfs.vfat"), "-F", "16", "-s", "8", image)
    (tmp_path / "gone").write_bytes(noise(5000, 1) + WORD.encode())
    (tmp_path / "kept").write_bytes(noise(100, 2))
    for name in ("gone", "kept"):
        run(program("mcopy"), "-i", image, tmp_path / name, f"::{name}")
    run(program("mdel"), "-i", image, "::gone")
    disk = bytearray(image.read_bytes())
    kept = disk.index(noise(100, 2)) + 3000
    disk[kept : kept + len(WORD)] = WORD.encode()
    free = len(disk) - 8192
    disk[free : free + len(WORD)] = WORD.encode()
    image.write_bytes(disk)
    _, rows = searched(binary, image, tmp_path / "out")
    by_offset = {int(row["offset"]): row for row in rows}
    assert (by_offset[kept]["state"], by_offset[kept]["path"]) == ("slack", "/kept")
    assert by_offset[kept]["file_offset"] == "3000"
    assert (by_offset[free]["state"], by_offset[free]["path"]) == ("unallocated", "")
    (deleted,) = [row for row in rows if row["state"] == "deleted"]
    assert deleted["path"].lower().endswith("one") and deleted["file_offset"] == "5000"


def test_a_source_without_a_volume_has_unknown_places(binary: str, tmp_path: Path) -> None:
    image = tmp_path / "text.raw"
    # Of noise, The Sleuth Kit says that it may be encrypted, and then files may be missing.
    image.write_bytes(b"text " * 200_000 + WORD.encode() + b" text" * 200)
    answer, rows = searched(binary, image, tmp_path / "out")
    assert [(row["volume"], row["state"], row["path"]) for row in rows] == [("0", "unknown", "")]
    assert answer["files"]["volumes"][0]["listing"] == "unsupported"
