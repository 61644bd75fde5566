"""A guest that runs Debian's kernel, for features that this machine's kernel may lack. It is built from packages, and
emulated by QEMU without hardware virtualisation, so it is slow."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Mapping, Sequence

from bench.report.store import OUT_DIR
from boot.cpio import Archive
from boot.error import BuildError
from boot.packages import Kernel, Packages
from cheetah.bench.failure import BenchError
from cheetah.bench.process import run

DIR = os.path.join(OUT_DIR, "guest")
MODULES = ("sch_fq", "sch_etf", "veth")
BUSYBOX = "/bin/busybox"
APPLETS = ("cat", "echo", "grep", "insmod", "mkdir", "mount", "poweroff", "seq", "sed", "sh", "sleep", "time")
PROGRAMS = ("ip", "tc")
BOOT_LIMIT_S = 180.0
MEMORY_MIB = 1024


def _libraries(program: str) -> list[str]:
    """Returns the libraries that a program is linked with, and its loader; none if it is static."""
    return re.findall(r"(/\S+) \(0x", run(["ldd", program], check=False))


def _copy(made: Archive, name: str, path: str) -> None:
    """Adds a program of this machine, and the libraries that it is linked with."""
    made.copy(name, path)
    for library in _libraries(path):
        made.copy(library.lstrip("/"), library)


def archive(script: str, programs: Mapping[str, str], kernel: Kernel, modules: Sequence[str] = MODULES) -> bytes:
    """Returns the guest's file system: busybox, `ip`, `tc`, modules, programs by name, and the script that it runs."""
    if not os.path.exists(BUSYBOX):
        raise BenchError("busybox is not installed; it is in the package busybox-static")
    made = Archive()
    for name in ("bin", "dev", "proc", "sys", "tmp", "modules"):
        made.directory(name)
    _copy(made, "bin/busybox", BUSYBOX)
    for applet in APPLETS:
        made.link(f"bin/{applet}", "busybox")
    for name in PROGRAMS:
        path = shutil.which(name)
        if not path:
            raise BenchError(f"{name} is not installed; it is in the package iproute2")
        _copy(made, f"bin/{name}", path)
    for name in modules:
        made.file(f"modules/{name}.ko", kernel.module(kernel.find(name)))
    for name, path in programs.items():
        _copy(made, f"bin/{name}", path)
    made.file("init", script.encode())
    return made.content()


@dataclasses.dataclass(frozen=True)
class Machine:
    """The emulated machine."""

    # QEMU's options for processors and the network, and the kernel's.
    options: tuple[str, ...] = ("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2")
    network: tuple[str, ...] = ("-nic", "none")
    kernel: str = ""
    modules: tuple[str, ...] = MODULES
    # How long it may run.
    limit_s: float = BOOT_LIMIT_S


def boot(script: str, programs: Mapping[str, str], scratch_dir: str, machine: Machine = Machine()) -> str:
    """Runs a script in the guest, which must power the guest off; returns the console's output."""
    if not shutil.which("qemu-system-x86_64"):
        raise BenchError("qemu-system-x86_64 is not installed; it is in the package qemu-system-x86")
    initrd = os.path.join(scratch_dir, "initrd")
    try:
        kernel = Packages(DIR).kernel()
        content = archive(script, programs, kernel, machine.modules)
    except BuildError as error:
        raise BenchError(str(error)) from None
    with open(initrd, "wb") as file:
        file.write(content)
    argv = ["qemu-system-x86_64", "-M", "pc", "-m", str(MEMORY_MIB), "-nographic", "-no-reboot"]
    argv += [*machine.options, *machine.network, "-kernel", kernel.image, "-initrd", initrd]
    argv += ["-append", f"console=ttyS0 quiet loglevel=1 panic=-1 {machine.kernel}".strip()]
    return str(run(argv, machine.limit_s))
