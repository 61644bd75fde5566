"""A triage over a link: each byte crosses once, as counted by nbdkit."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import triage_images
from conftest import run
from triage_listing import by_fls


def crossed(log: Path) -> list[tuple[int, int]]:
    """The reads that the server received: offsets and lengths."""
    found = re.findall(r" Read id=\d+ offset=0x([0-9a-f]+) count=0x([0-9a-f]+)", log.read_text())
    return [(int(offset, 16), int(count, 16)) for offset, count in found]


def test_no_byte_crosses_the_link_twice_with_many_workers(tmp_path: Path, nbdkit: Callable[..., str]) -> None:
    image = triage_images.ext4(tmp_path)
    words = tmp_path / "words.txt"
    words.write_text("bottom\n")
    log = tmp_path / "asked.log"
    uri = nbdkit("--filter=log", "--filter=delay", "-r", "file", image, "rdelay=1ms", f"logfile={log}")
    out = tmp_path / "out"
    options = ["--workers", "4", "--keywords", str(words), "--json"]
    summary = json.loads(run(sys.executable, "-m", "cheetah.triage", uri, "--out", out, *options).splitlines()[-1])
    assert (summary["complete"], summary["problems"]) == (True, [])
    assert (out / "bodyfile.txt").read_bytes().splitlines() == by_fls(image)

    asked = sorted(crossed(log))
    assert len(asked) > 10
    twice = [(one, other) for one, other in zip(asked, asked[1:], strict=False) if one[0] + one[1] > other[0]]
    assert twice == []
    assert sum(count for _, count in asked) == summary["coverage"]["link"]["source_bytes"] <= image.stat().st_size
