"""Locked volumes, read through a mount: beside the other programs that decrypt them, beside the same volume unlocked, and over a
delayed link."""

from __future__ import annotations

import dataclasses
import functools
import glob
import gzip
import os
import shutil
import time
from collections.abc import Callable, Mapping

from bench.harness import fio
from bench.harness.figures import Metric, from_rounds
from bench.harness.fio import Job
from bench.harness.rounds import interleave
from bench.images import bitlocker, examined
from bench.images.examined import ExaminedImage
from bench.images.site import Line, Site
from bench.scratch import Scratch, drop_caches, write_random
from bench.settings import Settings
from bench.tools import cheetah, examiner, peers
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import GIB, MIB, iec
from cheetah.bench.verbs import Enter

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
# A real volume of BitLocker (AES-XTS, 128 bits) with NTFS in it, and its password.
BITLOCKER, PASSWORD = "locked/aes-xts_128.bin.gz", "password12!@"
PASSPHRASE = "benchmark"
OURS, UNLOCKED = "cheetah mount --unlock", "cheetah mount, the same unlocked"
LINE = Line("1gbit", 20)
LISTING_LIMIT_S = 120.0
LISTING_BAR = 1.15
LISTING_NOTE = (
    "From the command that mounts on, caches dropped before: for a locked volume with the time to make its key. The volume of BitLocker "
    "around the NTFS is made by the benchmark, and its recovery password opens it; the real ones at hand are cut off."
)
LUKS_NOTE = "The volume of LUKS around the NTFS has no bar. Its key takes about as long as one of BitLocker."
# Of the derivation of a key, in milliseconds: about what the 1,048,576 rounds of BitLocker take.
KEY_MS = 200
NOTE = "A fresh mount for each turn, the encrypted image in the page cache, requests past the page cache of the mount, four in flight."


@dataclasses.dataclass(frozen=True)
class Locked:
    """A locked volume, its key file, and the content of the volume as a file."""

    path: str
    keys: str
    content: str


def mounted(scratch: Scratch, source: str, keys: str, enter: Enter = list) -> str:
    """Mounts a source; returns the file of its opened volume."""
    directory = scratch.make_dir("mount")
    cheetah.serve(scratch, OURS, ["mount", source, directory, "--unlock", keys], enter)
    found = glob.glob(os.path.join(directory, "*.unlocked.raw"))
    if len(found) != 1:
        raise BenchError(f"{OURS} {source} shows {found or 'no opened volume'}")
    return found[0]


def key_file(scratch: Scratch, key: str) -> str:
    """Writes a key file; returns its path."""
    path = scratch.path("keys")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{key}\n")
    return path


def locked(scratch: Scratch, path: str, key: str) -> Locked:
    """Describes a volume, and writes its content, as Cheetah reads it, to a file in memory."""
    keys = key_file(scratch, key)
    content = os.path.join(scratch.ram_dir, scratch.unique("content"))
    with scratch.child() as turn:
        shutil.copyfile(mounted(turn, path, keys), content)
    return Locked(path, keys, content)


def real_bitlocker(scratch: Scratch) -> Locked:
    """A real volume of BitLocker, from the folder of real images."""
    folder = os.environ.get("CHEETAH_EVIDENCE", os.path.join(ROOT, "../shared/evidence"))
    path = os.path.join(scratch.ram_dir, "bitlocker.raw")
    try:
        with gzip.open(os.path.join(folder, BITLOCKER)) as packed, open(path, "wb") as file:
            shutil.copyfileobj(packed, file, MIB)
    except FileNotFoundError as error:
        raise BenchError(f"needs {BITLOCKER} in a folder of real images (CHEETAH_EVIDENCE)") from error
    return locked(scratch, path, PASSWORD)


