"""Makes an image if none was named: ext4 with this machine's own programs, some of them deleted."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from cheetah.bench import tree
from cheetah.bench.process import run
from cheetah.bench.storage.settings import Scope, Settings
from cheetah.bench.storage.targets import filesystem
from cheetah.bench.storage.targets.directory import require_space
from cheetah.bench.storage.targets.target import Missing
from cheetah.bench.storage.targets.work import WorkDirectory
from cheetah.bench.units import GIB, KIB, MIB, iec

SIZES = {Scope.QUICK: 64 * MIB, Scope.NORMAL: 256 * MIB, Scope.FULL: GIB}
# Most files are small, as on any disk. A quick run has fewer: some tools start several programs for each.
BYTES_PER_FILE = {Scope.QUICK: MIB, Scope.NORMAL: 256 * KIB, Scope.FULL: 256 * KIB}
# One in this many files is deleted, so that there is something to recover and to carve.
DELETED_ONE_IN = 8
# Of the file system and its directory hashes, so that the image is the same at every call.
UUID = "8d0c4a52-6f0e-4d57-9a3a-5f1f0b6f2d11"


def get(settings: Settings, say: Callable[[str], None], size_bytes: int = 0) -> Path:
    """Returns the named image, or makes one in the directory of the results, where it stays for the next run. A quick
    run takes a large image for none: it must be short. `size_bytes` is another size than the usual one. Raises
    BenchError without room for one."""
    size = size_bytes or SIZES[settings.extent]
    if settings.image is not None:
        given = settings.image.stat().st_size
        if not settings.quick or given <= size:
            return settings.image
        say(f"{settings.image} has {iec(given)}, too much for --quick, which works on {iec(size)} of its own")
    path = settings.out / f"image-{iec(size)}.raw"
    if path.is_file() and path.stat().st_size == size:
        say(f"the image is {path}, made by an earlier run")
        return path
    none = "" if settings.image else "no --image was named: "
    say(f"{none}making {path}, {iec(size)} of ext4 with this machine's own programs")
    require_space(settings.out, 2 * size + 16 * MIB)
    with WorkDirectory(settings.out, settings.out) as work:
        unfinished = work.directory / path.name
        _make(work.directory, unfinished, size, size // BYTES_PER_FILE[settings.extent])
        with open(unfinished, "rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    return path


def _make(directory: Path, path: Path, size: int, count: int) -> None:
    make, change = (filesystem.program(name) for name in ("mkfs.ext4", "debugfs"))
    if make is None or change is None:
        raise Missing(
            "making an image needs mkfs.ext4 and debugfs (e2fsprogs), which are not installed: name an --image"
        )
    files = directory / "tree"
    files.mkdir()
    tree.make(str(files), count, size * 3 // 4)
    with open(path, "wb") as file:
        file.truncate(size)
    options = f"lazy_itable_init=0,lazy_journal_init=0,hash_seed={UUID},root_owner=0:0"
    run([make, "-q", "-F", "-b", "4096", "-U", UUID, "-E", options, "-d", str(files), str(path)])
    names = sorted(str(one.relative_to(files)) for one in files.rglob("*") if one.is_file())
    requests = directory / "requests"
    gone = random.Random(1).sample(names, len(names) // DELETED_ONE_IN)
    requests.write_text("".join(f'rm "/{name}"\n' for name in sorted(gone)), encoding="utf-8", errors="surrogateescape")
    run([change, "-w", "-f", str(requests), str(path)])
    shutil.rmtree(files)
