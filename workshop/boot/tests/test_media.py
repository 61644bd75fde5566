"""The ways to start the image: disc and stick, BIOS and UEFI, with and without Secure Boot, and the network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from boot import __main__ as build
from boot import cpio
from boot.tests import guest
from boot.tests.conftest import CHEETAH, LEVEL, ROOT
from boot.tests.shell import PACKAGES
from boot.tests.test_start import STARTED

FIRMWARE = "/usr/share/OVMF"


def stick(path: str) -> list[str]:
    """Returns QEMU's options for a USB stick."""
    argv = ["-device", "qemu-xhci,id=xhci", "-drive", f"if=none,id=stick,format=raw,readonly=on,file={path}"]
    return [*argv, "-device", "usb-storage,bus=xhci.0,drive=stick,bootindex=0"]


def uefi(dir: Path, secure: bool) -> list[str]:
    """Returns QEMU's options for UEFI firmware, with the keys that ship with machines if Secure Boot is on."""
    code, variables = (
        ("OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd") if secure else ("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd")
    )
    if not os.path.exists(f"{FIRMWARE}/{code}"):
        pytest.skip("there is no UEFI firmware for guests: the package ovmf")
    own = shutil.copy(f"{FIRMWARE}/{variables}", dir / "variables.fd")
    argv = ["-M", "q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"] if secure else ["-M", "q35"]
    argv += ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={FIRMWARE}/{code}"]
    return [*argv, "-drive", f"if=pflash,unit=1,format=raw,file={own}"]


def test_a_stick_starts_a_machine_with_a_bios(live: str, room: guest.Room, tmp_path: Path) -> None:
    machine = guest.Guest(room, str(tmp_path), "stick", 1, stick(f"{live}/cheetah.iso"))
    machine.wait_for(STARTED)
    machine.kill()


def test_a_stick_starts_a_machine_with_uefi(live: str, room: guest.Room, tmp_path: Path) -> None:
    machine = guest.Guest(room, str(tmp_path), "uefi", 1, [*uefi(tmp_path, False), *stick(f"{live}/cheetah.iso")])
    machine.wait_for(STARTED)
    assert "Secure Boot: enabled" not in machine.console()
    machine.kill()


def test_a_stick_starts_a_machine_with_secure_boot(live: str, room: guest.Room, tmp_path: Path) -> None:
    machine = guest.Guest(room, str(tmp_path), "secure", 1, [*uefi(tmp_path, True), *stick(f"{live}/cheetah.iso")])
    machine.wait_for("Secure Boot: enabled")
    machine.wait_for(STARTED)
    machine.kill()


def test_secure_boot_refuses_a_changed_boot_loader(live: str, room: guest.Room, tmp_path: Path) -> None:
    image = tmp_path / "changed.iso"
    content = Path(live, "cheetah.iso").read_bytes()
    grub = next(Path(PACKAGES).glob("grub-efi-amd64-signed_*/usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed"))
    # The code, which the signature covers, at a place that occurs once in the image.
    needle = grub.read_bytes()[0x2000:0x2040]
    assert content.count(needle) == 1
    image.write_bytes(content.replace(needle, needle[:-1] + bytes([needle[-1] ^ 1])))
    machine = guest.Guest(room, str(tmp_path), "changed", 1, [*uefi(tmp_path, True), *stick(str(image))])
    machine.wait_for("Verification failed|Security Violation|Access Denied")
    assert STARTED not in machine.console()
    machine.kill()


def documented_dhcp() -> list[str]:
    """Returns the options of dnsmasq that docs/guide/boot-network.md gives to machines that start."""
    lines = (ROOT / "docs" / "guide" / "boot-network.md").read_text().splitlines()
    found = [line.strip() for line in lines if re.match(r" +dhcp-(match|boot|vendorclass|option-force)=", line)]
    assert len(found) >= 6
    return [f"--{line}" for line in found]


@pytest.mark.parametrize("way", ["bios", "bios-http", "uefi-http", "http"])
def test_a_machine_starts_over_the_network(live: str, tmp_path: Path, way: str) -> None:
    why = guest.missing()
    if why:
        pytest.skip(why)
    tree = f"{live}/pxe"
    # By TFTP alone; the boot loader by TFTP and the kernel by HTTP; and all by HTTP.
    dhcp = [*documented_dhcp(), "--enable-tftp", f"--tftp-root={tree}"]
    options, adapter, web_root = ["-boot", "n"], "e1000", tree if "http" in way else None
    if "uefi" in way or way == "http":
        options = [*uefi(tmp_path, False), *options]
    if way == "http":
        # The firmware's own client fetches the disc; the adapter's ROM has none for discs, and PXE is switched off.
        options = [*uefi(tmp_path, False)]
        for family in ("IPv4", "IPv6"):
            options += ["-fw_cfg", f"name=opt/org.tianocore/{family}PXESupport,string=no"]
        adapter, web_root = "virtio-net-pci,romfile=,bootindex=0", live
    with guest.room(str(tmp_path), dhcp, web_root) as room:
        machine = guest.Guest(room, str(tmp_path), way, 1, options, adapter=adapter)
        machine.wait_for(STARTED)
        machine.kill()


def test_the_image_built_twice_is_the_same(live: str, tmp_path: Path) -> None:
    again = tmp_path / "again"
    build.build(str(again), CHEETAH, LEVEL, PACKAGES)
    differing = subprocess.run(
        ["diff", "-rq", f"{live}/pxe", str(again / "pxe")], capture_output=True, text=True, check=False
    )
    assert differing.stdout == ""
    assert Path(live, "cheetah.iso").read_bytes() == (again / "cheetah.iso").read_bytes()
    if LEVEL == cpio.LEVEL:
        assert os.path.getsize(again / "cheetah.iso") <= 40 << 20
