"""Runs the commands of the recipes, docs/guide/recipes, beside the programs that they are about."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pages
import pytest
from conftest import MIB, ROOT, noise, program, run
from triage_listing import by_fls

Drive = Callable[[Path, Path], Path]


def recipe(name: str) -> list[str]:
    """The commands of a recipe, block by block."""
    return pages.blocks(f"recipes/{name}.md")


def mounts(script: str, folder: Path) -> str:
    """A script whose mounts are below a folder."""
    for place in sorted(set(re.findall(r"/mnt/\w+", script))):
        (folder / place[1:]).mkdir(parents=True)
    return script.replace("/mnt/", f"{folder}/mnt/")


def prepared(folder: Path) -> Path:
    """A folder for a script."""
    program("fusermount3")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("needs FUSE")
    made = folder / "recipe"
    made.mkdir()
    return made


def events(table: Path) -> list[list[str]]:
    """The events of a timeline of plaso, without the place of the source."""
    with table.open(newline="") as file:
        return sorted(
            [cell for name, cell in row.items() if name not in ("display_name", "filename", "tag")]
            for row in csv.DictReader(file)
        )


def test_plaso_makes_the_same_timeline_of_a_mounted_drive_as_of_the_image(
    binary: str, ntfs: Path, drive: Drive, tmp_path: Path
) -> None:
    place = Path(os.environ.get("CHEETAH_PLASO", ROOT / "target/plaso"))
    if not (place / "bin/log2timeline").is_file():
        pytest.skip("needs plaso (scripts/plaso-env installs it; CHEETAH_PLASO names another environment)")
    folder = prepared(tmp_path)
    _install, commands = recipe("plaso")
    drive(folder / "case42.drive", ntfs)
    script = pages.changed(mounts(commands, folder), {"~/plaso/": f"{place}/"})
    of_image = "".join(line for line in script.splitlines(keepends=True) if line.startswith(str(place)))
    of_image = pages.changed(
        of_image,
        {f"{folder}/mnt/case42/case42.raw": str(ntfs), "case42.plaso": "image.plaso", "case42.csv": "image.csv"},
    )
    pages.run_script(script + of_image, binary, folder)
    found = events(folder / "case42.csv")
    assert found and found == events(folder / "image.csv")


def test_bulk_extractor_reads_a_mounted_drive_and_the_search_finds_the_same_address(
    binary: str, drive: Drive, tmp_path: Path
) -> None:
    program("bulk_extractor")
    folder = prepared(tmp_path)
    image = tmp_path / "case42.raw"
    image.write_bytes(bytes(MIB) + b" write to poirot@example.com today " + bytes(MIB))
    drive(folder / "case42.drive", image)
    pages.run_script(mounts("".join(recipe("bulk_extractor")), folder), binary, folder)
    assert "poirot@example.com" in (folder / "features/email.txt").read_text()
    assert "poirot@example.com" in (folder / "hits/hits.csv").read_text()


def test_what_triage_found_is_read_by_the_sleuth_kit_and_has_the_form_that_iped_asks_for(
    binary: str, ext4: Path, drive: Drive, tmp_path: Path
) -> None:
    for needed in ("mactime", "hfind"):
        program(needed)
    folder = tmp_path / "recipe"
    folder.mkdir()
    drive(folder / "case42.drive", ext4)
    (folder / "words.txt").write_text("file7\n")
    said = pages.run_script("".join(recipe("autopsy-iped")), binary, folder)
    # The one file whose name has the word.
    [line] = (folder / "notable-md5.txt").read_text().splitlines()
    digest, name = line.split("  ")
    assert name == "/dir1/file7" and re.search(rf"(?mi)^{digest}\t.*file7$", said), said
    with (folder / "notable.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert {"MD5", "SHA1", "SHA256"} < set(header) and {len(row) for row in rows} == {len(header)}
    assert [(row[0], row[-1]) for row in rows] == [(digest, name)]
    with (folder / "timeline.csv").open(newline="") as file:
        timeline = list(csv.DictReader(file))
    assert any(row["File Name"].strip('"').endswith("/dir1/file7") for row in timeline)
    # Nothing was added to the folder that the custody log vouches for.
    run(binary, "verify", folder / "case42")


def test_the_commands_for_users_of_xmount_show_the_same_bytes(binary: str, tmp_path: Path) -> None:
    for needed in ("xmount", "qemu-img"):
        program(needed)
    folder = prepared(tmp_path)
    image = tmp_path / "disk.raw"
    image.write_bytes(noise(3 * MIB, 7) + bytes(MIB))
    run(binary, "acquire", image, folder / "disk.E01", cwd=folder)
    same, *others = recipe("xmount")
    script = mounts(same + "".join(others), folder)
    # The block of the virtual machine starts an export; qemu-io stands for the machine.
    written = "qemu-io -c 'write -q -P 66 0 4096' changes.qcow2\nqemu-io -c 'read -q -P 66 0 4096' changes.qcow2\n"
    pages.run_script(pages.changed(script, {"qemu-img convert": written + "qemu-img convert"}), binary, folder)
    run("qemu-img", "convert", "-O", "raw", folder / "disk.vdi", folder / "back.raw")
    assert (folder / "back.raw").read_bytes() == image.read_bytes()
    run(binary, "verify", folder / "disk.E01")


# What the program of the page calls, as Ray documents it. Each task runs at once, and says where it was to run.
RAY = """
class Task:
    def __init__(self, function, strategy="DEFAULT"):
        self.function, self.strategy = function, strategy

    def options(self, *, scheduling_strategy):
        return Task(self.function, scheduling_strategy)

    def remote(self, *arguments):
        print("at", getattr(self.strategy, "node_id", self.strategy))
        return self.function(*arguments)


