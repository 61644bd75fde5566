"""Every kind of file system behind a link: sources that fail now and then, and damaged volumes whose metadata is
prefetched."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import MIB
from triage_images import made as made
from triage_listing import Listed, by_fls
from triage_workers import Alone

import cheetah
from cheetah.triage.hub import run
from cheetah.triage.hub.closing import DONE, EVIDENCE
from cheetah.triage.hub.run import Run
from cheetah.triage.settings import Settings
from cheetah.triage.task import Event

KINDS = ("ext4", "fat16", "exfat", "ntfs")


def kept(out: Path) -> list[dict[str, Any]]:
    """Returns a result's statements about every entry."""
    return pq.read_table(out / "files.parquet").to_pylist()


@pytest.mark.parametrize("name", KINDS)
def test_a_recovered_source_is_listed_and_read_whole(
    name: str, made: Callable[[str], Path], tmp_path: Path, nbdkit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image, trouble, out = made(name), tmp_path / "trouble", tmp_path / "out"
    share = cheetah.share
    # Otherwise all of this small image is cached before anything fails.
    monkeypatch.setattr(cheetah, "share", lambda source, **how: share(source, cache=0, foresight=False, prefetch=0))
    monkeypatch.setattr(run, "_start_workers", lambda uri, settings: Alone(uri, settings))
    often = ["error-pread=EIO", "error-pread-rate=30%", f"error-pread-file={trouble}"]
    settings = Settings(nbdkit("--filter=error", "-r", "file", image, *often), str(out))

    def tell(event: Event) -> None:
        if event.stage == "listing":
            trouble.touch()

    code, summary = Run(settings, tell).go()
    # After a failed large read, all smaller reads may have succeeded.
    assert code == (EVIDENCE if summary["problems"] else DONE)
    for row in pq.read_table(out / "files.parquet").to_pylist():
        assert (row["sha256"] is not None) == (row["read_state"] == "whole")
    trouble.unlink()
    code, summary = Run(settings, lambda event: None).go()
    assert (code, summary["complete"]) == (DONE, True)
    assert (out / "bodyfile.txt").read_bytes().splitlines() == by_fls(image)
    assert Run(Settings(str(image), str(tmp_path / "here")), lambda event: None).go()[0] == DONE
    assert kept(out) == kept(tmp_path / "here")


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_volume_gives_the_same_over_a_link_and_locally(
    name: str, made: Callable[[str], Path], tmp_path: Path, nbdkit: Callable[..., str]
) -> None:
    damaged = bytearray(made(name).read_bytes())
    used = [at for at in range(0, len(damaged), 512) if any(damaged[at : at + 512])]
    chance = random.Random(name)
    for _ in range(40):
        damaged[chance.choice(used[: len(used) // 3]) + chance.randrange(512)] ^= 1 << chance.randrange(8)
    image = tmp_path / "damaged.raw"
    image.write_bytes(damaged)
    with cheetah.share(nbdkit("--filter=delay", "-r", "file", image, "rdelay=1ms")) as share:
        assert Listed(share.uri, tmp_path / "far").lines == Listed(image, tmp_path / "near").lines
        with cheetah.open(share.uri) as device:
            pieces = [device.pread(at, MIB) for at in range(0, device.size, MIB)]
        assert b"".join(pieces) == damaged
        assert share.stats()["source_bytes"] <= share.size
