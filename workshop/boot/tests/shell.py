"""Guests with Debian's kernel, busybox, this machine's programs and a shell, for tests of the kernel's block devices."""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from boot import initrd, modules
from boot.cpio import Archive
from boot.packages import Kernel, Packages
from boot.tests import guest

# Where Debian's packages stay from one run to the next.
PACKAGES = str(Path(__file__).resolve().parents[3] / "target" / "live" / "packages")
# The adapter, and what the kernel itself looks for when a file system computes checksums.
MODULES = ("e1000", "crc32c_generic", "libcrc32c")
ADDRESS = "10.77.0.{number}"
# The number of times that a command is sent to a machine that does not get all of it.
ATTEMPTS = 5
# Reads a command in one line, its length and then itself, base64, and answers with its output, base64, and its exit code. The
# line of a busy machine can lose bytes: such a command is not run, and sent again.
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /mnt /sbin /usr/bin /usr/sbin
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
ip link set lo up
for module in {modules}; do modprobe $module || echo "no module $module"; done
ip link set eth0 up
ip addr add {address}/24 dev eth0
exec </dev/ttyS1 >/dev/ttyS1 2>/dev/null
stty raw -echo
echo "the shell is ready" >/dev/console
while read -r length line; do
    if [ "${{#line}}" = "$length" ] && echo "$line" | base64 -d >/tmp/command; then
        sh /tmp/command >/tmp/output 2>&1 </dev/null
        code=$?
        echo "$(base64 -w0 </tmp/output) $code"
    else
        echo " lost"
    fi
done
"""


class Ended(NamedTuple):
    """A command that ended."""

    code: int
    output: str


def kernel() -> Kernel:
    """Returns Debian's kernel, downloaded unless it is there."""
    return Packages(PACKAGES).kernel()


class Shell(guest.Guest):
    """A machine that runs commands. It has the programs and the modules of these names, and files by their paths there."""

    def __init__(
        self,
        room: guest.Room,
        dir: str,
        programs: Sequence[str] = (),
        with_modules: Sequence[str] = (),
        files: dict[str, str] | None = None,
        memory_mib: int = 1024,
        number: int = 2,
        options: Sequence[str] = (),
    ) -> None:
        os.makedirs(dir, exist_ok=True)
        debian = kernel()
        self.address = ADDRESS.format(number=number)
        path = os.path.join(dir, f"shell{number}.initrd")
        with open(path, "wb") as file:
            # Packed, so that a guest with little memory has room for it beside what it unpacks to.
            file.write(_archive(debian, programs, (*MODULES, *with_modules), files or {}, self.address).compressed(3))
        boot = ["-kernel", debian.image, "-initrd", path]
        boot += ["-append", "console=ttyS0,115200 loglevel=6 panic=1 no_timer_check"]
        line = os.path.join(dir, f"shell{number}.line")
        options = ("-serial", f"unix:{line},server=on,wait=off", *options)
        super().__init__(room, dir, f"shell{number}", number, boot, options, memory_mib=memory_mib)
        self.wait_for("the shell is ready")
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(guest.PATIENCE_S)
        connection.connect(line)
        self._stream = connection.makefile("rwb")

    def run(self, command: str, check: bool = True) -> Ended:
        """Runs a command of the shell to its end."""
        line = base64.b64encode(command.encode())
        for _ in range(ATTEMPTS):
            self._stream.write(b"%d %s\n" % (len(line), line))
            self._stream.flush()
            answer = self._stream.readline().decode(errors="replace")
            if answer.strip() != "lost":
                break
        found = re.search(r"(\S*) (\d+)\s*$", answer)
        assert found, f"{command}: {answer!r}\n{self.console()[-2000:]}"
        ended = Ended(int(found[2]), base64.b64decode(found[1]).decode(errors="replace"))
        assert not check or ended.code == 0, (
            f"{command}: exit code {ended.code}\n{ended.output}\n{self.console()[-2000:]}"
        )
        return ended

    def output(self, command: str) -> str:
        """Runs a command of the shell, and returns what it prints."""
        return self.run(command).output.strip()

    def put(self, path: str, name: str) -> None:
        """Copies a small file of this machine."""
        content = base64.b64encode(Path(path).read_bytes()).decode()
        self.run(f"echo {content} | base64 -d >{name}")

    def start(self, command: str, log: str = "/dev/null") -> int:
        """Starts a command in the background; returns the id of its process."""
        return int(self.output(f"( {command} ) >{log} 2>&1 </dev/null & echo $!"))

    def until(self, command: str) -> str:
        """Repeats a command until it succeeds; returns what it printed."""
        ended = guest.wait_for(
            lambda: ended if (ended := self.run(command, check=False)).code == 0 else None,
            f"{command}\n{self.console()[-2000:]}",
        )
        return str(ended.output).strip()


def _archive(
    kernel: Kernel, programs: Sequence[str], names: Sequence[str], files: dict[str, str], address: str
) -> Archive:
    made = Archive()
    made.copy("bin/busybox", initrd.BUSYBOX)
    made.file("init", INIT.format(modules=" ".join(names), address=address).encode())
    made.file("bin/cheetah", initrd.stripped(guest.CHEETAH))
    for program in programs:
        path = shutil.which(program) or program
        made.copy(path.lstrip("/"), path)
        for library in _libraries(path):
            made.copy(library.lstrip("/"), library)
    for name, path in files.items():
        made.copy(name, path, 0o644)
    modules.add(made, kernel, modules.with_needed(kernel, names))
    return made


def _libraries(path: str) -> set[str]:
    """Returns the shared libraries of a program, and its loader."""
    shown = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(/\S+) \(0x", shown))