def init(address):
    assert address == "auto"


def nodes():
    here = {"NodeID": "1f", "Alive": True, "NodeManagerAddress": "127.0.0.1", "NodeManagerHostname": "lab1"}
    return [here, {**here, "NodeID": "2e", "Alive": False}]


remote, get = Task, list
"""
STRATEGIES = """
class NodeAffinitySchedulingStrategy:
    def __init__(self, node_id, soft):
        assert soft is True
        self.node_id = node_id
"""


def test_the_program_for_ray_has_each_task_run_on_a_living_host_of_its_part(drive: Drive, tmp_path: Path) -> None:
    folder = tmp_path / "recipe"
    (folder / "ray/util").mkdir(parents=True)
    (folder / "ray/__init__.py").write_text(RAY)
    (folder / "ray/util/__init__.py").touch()
    (folder / "ray/util/scheduling_strategies.py").write_text(STRATEGIES)
    image = tmp_path / "case42.raw"
    image.write_bytes((b"JFIF" + bytes(MIB - 4)) * 3)
    drive(folder / "case42.drive", image)
    [example] = re.findall(r"(?ms)^```python\n(.*?)^```$", pages.text("recipes/ray.md"))
    script = folder / "example.py"
    script.write_text(pages.changed(example, {"/cases/case42.drive": f"{folder}/case42.drive"}))
    assert run(sys.executable, script, cwd=folder).splitlines() == ["at 1f", "3 signatures"]


MACHINES = ("one", "two", "three")


def on_machines(page: str) -> list[tuple[tuple[str, ...], str]]:
    """The commands of a page block by block, each with the machines on which it is run."""
    found = re.findall(r"(?ms)^\*\*On ([a-z ]+)\*\*.*?^```sh\n(.*?)^```$", page)
    assert len(found) == len(re.findall(r"(?m)^```sh$", page))
    return [(tuple(where.split(" and ")), block) for where, block in found]


def on_machine(folder: Path, machine: str, block: str) -> str:
    """The commands of a block, run by a user whose folder stands for a machine."""
    home = folder / machine
    # Workers that join later would not change the result, but the triage waits for the first of them only for some time.
    block = re.sub(r"(?m)^(.* worker .*) &$", r"\1 > log &\nuntil grep -q 'workers of' log; do sleep 0.1; done", block)
    who = f"export HOME={home} HOSTNAME={machine} XDG_CONFIG_HOME={home}/config XDG_STATE_HOME={home}/state"
    return f"(\n{who}\ncd\n{block})\n"


# Copies between machines are copies between folders; all have /cases in common, as its path must be the same.
SCP = """#!/bin/bash
to=${@: -1} folder=FOLDER
[[ ${to#*:} == /* ]] && exec cp "${@:1:$#-1}" "$folder${to#*:}"
exec cp "${@:1:$#-1}" "$folder/${to%%:*}/"
"""


def test_three_machines_triage_a_drive_that_they_hold(binary: str, ext4: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    folder = tmp_path / "recipe"
    for name in ("bin", "cases", *MACHINES):
        (folder / name).mkdir(parents=True)
    (folder / "bin/scp").write_text(SCP.replace("FOLDER", str(folder)))
    (folder / "bin/scp").chmod(0o755)
    run(binary, "acquire", ext4, folder / "one/disk.E01")
    room, joining, scheduler = (f"127.0.0.1:{port}" for port in pages.free_ports(3))
    found = on_machines(pages.text("recipes/three-machines.md"))
    script = "".join(on_machine(folder, machine, block) for machines, block in found for machine in machines)
    script = pages.changed(
        script,
        {
            " /cases": f" {folder}/cases",
            "--memory 12GiB": "--memory 48MiB --listen 127.0.0.1:0",
            "room init lab\n": f"room init lab\ncheetah room serve --listen {room} &\n{pages.PAUSE}",
            "room invite": f"room invite --no-serve --address 127.0.0.1 --listen {room}",
            "--wait 3": f"--wait 3 --listen={joining}",
            "--host 10.0.0.5 &\n": f"--host 127.0.0.1 --port={scheduler.rpartition(':')[2]} &\n{pages.PAUSE}",
            "worker tls://10.0.0.5:8786": f"worker tls://{scheduler} --nworkers 1",
            "--scheduler tls://10.0.0.5:8786": f"--scheduler tls://{scheduler}",
        },
    )
    pages.run_script(script, binary, folder)
    assert (folder / "one/case42/bodyfile.txt").read_bytes().splitlines() == by_fls(ext4)
    summary = json.loads((folder / "one/case42/summary.json").read_text())
    assert len(summary["source"]["connections"]) == 3
    assert all("TLS 1.3, " in said and " (node) of room " in said for said in summary["source"]["connections"])


def test_a_drive_lies_in_memory_and_on_a_server_in_place_of_cephs(binary: str, tmp_path: Path) -> None:
    program("qemu-nbd")
    folder = tmp_path / "recipe"
    folder.mkdir()
    image = noise(20 * MIB, 9)
    (folder / "disk.raw").write_bytes(image)
    node, server = map(str, pages.free_ports(2))
    script = pages.changed(
        "".join(recipe("ceph")),
        {
            "rbd create --size 200G rbd/cheetah\n": (
                "truncate -s 32M pool.raw\ncheetah room init lab\n"
                f"cheetah node --memory 16MiB --listen 127.0.0.1:{node} &\n{pages.PAUSE}"
            ),
            "rbd:rbd/cheetah": "pool.raw",
            "10809": node,
            "10900": server,
            "220GiB": "24MiB",
            "kill %1; wait\n": "kill %2; wait %2 || true\n",
            "rbd rm rbd/cheetah\n": "cp pool.raw left.raw\n",
        },
    )
    script = script.replace(
        "cheetah destroy", "cp pool.raw filled.raw\ncheetah save big.drive back.raw\ncheetah destroy"
    )
    pages.run_script(script, binary, folder)
    assert (folder / "back.raw").read_bytes()[: len(image)] == image
    # What lies in the pool is sealed.
    filled = (folder / "filled.raw").read_bytes()
    assert any(filled) and not any(image[at : at + 64] in filled for at in range(0, len(image), MIB // 4))
