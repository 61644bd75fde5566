"""Real images in their own formats: a triage agrees with The Sleuth Kit on a mount."""

import gzip
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S
from triage_listing import Listed, by_fls

IMAGES = (
    "nps-2010-emails.E01",
    "ntfs_sample.E01",
    "windows_volume.qcow2",
    "ntfs.bin.gz",
    "Base-Linear.aff4",
    "Base-Linear-ReadError.aff4",
)


@pytest.fixture
def mounted(tmp_path: Path, binary: str) -> Iterator[Callable[[Path], Path]]:
    """Mounts an image; the raw file in there."""
    mounts: list[subprocess.Popen[str]] = []

    def mount(image: Path) -> Path:
        if not os.path.exists("/dev/fuse"):
            pytest.skip("needs FUSE, to mount an image")
        folder = tmp_path / f"mnt{len(mounts)}"
        folder.mkdir()
        argv = [binary, "--json", "mount", str(image), str(folder)]
        mounts.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        assert mounts[-1].stdout is not None
        return Path(json.loads(mounts[-1].stdout.readline())["file"])

    yield mount
    for process in mounts:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


@pytest.mark.parametrize("name", IMAGES)
def test_a_real_image_is_listed_as_fls_lists_a_mount_of_it(
    name: str, evidence: Callable[[str], Path], mounted: Callable[[Path], Path], tmp_path: Path
) -> None:
    image = evidence(name)
    if image.suffix == ".gz":
        image = tmp_path / image.stem
        image.write_bytes(gzip.decompress(evidence(name).read_bytes()))
    listed = Listed(image, tmp_path)
    raw = mounted(image)
    starts = [one.start // 512 if one.partitioned else None for one in listed.volumes if one.fs]
    assert starts
    assert listed.lines == [line for start in starts for line in by_fls(raw, start)]