def luks(scratch: Scratch, size_bytes: int) -> Locked:
    """A volume of LUKS 1 (AES-XTS with 256 bits), which all of these programs read; its content is noise."""
    path = write_random(os.path.join(scratch.ram_dir, "luks.raw"), size_bytes)
    how = ["--type", "luks1", "--cipher", "aes-xts-plain64", "--key-size", "512", "--hash", "sha256"]
    how += ["--pbkdf-force-iterations", "1000"]
    line = 'printf %s "$0" | cryptsetup luksFormat --batch-mode --key-file - "$@"'
    run(["bash", "-c", line, PASSPHRASE, *how, path])
    return locked(scratch, path, PASSPHRASE)


def bitlocker_around(scratch: Scratch, image: str) -> Locked:
    """An NTFS in a volume of BitLocker."""
    path = os.path.join(scratch.ram_dir, "bitlocker-ntfs.raw")
    bitlocker.make(image, path)
    return Locked(path, key_file(scratch, bitlocker.RECOVERY_PASSWORD), image)


def luks_around(scratch: Scratch, image: str) -> Locked:
    """An image in a volume of LUKS 1."""
    path = os.path.join(scratch.ram_dir, "luks-ntfs.raw")
    how = ["--object", f"secret,id=key,data={PASSPHRASE}", "-o", f"key-secret=key,hash-alg=sha512,iter-time={KEY_MS}"]
    run(["qemu-img", "convert", "-f", "raw", "-O", "luks", *how, image, path])
    return Locked(path, key_file(scratch, PASSPHRASE), image)


def dislocker(volume: Locked, scratch: Scratch) -> str:
    """Mounts a volume of BitLocker through dislocker."""
    return fuse(scratch, ["dislocker-fuse", "-r", "-V", volume.path, f"-u{PASSWORD}", "--"], "dislocker-file")


def bdemount(volume: Locked, scratch: Scratch) -> str:
    """Mounts a volume of BitLocker through libbde."""
    return fuse(scratch, ["bdemount", "-p", PASSWORD, volume.path], "bde1")


def fuse(scratch: Scratch, argv: list[str], name: str) -> str:
    """Mounts with a program that puts itself into the background; returns the file of that name."""
    directory = scratch.make_dir("mount")
    run([*argv, directory])
    scratch.at_exit(peers.unmount, directory)
    return os.path.join(directory, name)


def by_nbdkit(volume: Locked, scratch: Scratch) -> str:
    """Mounts a volume of LUKS through nbdkit's filter and nbdfuse."""
    return str(peers.nbdfuse(scratch, peers.nbdkit_luks_on(scratch, volume.path, PASSPHRASE))[1])


def read(attach: Callable[[Scratch], str], image: str, settings: Settings) -> dict[str, float]:
    """Reads a file in records of 1 MiB, again and again, as far as the image reaches.

    The BitLocker image is cut off. dislocker's file has the size of the volume, and cannot be read beyond the image."""
    with Scratch() as turn:
        path = attach(turn)
        size_bytes = min(os.path.getsize(path), os.path.getsize(image)) // MIB * MIB
        job = Job("read", MIB, size_bytes, depth=4, runtime_s=settings.runtime_s)
        return {"rate": fio.directly_on_file(job, path).bytes_per_s / MIB}


def measure_reads(
    key: str, what: str, volume: Locked, others: Mapping[str, Callable[[Locked, Scratch], str]], settings: Settings
) -> list[Figure]:
    """Reads a locked volume, beside other programs and beside the same volume unlocked."""
    turns = {
        OURS: functools.partial(read, lambda turn: mounted(turn, volume.path, volume.keys), volume.path, settings),
        UNLOCKED: functools.partial(read, lambda turn: cheetah.mount(turn, volume.content)[1], volume.path, settings),
    }
    for name, attach in others.items():
        turns[name] = functools.partial(read, functools.partial(attach, volume), volume.path, settings)
    results = interleave(what, settings.rounds, turns)
    peer = {name: rounds for name, rounds in results.items() if name != UNLOCKED}
    same = {name: results[name] for name in (OURS, UNLOCKED)}
    rate = functools.partial(Metric, "rate", "", "MiB/s", "higher")
    return [
        *from_rounds(f"unlock/{key}", what, OURS, (rate(2.0),), peer),
        *from_rounds(f"unlock/{key}-unlocked", f"{what}, beside the volume unlocked", OURS, (rate(0.7),), same),
    ]


