"""Guests that boot the image, emulated by QEMU without hardware virtualisation, on a network of their own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from boot import menu
from lab.namespace import Namespace

MEMORY_MIB = 4096
# Emulation is slow, and other tests may run beside it. Only time in which the test runs counts: guests stand still while the
# whole test is stopped.
PATIENCE_S = 240.0
STEP_S = 0.2
HOST_ADDRESS = "10.77.0.1"
# The requests to each disk, by the name of its drive: reads, writes, and flushes.
Requests = dict[str, tuple[int, int, int]]
CHEETAH = os.environ.get("CHEETAH_STATIC") or str(Path(__file__).resolve().parents[3] / "target" / "static" / "cheetah")
PROGRAMS = ("qemu-system-x86_64", "dnsmasq", "ip", "nsenter")


def missing(*programs: str) -> str | None:
    """Returns why guests, and programs of this machine, cannot run here, or None."""
    if os.geteuid() != 0:
        return "it needs root, for a network namespace"
    absent = [name for name in (*PROGRAMS, *programs) if not shutil.which(name)]
    return f"{', '.join(absent)} is not installed" if absent else None


def wait_for(condition: Callable[[], object], what: str) -> Any:
    """Returns the first true answer of the condition; fails the test with `what` after a while."""
    for _ in range(round(PATIENCE_S / STEP_S)):
        answer = condition()
        if answer:
            return answer
        time.sleep(STEP_S)
    raise AssertionError(f"not within {PATIENCE_S:.0f} s: {what}")


def _outputs(process: subprocess.Popen[str]) -> tuple[str, str] | None:
    """Returns both outputs of a process that has ended, or None."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=STEP_S)
    return None


class Room:
    """A network segment in a namespace of this machine, with a DHCP server, which takes more options of dnsmasq, and a web
    server."""

    def __init__(self, dir: str, dhcp: Sequence[str] = (), web_root: str | None = None) -> None:
        self.env = {**os.environ, "XDG_CONFIG_HOME": os.path.join(dir, "config")}
        self._namespace = Namespace(f"boot{os.getpid()}-{os.urandom(2).hex()}")
        self._dir = dir
        self._taps = 0
        self._namespace.create()
        self._run("ip", "link", "add", "br0", "type", "bridge")
        self._run("ip", "addr", "add", f"{HOST_ADDRESS}/24", "dev", "br0")
        self._run("ip", "link", "set", "br0", "up")
        argv = [
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--port=0",
            "--interface=br0",
            "--bind-interfaces",
        ]
        argv += ["--dhcp-range=10.77.0.50,10.77.0.99,1h", f"--dhcp-leasefile={dir}/leases", "--dhcp-authoritative"]
        # By default it looks for three seconds whether an address is taken before it offers it.
        argv += ["--no-ping", "--user=root", f"--pid-file={dir}/dnsmasq.pid"]
        argv += dhcp
        with open(os.path.join(dir, "dnsmasq.log"), "wb") as log:
            self._started = [subprocess.Popen(self._namespace.command(argv), stdout=log, stderr=log)]

        if web_root:
            self.start(sys.executable, "-m", "http.server", "80", "--bind", HOST_ADDRESS, "--directory", web_root)

    def _run(self, *argv: str) -> str:
        return self._namespace.run(argv)

    def tap(self) -> str:
        """Adds a port for one guest; returns its name."""
        name = f"tap{self._taps}"
        self._taps += 1
        self._run("ip", "tuntap", "add", name, "mode", "tap")
        self._run("ip", "link", "set", name, "master", "br0", "up")
        return name

    def command(self, *argv: str) -> list[str]:
        """Returns a command line that runs on this network."""
        return self._namespace.command(argv)

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command on this network to its end. Its rooms are this network's own."""
        command = self.command(*argv)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)
        try:
            out, err = wait_for(lambda: _outputs(process), f"the end of {argv}")
        finally:
            process.kill()
        assert not check or process.returncode == 0, f"{argv}: {out}{err}"
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        """Starts a command on this network, which runs until the end."""
        with open(os.path.join(self._dir, f"{os.path.basename(argv[0])}.log"), "ab") as log:
            process = subprocess.Popen(self.command(*argv), stdout=log, stderr=log, env=self.env)
        self._started.append(process)
        return process

    def serve(self) -> None:
        """Lets machines in to the only room of this network."""
        self.start(CHEETAH, "room", "serve")
        log = os.path.join(self._dir, f"{os.path.basename(CHEETAH)}.log")
        wait_for(lambda: "lets machines in at" in Path(log).read_text(), "room serve")

    def status_of(self, node: str) -> Any:
        """Returns the status that the node at this address reports to an examiner of its room."""
        tls = os.path.join(self._dir, "tls")
        if not os.path.exists(tls):
            self.run(CHEETAH, "room", "export", tls)
        argv = ["curl", "-sS", "-k", "--cert", f"{tls}/client-cert.pem", "--key", f"{tls}/client-key.pem"]
        return json.loads(self.run(*argv, f"https://{node}:10810/v1/status").stdout)

    def close(self) -> None:
        """Ends everything on it."""
        for process in self._started:
            process.terminate()
            process.wait()
        self._namespace.remove()


