"""Images to examine: NTFS and ext4 with this machine's own files in their directories; made once and kept.

Beside each image are the results of examining it locally: the listing, two hundred consecutive files and two hundred
random ones with their hashes, and the bytes the tools read for that.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator

from bench.scratch import DISK_DIR
from bench.tools import examiner
from cheetah.bench.process import run
from cheetah.bench.units import GIB, MIB, iec

ROOT = "/usr"
SMALL_BYTES_MAX = MIB
LARGE_BYTES_MAX = 64 * MIB
# Names that NTFS does not allow.
FORBIDDEN = set('<>:"\\|?*')
# One in this many files is deleted again when all are there.
DELETED_ONE_IN = 40
CHOSEN_FILES = 200
# Increment it when images or their descriptions change, so that older ones are made again.
VERSION = 2


@dataclasses.dataclass(frozen=True)
class ImageKind:
    """The content of an image."""

    fs: str
    size_bytes: int
    files: int
    content_bytes: int

    @property
    def name(self) -> str:
        """Returns its name in file names."""
        return f"{self.fs}-{iec(self.size_bytes)}"


def kinds(fs: str, quick: bool) -> tuple[ImageKind, ImageKind]:
    """Returns the small and the large image of a file system."""
    if quick:
        return ImageKind(fs, 64 * MIB, 800, 40 * MIB), ImageKind(fs, 256 * MIB, 3_000, 180 * MIB)
    return ImageKind(fs, 320 * MIB, 6_300, 230 * MIB), ImageKind(fs, 4 * GIB, 24_000, 3 * GIB)


@dataclasses.dataclass(frozen=True)
class FileSelection:
    """Files to extract: metadata addresses, hashes of their content, their total size, and the bytes of the image that
    The Sleuth Kit reads to extract them, each counted once."""

    addresses: list[str]
    sha256: list[str]
    content_bytes: int
    asked_bytes: int


@dataclasses.dataclass(frozen=True)
class ExaminedImage:
    """An image with its description. `asked_bytes` are read for the listing, each counted once."""

    path: str
    fs: str
    size_bytes: int
    lines: int
    files: int
    listing_sha256: str
    asked_bytes: int
    consecutive: FileSelection
    scattered: FileSelection

    @property
    def listing_path(self) -> str:
        """Returns the path of the listing, as `fls -r -m /` prints it for the local image."""
        return self.path.removesuffix(".raw") + ".bodyfile"


def get(kind: ImageKind) -> ExaminedImage:
    """Returns the image of a kind, making it if needed, at a minute per GiB."""
    directory = os.path.join(DISK_DIR, "evidence")
    path = os.path.join(directory, f"{kind.name}.raw")
    facts = path.removesuffix(".raw") + ".json"
    try:
        with open(facts, encoding="utf-8") as file:
            content = json.load(file)
        if content.pop("version") == VERSION and os.path.exists(path):
            chosen = {key: FileSelection(**content.pop(key)) for key in ("consecutive", "scattered")}
            return ExaminedImage(**{**content, **chosen, "path": path})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        pass
    os.makedirs(directory, exist_ok=True)
    print(f"  making {path}", flush=True)
    _make(kind, path)
    image = _examine(kind, path)
    with open(facts, "w", encoding="utf-8") as file:
        json.dump({"version": VERSION, **dataclasses.asdict(image)}, file)
    return image


def _make(kind: ImageKind, path: str) -> None:
    """Makes the file system, fills it and deletes some files. An unfinished image has another name."""
    unfinished = path + ".new"
    with open(unfinished, "wb") as file:
        file.truncate(kind.size_bytes)
    mounted = path + ".mounted"
    os.makedirs(mounted, exist_ok=True)
    if kind.fs == "ntfs":
        run(
            [
                "mkntfs",
                "--quick",
                "--force",
                "--quiet",
                "--sector-size",
                "512",
                "--partition-start",
                "0",
                "--heads",
                "255",
                "--sectors-per-track",
                "63",
                unfinished,
            ]
        )
        run(["ntfs-3g", "-o", "big_writes,noatime", unfinished, mounted])
    else:
        run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", unfinished])
        run(["mount", "-o", "loop,noatime", unfinished, mounted])
    try:
        _fill(kind, mounted)
    finally:
        run(["umount", mounted])
    os.rmdir(mounted)
    os.sync()
    os.rename(unfinished, path)


def _fill(kind: ImageKind, directory: str) -> None:
    copied = []
    for source in selection(kind.files, kind.content_bytes):
        target = os.path.join(directory, os.path.relpath(source, ROOT))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copystat(source, target)
        copied.append(target)
    # Flushed first, so that deleted files have existed on disk.
    os.sync()
    for target in copied[::DELETED_ONE_IN]:
        os.remove(target)


def _candidates() -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Yields every directory with its regular files and their sizes, in order."""
    for directory, subdirectories, names in os.walk(ROOT):
        subdirectories.sort()
        files = []
        for name in sorted(names):
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path) and not FORBIDDEN & set(path):
                files.append((os.path.getsize(path), path))
        yield directory, files


def selection(files: int, content_bytes: int) -> list[str]:
    """Returns files of this machine, the same at every call: all small files of random directories, up to `files`;
    then large ones, up to `content_bytes`; in the order of the directories."""
    chooser = random.Random(1)
    directories = list(_candidates())
    chooser.shuffle(directories)
    chosen: list[tuple[int, str]] = []
    for _, found in directories:
        small = [one for one in found if one[0] < SMALL_BYTES_MAX]
        if len(chosen) + len(small) <= files:
            chosen += small
    total = sum(size for size, _ in chosen)
    large = [one for _, found in directories for one in found if SMALL_BYTES_MAX <= one[0] <= LARGE_BYTES_MAX]
    for size, path in large:
        if total + size <= content_bytes:
            chosen.append((size, path))
            total += size
    return sorted(path for _, path in chosen)


def _examine(kind: ImageKind, path: str) -> ExaminedImage:
    """Examines the image locally, and records the results and the bytes read."""
    listing = path.removesuffix(".raw") + ".bodyfile"
    asked_bytes = examiner.traced_listing(path, listing)
    with open(listing, "rb") as file:
        text = file.read()
    files = examiner.regular_files(text.decode(errors="replace"))
    windows = [files[at : at + CHOSEN_FILES] for at in range(0, len(files) - CHOSEN_FILES + 1, CHOSEN_FILES)] or [files]
    # Of all runs of that many files, the one with the median amount of content.
    windows.sort(key=lambda window: sum(size for _, size in window))
    scattered = random.Random(1).sample(files, min(CHOSEN_FILES, len(files)))
    return ExaminedImage(
        path,
        kind.fs,
        kind.size_bytes,
        text.count(b"\n"),
        len(files),
        hashlib.sha256(text).hexdigest(),
        asked_bytes,
        _chosen(path, windows[len(windows) // 2]),
        _chosen(path, scattered),
    )


def _chosen(path: str, files: list[tuple[str, int]]) -> FileSelection:
    addresses = [address for address, _ in files]
    hashes, asked_bytes = examiner.traced_extraction(path, addresses)
    return FileSelection(addresses, hashes, sum(size for _, size in files), asked_bytes)
