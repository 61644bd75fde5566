"""A guest that runs Debian's kernel, for features that this machine's kernel may lack. It is made of packages, and emulated by
QEMU without hardware virtualisation, so it is slow."""

from __future__ import annotations

import glob
import lzma
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence

from bench.report.store import OUT_DIR
from cheetah.bench.failure import BenchError
from cheetah.bench.process import run

KERNEL = "linux-image-6.12-amd64"
DIR = os.path.join(OUT_DIR, "guest")
MODULES = ("sch_fq", "sch_etf", "veth")
BUSYBOX = "/bin/busybox"
APPLETS = ("cat", "echo", "grep", "insmod", "mkdir", "mount", "poweroff", "seq", "sed", "sh", "sleep")
PROGRAMS = ("ip", "tc")
BOOT_LIMIT_S = 180.0
MEMORY_MIB = 1024


def kernel() -> tuple[str, list[str]]:
    """Returns the paths of the kernel and the modules, which are downloaded once."""
    image = os.path.join(DIR, "vmlinuz")
    modules = [os.path.join(DIR, f"{name}.ko") for name in MODULES]
    if not all(os.path.exists(path) for path in (image, *modules)):
        for program in ("apt-get", "apt-cache", "dpkg-deb", "tar"):
            if not shutil.which(program):
                raise BenchError(f"{program} is not installed; it is needed to unpack Debian's kernel")
        _unpack(_download(), image, modules)
    return image, modules


def _download() -> str:
    """Downloads the package of the newest kernel; returns its path."""
    depends = run(["apt-cache", "depends", "--important", KERNEL], check=False)
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if not found:
        raise BenchError(f"apt knows no package {KERNEL}; it is in Debian 12's security updates")
    os.makedirs(DIR, exist_ok=True)
    before = set(os.listdir(DIR))
    done = subprocess.run(["apt-get", "-q", "download", found[1]], cwd=DIR, capture_output=True, text=True, check=False)
    packages = [name for name in set(os.listdir(DIR)) - before if name.endswith(".deb")]
    if done.returncode != 0 or not packages:
        raise BenchError(f"{found[1]} could not be downloaded: {done.stderr.strip()[-400:]}")
    return os.path.join(DIR, packages[0])


def _unpack(package: str, image: str, modules: Sequence[str]) -> None:
    """Extracts the kernel and the modules from the package, and removes it."""
    root = os.path.join(DIR, "root")
    os.makedirs(root, exist_ok=True)
    wanted = ["./boot/vmlinuz-*", *(f"*/{name}.ko*" for name in MODULES)]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacker:
        argv = ["tar", "--extract", "--directory", root, "--wildcards", "--no-same-owner", *wanted]
        subprocess.run(argv, stdin=unpacker.stdout, check=False, capture_output=True)
    for path in modules:
        found = glob.glob(f"{root}/**/{os.path.basename(path)}*", recursive=True)
        if not found:
            raise BenchError(f"{package} has no module {os.path.basename(path)}")
        with open(found[0], "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(lzma.decompress(content) if found[0].endswith(".xz") else content)
    shutil.move(glob.glob(f"{root}/boot/vmlinuz-*")[0], image)
    shutil.rmtree(root)
    os.remove(package)


def _libraries(program: str) -> list[str]:
    """Returns the libraries that a program is linked with, and its loader; none if it is static."""
    return re.findall(r"(/\S+) \(0x", run(["ldd", program], check=False))


class Archive:
    """An initial RAM file system (cpio, "newc"; Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._names: set[str] = set()

    def _add(self, name: str, mode: int, content: bytes) -> None:
        if name in self._names:
            return
        self._names.add(name)
        encoded = name.encode() + b"\0"
        fields = (len(self._names), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        entry = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        entry += b"\0" * (-len(entry) % 4)
        self._parts.append(entry + content + b"\0" * (-len(content) % 4))

    def directory(self, name: str) -> None:
        """Adds a directory and its parents."""
        parent = os.path.dirname(name)
        if parent:
            self.directory(parent)
        self._add(name, stat.S_IFDIR | 0o755, b"")

    def file(self, name: str, content: bytes) -> None:
        """Adds an executable file."""
        self.directory(os.path.dirname(name) or "tmp")
        self._add(name, stat.S_IFREG | 0o755, content)

    def link(self, name: str, target: str) -> None:
        """Adds a symbolic link."""
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def copy(self, name: str, path: str) -> None:
        """Adds a file of this machine, and the libraries that it is linked with."""
        with open(path, "rb") as file:
            self.file(name, file.read())
        for library in _libraries(path):
            with open(library, "rb") as file:
                self.file(library.lstrip("/"), file.read())

    def content(self) -> bytes:
        """Returns the archive."""
        self._add("TRAILER!!!", 0, b"")
        return b"".join(self._parts)


def archive(script: str, programs: Mapping[str, str], modules: Sequence[str]) -> bytes:
    """Returns the guest's file system: busybox, `ip`, `tc`, modules, programs by name, and the script that it runs."""
    if not os.path.exists(BUSYBOX):
        raise BenchError("busybox is not installed; it is in the package busybox-static")
    made = Archive()
    for name in ("bin", "dev", "proc", "sys", "tmp", "modules"):
        made.directory(name)
    made.copy("bin/busybox", BUSYBOX)
    for applet in APPLETS:
        made.link(f"bin/{applet}", "busybox")
    for name in PROGRAMS:
        path = shutil.which(name)
        if not path:
            raise BenchError(f"{name} is not installed; it is in the package iproute2")
        made.copy(f"bin/{name}", path)
    for path in modules:
        made.copy(f"modules/{os.path.basename(path)}", path)
    for name, path in programs.items():
        made.copy(f"bin/{name}", path)
    made.file("init", script.encode())
    return made.content()


def boot(script: str, programs: Mapping[str, str], scratch_dir: str) -> str:
    """Runs a script in the guest, which has to power it off; returns the console's output."""
    if not shutil.which("qemu-system-x86_64"):
        raise BenchError("qemu-system-x86_64 is not installed; it is in the package qemu-system-x86")
    image, modules = kernel()
    initrd = os.path.join(scratch_dir, "initrd")
    with open(initrd, "wb") as file:
        file.write(archive(script, programs, modules))
    argv = ["qemu-system-x86_64", "-M", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
    argv += ["-m", str(MEMORY_MIB), "-nographic", "-no-reboot", "-nic", "none", "-kernel", image, "-initrd", initrd]
    return str(run([*argv, "-append", "console=ttyS0 quiet loglevel=1 panic=-1"], BOOT_LIMIT_S))