class Guest:
    """One emulated machine."""

    def __init__(
        self,
        room: Room,
        dir: str,
        name: str,
        number: int,
        boot: Sequence[str],
        disks: Sequence[str] = (),
        adapter: str = "e1000",
        processors: int = 1,
        memory_mib: int = MEMORY_MIB,
    ) -> None:
        os.makedirs(dir, exist_ok=True)
        self.name = name
        self._serial = os.path.join(dir, f"{name}.serial")
        self._monitor = os.path.join(dir, f"{name}.qmp")
        mac = f"52:54:00:00:00:{number:02x}"
        argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", str(memory_mib)]
        # With several processors, a kernel that patches its code may stop at a breakpoint that the emulator notices too
        # late.
        argv += ["-smp", str(processors)]
        argv += [
            "-display",
            "none",
            "-serial",
            f"file:{self._serial}",
            "-qmp",
            f"unix:{self._monitor},server=on,wait=off",
        ]
        argv += ["-netdev", f"tap,id=n0,ifname={room.tap()},script=no,downscript=no"]
        argv += ["-device", f"{adapter},netdev=n0,mac={mac}", *disks, *boot]
        if "-M" not in argv:
            argv += ["-M", "pc"]
        self.last_requests: Requests = {}
        self._process = subprocess.Popen(room.command(*argv), stdin=subprocess.DEVNULL)

    def console(self) -> str:
        """Returns what it printed on its serial line."""
        with contextlib.suppress(FileNotFoundError), open(self._serial, encoding="utf-8", errors="replace") as file:
            return file.read()
        return ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Waits until the console has shown the pattern; fails with the console's end."""
        found = wait_for(
            lambda: re.search(pattern, self.console()) or (self.ended and "ended"),
            f"{pattern}\n{self.console()[-2000:]}",
        )
        assert found != "ended", f"{self.name} ended before {pattern}:\n{self.console()[-2000:]}"
        return found  # type: ignore[no-any-return]

    @property
    def ended(self) -> bool:
        """Whether the machine is off."""
        return self._process.poll() is not None

    def monitor(self, command: str, **arguments: object) -> Any:
        """Runs one command of QEMU's monitor."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._monitor)
            stream = connection.makefile("rw", encoding="utf-8")
            answers: list[Any] = []
            for message in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                stream.write(json.dumps(message))
                stream.flush()
                answers = [json.loads(stream.readline())]
                while "return" not in answers[-1] and "error" not in answers[-1]:
                    answers.append(json.loads(stream.readline()))
        assert "return" in answers[-1], answers
        return answers[-1]["return"]

    def press(self, key: str) -> None:
        """Presses a key of its keyboard."""
        self.monitor("send-key", keys=[{"type": "qcode", "data": key}])

    def plug_in(self, path: str) -> None:
        """Plugs in a USB disk."""
        self.monitor(
            "blockdev-add", driver="raw", **{"node-name": "late", "file": {"driver": "file", "filename": path}}
        )
        self.monitor("device_add", driver="usb-storage", bus="xhci.0", drive="late", id="late")

    def picture(self, path: str) -> None:
        """Writes its screen as a PNG image."""
        self.monitor("screendump", filename=path, format="png")

    def disk_requests(self) -> Requests:
        """Returns the requests to each disk so far, by the name of its drive: reads, writes, and flushes."""
        stats = self.monitor("query-blockstats")
        return {
            disk.get("device") or disk.get("node-name") or disk.get("qdev", ""): (
                disk["stats"]["rd_operations"],
                disk["stats"]["wr_operations"] + disk["stats"]["unmap_operations"],
                disk["stats"]["flush_operations"],
            )
            for disk in stats
        }

    def requests_or_end(self) -> bool:
        """Returns whether the machine is off, after noting the requests to its disks while it was on."""
        with contextlib.suppress(OSError, ValueError):
            self.last_requests = self.disk_requests()
        return self.ended

    def kill(self) -> None:
        """Cuts its power."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def room(dir: str, dhcp: Sequence[str] = (), web_root: str | None = None) -> Iterator[Room]:
    """A room that is closed at the end."""
    made = Room(dir, dhcp, web_root)
    try:
        yield made
    finally:
        made.close()


def direct(live: str, entry: menu.Entry, lab: str | None = None) -> list[str]:
    """Returns QEMU's options that start the kernel without a boot loader. The kernel prints its messages."""
    paths = [os.path.join(live, "pxe", name) for name in entry.archives] + ([lab] if lab else [])
    joined = f"{lab or live}.{entry.name}.initrd"
    with open(joined, "wb") as out:
        for path in paths:
            with open(path, "rb") as file:
                shutil.copyfileobj(file, out)
    kernel = os.path.join(live, "pxe", "vmlinuz")
    # Without no_timer_check, a kernel stops if its emulator gets no processor while it counts the timer's interrupts.
    options = entry.command_line().replace("quiet loglevel=1", "loglevel=6 no_timer_check")
    return ["-kernel", kernel, "-initrd", joined, "-append", options]
