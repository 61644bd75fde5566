"""Runs the commands about jobs in docs/guide/lend-memory.md against a node."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pages
import pytest
from conftest import MIB, program, run

WORD = b"Geheimnis"
PLAIN = "node=http://127.0.0.1:10810\n"


@contextmanager
def lending(binary: str, folder: Path, room: str) -> Iterator[str]:
    """A node that lends its processor and holds a drive with the word, and its address for control."""
    env = os.environ | {"XDG_CONFIG_HOME": str(folder / "config"), "CHEETAH_ROOM": room}
    if room != "none":
        run(binary, "room", "init", room, env=env)
    image = folder / "case42.raw"
    image.write_bytes((b"." * 4096 + WORD).ljust(MIB, b"."))
    argv = [binary, "--json", "node", "--memory", "8MiB", "--listen", "127.0.0.1:0", "--scan", "1"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout
            ready = json.loads(node.stdout.readline())
            run(binary, "create", folder / "case42.drive", "--nodes", ready["nbd"], "--from", image, env=env)
            yield ready["http"]
        finally:
            node.terminate()


def lines(said: str) -> list[dict[str, Any]]:
    """The lines of results."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("room", ["none", "lab"])
def test_the_commands_about_jobs_hash_and_search_what_a_node_holds(binary: str, tmp_path: Path, room: str) -> None:
    for needed in ("curl", "jq"):
        program(needed)
    start, digest, search, secured = pages.blocks("lend-memory.md#lend-the-processor")
    assert "--scan idle" in start
    with lending(binary, tmp_path, room) as address:
        script = digest + search
        if room == "none":
            script = pages.changed(script, {"127.0.0.1:10810": address})
        else:
            secured = pages.changed(secured, {"10.0.0.7": "localhost", "10810": address.rpartition(":")[2]})
            script = secured + pages.changed(script, {PLAIN: ""})
        found = lines(pages.run_script(script, binary, tmp_path))
    values, end, first, second, last = found
    assert len(base64.b64decode(values["values"]["base64"])) == 64 and end == last == {"end": {"units": 2}}
    [hit] = first["searched"]["hits"]
    assert (hit["at"], hit["len"], hit["before"]) == (4096, len(WORD), 8)
    assert base64.b64decode(hit["base64"]) == b"........" + WORD + b"........"
    assert (second["searched"]["unit"], second["searched"]["hits"]) == (1, [])
