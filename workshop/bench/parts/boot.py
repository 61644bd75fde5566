"""The boot image: how large it is, and how long an emulated machine takes until it has joined a room."""

import os
import time
from pathlib import Path

from bench.scratch import Scratch
from bench.settings import Settings
from boot import menu
from boot.tests import guest, test_media, test_start
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.units import MIB

LIVE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))), "target", "live"
)
# What is allowed: seconds until a machine has joined, and the size of the image.
KERNEL_S, DISC_S, SECURE_BOOT_S, ISO_BYTES = 8.0, 20.0, 60.0, 40 * MIB
POLL_S = 0.02


def _lap(machine: guest.Guest, log: str) -> tuple[float, float]:
    """Returns when the kernel's first message appeared and when the machine had joined, in seconds from now."""
    start, kernel = time.monotonic(), 0.0
    joined = Path(log).read_text().count(" joined as ")
    while Path(log).read_text().count(" joined as ") == joined:
        kernel = kernel or ("Linux version" in machine.console()) * (time.monotonic() - start)
        time.sleep(POLL_S)
    return kernel, time.monotonic() - start


def _turns(room: guest.Room, dir: str, rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each way to start, one per round."""
    room.run(guest.CHEETAH, "room", "init", "lab")
    room.serve()
    archive, disc = os.path.join(dir, "lab.img"), os.path.join(dir, "lab.iso")
    for out in (archive, disc):
        argv = ["--image", f"{LIVE}/cheetah.iso", "--address", guest.HOST_ADDRESS, "--out", out]
        room.run(guest.CHEETAH, "room", "boot-image", *argv)
    kernel = guest.direct(LIVE, menu.LEND, archive)
    log = os.path.join(dir, f"{os.path.basename(guest.CHEETAH)}.log")
    laps: dict[str, list[float]] = {}
    for number in range(1, rounds + 1):
        firmware = Path(dir, f"firmware{number}")
        firmware.mkdir()
        secure = [*test_media.uefi(firmware, True), *test_media.stick(disc)]
        for name, boot, adapter in (
            ("e1000", kernel, "e1000"),
            ("virtio", kernel, "virtio-net-pci"),
            ("disc", test_start.disc(disc), "e1000"),
            ("secure", secure, "e1000"),
        ):
            machine = guest.Guest(room, dir, f"{name}{number}", number, boot, adapter=adapter, processors=2)
            started, joined = _lap(machine, log)
            machine.kill()
            laps.setdefault(name, []).append(joined - started if boot is kernel else joined)
            print(f"  {name:<8} {laps[name][-1]:.1f} s", flush=True)
    return laps


def measure(settings: Settings) -> list[Figure]:
    """Measures the part; returns its figures."""
    if why := guest.missing() or (
        None if os.path.exists(f"{LIVE}/cheetah.iso") else "there is no image: run make live"
    ):
        raise BenchError(why)
    with Scratch() as scratch, guest.room(scratch.ram_dir) as room:
        laps = _turns(room, scratch.ram_dir, settings.rounds)
    figures = [
        Figure(
            f"boot/{key}",
            what,
            "s",
            "cheetah",
            {"cheetah": laps[key], "allowed": [allowed_s] * settings.rounds},
            "lower",
            1.0,
        )
        for key, what, allowed_s in (
            ("e1000", "kernel's start to joined, adapter e1000", KERNEL_S),
            ("virtio", "kernel's start to joined, adapter virtio-net", KERNEL_S),
            ("disc", "power on to joined, disc, BIOS", DISC_S),
            ("secure", "power on to joined, stick, Secure Boot", SECURE_BOOT_S),
        )
    ]
    sizes = {"cheetah": [os.path.getsize(f"{LIVE}/cheetah.iso") / MIB], "allowed": [ISO_BYTES / MIB]}
    return [*figures, Figure("boot/iso", "the image, without firmware", "MiB", "cheetah", sizes, "lower", 1.0)]
