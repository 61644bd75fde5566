"""Files that are parts of images, or pretend to be, and files that claim more than they hold."""

import os
import random
import resource
import shutil
import signal
import subprocess
import zipfile
from pathlib import Path

from attack.images import run
from attack.stage import PATIENCE_S, Broken, Skipped, Stage

NAMES = (
    ("d.001", "d.002", "d.003"),
    ("d.dd.00", "d.dd.01", "d.dd.02"),
    ("xaa", "xab", "xac"),
    ("d.AA", "d.AB", "d.AC"),
    ("d.1", "d.2", "d.3"),
    ("d_01.dd", "d_02.dd", "d_03.dd"),
    ("d-1of3.img", "d-2of3.img", "d-3of3.img"),
    ("part1", "part2", "part3"),
)
"""Names that programs give to the parts of an image."""
MEMORY_BYTES = 512 << 20
"""The address space in which any command reads a small image."""


def parts(stage: Stage) -> None:
    """Acquires each part of sets of every name, whole and with a part missing: all of the content, or a refusal."""
    content = stage.content[: 3 << 20]
    for names in NAMES:
        for missing in (None, names[1]):
            folder = stage.path("set")
            folder.mkdir()
            for number, name in enumerate(names):
                if name != missing:
                    (folder / name).write_bytes(content[number << 20 : number + 1 << 20])
            for name in names:
                out = folder / "copy.img"
                if name != missing and run(stage, "acquire", folder / name, out) == 0 and out.read_bytes() != content:
                    raise Broken(f"{name} of {names} is acquired as a success, and is only a part")


def links(stage: Stage) -> None:
    """Puts links, pipes and devices under the names of parts and segments: nothing of them may be read."""
    secret = stage.path("secret")
    secret.write_bytes(b"a secret of this machine".ljust(1 << 20, b"."))
    e01 = stage.path("set.E01")
    stage.must("acquire", stage.image, e01, "--level", "none", "--segment-size", "4MiB")
    for first, second in ((stage.path("set.001"), None), (e01, e01.with_suffix(".E02"))):
        if second is None:
            first.write_bytes(stage.content[: 1 << 20])
            second = first.with_suffix(".002")
        for make in (lambda path: path.symlink_to(secret), os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
            second.unlink(missing_ok=True)
            make(second)
            out = stage.path("copy.img")
            if run(stage, "acquire", first, out) == 0 and b"secret" in out.read_bytes():
                raise Broken(f"a link in the place of {second.name} is acquired")


def pipes(stage: Stage) -> None:
    """Gives every verb a pipe under every kind of name, which another program has open or not: it must refuse by itself. Asked
    to stop meanwhile, it must end."""
    for suffix in (".drive", ".raw", ".E01", ".custody", ".qcow2", ".001", ".gz"):
        pipe = stage.path(f"pipe{suffix}")
        os.mkfifo(pipe)
        verbs: dict[str, tuple[str | Path, ...]] = {
            "verify": (),
            "acquire": (stage.path("copy.img"),),
            "export": ("--unix", stage.path(".sock")),
            "status": (),
        }
        for verb, more in verbs.items():
            _refuses(stage, verb, pipe, *more)
            # Now opening it does not block, and reading does.
            with pipe.open("r+b", buffering=0):
                _refuses(stage, verb, pipe, *more)
            for asked in (signal.SIGTERM, signal.SIGINT):
                _refuses(stage, verb, pipe, *more, asked=asked)


def _refuses(stage: Stage, *words: str | Path, asked: signal.Signals | None = None) -> None:
    """Runs a command that must end with an error, or by the signal that asks it to stop."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([stage.binary, *words], stdin=quiet, stdout=quiet, stderr=quiet, env=stage.environment())
    if asked:
        process.send_signal(asked)
    try:
        code = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.wait()
        after = f", after {asked.name}" if asked else ""
        raise Broken(f"cheetah {words[0]} of a pipe hangs{after}: {words[1]}") from error
    if code not in (1, 2, 3) and not (asked and code == -asked):
        raise Broken(f"cheetah {words[0]} of a pipe ended with {code}: {words[1]}")


def cut_disks(stage: Stage) -> None:
    """Cuts virtual disks of every kind short: none may be read as a success with other bytes."""
    if not (shutil.which("qemu-img") and shutil.which("qemu-nbd")):
        raise Skipped("there is no qemu-img or qemu-nbd")
    raw = stage.path("source.img")
    raw.write_bytes(stage.content[: 4 << 20] + bytes(2 << 20))
    kinds = [("qcow2", ""), ("qcow2", "compat=0.10"), ("vpc", "force_size=on"), ("vhdx", "")]
    subformats = ("monolithicSparse", "monolithicFlat", "twoGbMaxExtentSparse", "twoGbMaxExtentFlat", "streamOptimized")
    kinds += [("vmdk", f"subformat={subformat}") for subformat in subformats]
    for kind, options in kinds:
        folder = stage.path("disk")
        folder.mkdir()
        image = folder / f"disk.{kind.replace('vpc', 'vhd')}"
        asked = ["-o", options] if options else []
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", kind, *asked, raw, image], check=True)
        largest = max(folder.iterdir(), key=lambda path: path.stat().st_size)
        whole = largest.read_bytes()
        for _ in range(stage.times(3, 30)):
            largest.write_bytes(whole[: stage.random.randrange(len(whole))])
            out = folder / "copy.img"
            if run(stage, "acquire", image, out) == 0 and not is_but_for_the_end(out, raw):
                raise Broken(f"a {kind} ({options}) cut to {largest.stat().st_size} bytes reads as zeros")
            for path in folder.glob("copy.img*"):
                path.unlink()


def is_but_for_the_end(copy: Path, raw: Path) -> bool:
    """Whether two files are equal but for the last piece of content, which may be partly beyond the end of an image."""
    (one, other), piece = (copy.read_bytes(), raw.read_bytes()), 2 << 20
    return len(one) == len(other) and one[: (4 << 20) - piece] == other[: (4 << 20) - piece]


def memory(stage: Stage) -> None:
    """Reads small files that claim much, in a limited address space."""
    deep = stage.path("deep.aff4")
    with zipfile.ZipFile(deep, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("container.description", "aff4://00000000-0000-0000-0000-000000000001")
        archive.writestr("version.txt", "major=1\nminor=0\ntool=x\n")
        archive.writestr("information.turtle", "@prefix : <x:> .\n:a :p " + "[:p " * 1_000_000)
    junk = random.Random(1).randbytes(4 << 20)
    tiny = stage.path("tiny.raw.gz")
    one = subprocess.run(["gzip", "-c"], input=b"x", capture_output=True, check=True).stdout
    tiny.write_bytes(one * 500_000)
    cut = stage.path("junk.qcow2")
    cut.write_bytes(b"QFI\xfb\0\0\0\3" + bytes(12) + b"\0\0\0\x10" + junk)
    for path in (deep, tiny, cut):
        words = [str(stage.binary), "--room", "none", "verify", str(path)]
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))  # noqa: E731
        ran = subprocess.run(words, capture_output=True, preexec_fn=limit, timeout=300)
        if ran.returncode not in (0, 1, 2, 3) or b"panicked" in ran.stderr:
            said = f"{ran.returncode} {ran.stderr[-300:]!r}"
            raise Broken(f"{path.name} takes more than {MEMORY_BYTES >> 20} MiB: {said}")