def listing_s(name: str, site: Site, attach: Callable[[Scratch], str], expected_sha256: str) -> dict[str, float]:
    """Mounts over the link from cold caches, and lists every file: seconds from the command that mounts."""
    with Scratch() as turn:
        drop_caches()
        site.stand_by()
        out, begun = turn.path("bodyfile"), time.perf_counter()
        if not examiner.listing(attach(turn), LISTING_LIMIT_S, out).finished:
            raise BenchError(f"the listing took more than {LISTING_LIMIT_S:g} s")
        seconds = time.perf_counter() - begun
        examiner.check_listing(name, out, expected_sha256)
        return {"seconds": seconds}


def served(image: ExaminedImage, path: str) -> ExaminedImage:
    """The image as a site serves it: in a volume, or in memory."""
    return dataclasses.replace(image, path=path, size_bytes=os.path.getsize(path))


def list_in_turns(
    what: str, image: ExaminedImage, volume: Locked, settings: Settings
) -> dict[str, list[dict[str, float]]]:
    """Lists a locked volume over a link, and the same file system unlocked over another one."""
    with Scratch() as scratch, LINE.lab() as lab:
        site = Site(scratch, lab, served(image, volume.path))
        with Scratch() as beside, LINE.lab() as other:
            plain = Site(beside, other, served(image, volume.content))
            ours = functools.partial(mounted, source=site.uri, keys=volume.keys, enter=site.enter)
            expected = image.listing_sha256
            turns = {
                OURS: lambda: listing_s(OURS, site, ours, expected),
                UNLOCKED: lambda: listing_s(
                    UNLOCKED, plain, lambda turn: cheetah.mount(turn, plain.uri, enter=plain.enter)[1], expected
                ),
            }
            return interleave(what, settings.rounds, turns, "seconds")


def measure_listings(settings: Settings) -> list[Figure]:
    """Lists an NTFS in BitLocker and in LUKS over a link, beside the same NTFS unlocked."""
    image = examined.get(examined.kinds("ntfs", settings.quick)[0])
    seconds = functools.partial(Metric, "seconds", "", "s", "lower")
    rows = (
        ("bitlocker", "BitLocker", bitlocker_around, seconds(LISTING_BAR, LISTING_NOTE)),
        ("luks", "LUKS 1", luks_around, seconds(None, LUKS_NOTE)),
    )
    figures: list[Figure] = []
    for key, name, around, metric in rows:
        what = f"fls -r of an NTFS of {iec(image.size_bytes)} in {name}, {LINE.name}"
        with Scratch() as scratch:
            # Both are served from memory.
            content = shutil.copyfile(image.path, os.path.join(scratch.ram_dir, "ntfs.raw"))
            results = list_in_turns(what, image, around(scratch, content), settings)
        figures += from_rounds(f"unlock/listing-{key}", what, OURS, (metric,), results)
    return figures


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    with Scratch() as scratch:
        windows, linux = real_bitlocker(scratch), luks(scratch, 64 * MIB if settings.quick else GIB)
        others = {"dislocker": dislocker, "bdemount": bdemount}
        figures = measure_reads("bitlocker", "BitLocker: reads of 1 MiB", windows, others, settings)
        figures += measure_reads("luks", "LUKS 1: reads of 1 MiB", linux, {peers.LUKS: by_nbdkit}, settings)
    figures += measure_listings(settings)
    return [dataclasses.replace(figure, note=figure.note or NOTE) for figure in figures]
