"""A storage with a limited rate is measured at that rate."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import MIB, PATIENCE_S, noise, program, run

RATE_BYTES_PER_S = 8 * MIB
IMAGE_BYTES = 16 * MIB


@pytest.fixture
def slow(tmp_path: Path, nbdkit: Callable[..., str]) -> Iterator[Path]:
    """A directory on a disk limited to that rate in each direction."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a file system")
    for tool in ("nbdfuse", "losetup", "mount", "umount", "fusermount3"):
        program(tool)
    disk, mounted, directory = tmp_path / "disk.raw", tmp_path / "fuse", tmp_path / "slow"
    mounted.mkdir()
    directory.mkdir()
    # No journal and no lazy initialisation: only requested bytes are transferred.
    options = ("-O", "^has_journal", "-E", "lazy_itable_init=0")
    run(program("mkfs.ext4"), "-q", *options, disk, "192M")
    limit = (f"rate={RATE_BYTES_PER_S * 8}", "burstiness=0.1")
    uri = nbdkit("--filter=rate", "file", disk, *limit)
    fuse = subprocess.Popen([program("nbdfuse"), str(mounted / "disk"), uri])
    try:
        until = time.monotonic() + PATIENCE_S
        while not (mounted / "disk").exists():
            assert fuse.poll() is None and time.monotonic() < until, "nbdfuse has mounted nothing"
            time.sleep(0.01)
        run("mount", "-o", "loop,noatime", mounted / "disk", directory)
        try:
            yield directory
        finally:
            run("umount", directory)
    finally:
        run("fusermount3", "-u", mounted)
        fuse.wait(PATIENCE_S)


def test_a_limited_rate_is_measured_as_such(slow: Path, tmp_path: Path) -> None:
    """For reads and writes, cold, and for fio. A machine that stalls can only make it look slower."""
    for tool in ("fio", "md5sum"):
        program(tool)
    image, out = tmp_path / "image.raw", tmp_path / "out"
    image.write_bytes(noise(IMAGE_BYTES, 8))
    argv = [sys.executable, "-m", "cheetah.bench", "storage", str(slow), "--image", str(image), "--repetitions", "1"]
    argv += ["--quick", "--steps", "copy,md5sum,fio/read/16MiB/1MiB", "--out", str(out)]
    run(*argv, timeout_s=2 * PATIENCE_S)
    part = json.loads((out / "results.json").read_text())["parts"][0]
    rates = {
        sample["step"]: sample["bytes_per_s"] or IMAGE_BYTES / sample["seconds"]
        for sample in part["samples"]
        if sample["outcome"] == "done"
    }
    assert set(rates) == {"copy", "md5sum", "fio/read/16MiB/1MiB"}, part["samples"]
    for step, rate in rates.items():
        assert 0 < rate < 1.15 * RATE_BYTES_PER_S, f"{step}: {rate / MIB:.1f} MiB/s"
    md5sum = next(sample for sample in part["samples"] if sample["step"] == "md5sum")
    assert md5sum["resident_share_before"] < 0.01
    # Other load on the machine may change the bottleneck, so it is not asserted.
    assert md5sum["busy"]["device"] > 0
