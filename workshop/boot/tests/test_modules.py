"""The parts of the boot image that need no guest: modules, firmware, archives, the menu, and a laboratory's own image."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from boot import firmware, initrd, menu, modules
from boot.cpio import Archive
from boot.error import BuildError
from boot.tests import guest


def test_a_lending_image_with_a_storage_driver_is_refused() -> None:
    for name in (
        "drivers/ata/ahci.ko",
        "drivers/nvme/host/nvme-core.ko",
        "drivers/block/virtio_blk.ko",
        "fs/ext4/ext4.ko",
    ):
        with pytest.raises(BuildError, match="deny-list"):
            modules.refuse(["drivers/net/virtio_net.ko", name], modules.STORAGE, "the lending image")


def test_an_archive_lists_parents_first_and_ends_at_a_block() -> None:
    made = Archive()
    made.file("a/b/c", b"content")
    made.link("bin/sh", "busybox")
    content = made.content()
    assert len(content) % 512 == 0 and content.startswith(b"070701")
    assert [content.index(name) for name in (b"a\0", b"a/b\0", b"a/b/c\0")] == sorted(
        content.index(name) for name in (b"a\0", b"a/b\0", b"a/b/c\0")
    )


def test_the_same_files_give_the_same_archive() -> None:
    one, other = Archive(), Archive()
    for made, names in ((one, ("x", "y")), (other, ("y", "x"))):
        for name in names:
            made.file(name, name.encode())
    assert one.content() == other.content()


def test_an_archive_has_each_name_once_and_ends() -> None:
    made = Archive()
    made.file("a/b/c", b"12345")
    made.directory("a/b")
    made.link("d", "a/b/c")
    content = made.content()
    assert content.count(b"070701") == 5
    assert content.count(b"a/b\0") == 1 and b"12345" in content and content.rstrip(b"\0").endswith(b"TRAILER!!!")


def test_the_command_line_fills_the_place_for_a_laboratory_and_changes_nothing_else(tmp_path: Path) -> None:
    def cheetah(*argv: str) -> None:
        subprocess.run([guest.CHEETAH, "room", *argv], env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}, check=True)

    if not os.path.exists(guest.CHEETAH):
        pytest.skip("there is no static binary: run make static")
    around = os.urandom(4096)
    image, made = tmp_path / "image", tmp_path / "lab.iso"
    image.write_bytes(around + initrd.lab() + around)
    cheetah("init", "lab")
    cheetah("boot-image", "--image", str(image), "--out", str(made), "--address", "192.168.1.5", "--no-serve")
    content = made.read_bytes()
    assert len(content) == image.stat().st_size and made.stat().st_mode & 0o77 == 0
    assert content.startswith(around) and content.endswith(around)
    assert b"etc/cheetah/lend.room\0" in content and b"--join 192.168.1.5:10811" in content


def test_firmware_is_what_modules_name_and_packages_have(tmp_path: Path) -> None:
    module = b"code\0license=GPL\0firmware=nic/a.bin\0firmware=nic/b.bin\0firmware=../../etc/passwd\0author=x\0"
    assert firmware.named(module) == ["nic/a.bin", "nic/b.bin"]
    os.makedirs(tmp_path / "lib/firmware/nic")
    (tmp_path / "lib/firmware/nic/b.bin").write_bytes(b"microcode")
    found = firmware.collect(["nic/a.bin", "nic/b.bin"], [str(tmp_path)])
    assert found and "lib/firmware/nic/b.bin" in found.names() and b"a.bin" not in found.content()
    assert firmware.collect(["nic/a.bin"], [str(tmp_path)]) is None


def test_the_menu_has_firmware_only_where_the_image_has_it() -> None:
    without = menu.config([], "/boot", ["lend.img", "serve.img", "lab.img"])
    assert "initrd /boot/lend.img /boot/serve.img /boot/lab.img" in without and "firmware" not in without
    assert "/boot/lend.img /boot/firmware.img /boot/lab.img" in menu.config([], "/boot", [*menu.LAST, "lend.img"])


def test_the_screen_has_large_letters() -> None:
    rootfs = Path(initrd.HERE, "rootfs", "etc")
    program = (rootfs / "large").read_text().replace("/etc/letters", str(rootfs / "letters"))
    argv = ["awk", program]
    shown = subprocess.run(argv, input="Hi\n", capture_output=True, text=True, check=True, env={"LC_ALL": "C"}).stdout
    assert shown.splitlines() == [" █ █ █ ", " █▀█ █ ", " ▀ ▀ ▀ "]
    letters = {line.split()[0] for line in (rootfs / "letters").read_text().splitlines()}
    assert letters >= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:.-")


@pytest.mark.parametrize("count", [1, 8, 11])
def test_the_screen_of_a_served_machine_has_a_line_for_each_disk_and_fits(tmp_path: Path, count: int) -> None:
    model = "Samsung Portable SSD T7 Shield"
    for number in range(count):
        (tmp_path / f"sd{number}.warned").write_text(f"joined room lab as serve-56ab12 (key {'5f' * 32})\n")
        (tmp_path / f"sd{number}.said").write_text(
            f"/dev/sd{number} ({model}, serial S6YJNS0W{number:02}), 931.5GiB, is served\n"
            f"  read-only at nbd://0.0.0.0:{10809 + 2 * number}/sd{number} and to 192.168.100.100:{10821 + number}, to\n"
            "  which it connects\nwrites by this machine: refused by the kernel from now on\n"
        )
    shown = screen(tmp_path, "serve", f"seq -f sd%g 0 {count - 1}")
    assert f"sd0      931.5GiB 192.168.100.100:10821  10809  {model}" in "\n".join(shown)
    assert sum(line.startswith("sd") for line in shown) == min(count, 8)
    assert ("and 3 more" in shown) == (count > 8)


def test_the_screen_of_a_served_machine_shows_why_a_disk_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "sda.said").write_text("")
    (tmp_path / "sda.warned").write_text(
        "joined room lab as serve-56ab12 (key 00)\nerror: cannot read /dev/sda\nmore\n"
    )
    assert "sda: error: cannot read /dev/sda" in screen(tmp_path, "serve", "printf 'sda\\nsdb\\n'")
    assert "sdb: starting" in screen(tmp_path, "serve", "printf 'sda\\nsdb\\n'")


def test_the_screens_of_a_lending_machine_show_the_last_output_and_fit(tmp_path: Path) -> None:
    (tmp_path / "node.warned").write_text(
        f"joined room laboratory as lend-56ab12 (key {'5f' * 32})\n" + "warning: x\n" * 20
    )
    (tmp_path / "node.said").write_text(
        "node lend-56ab12 lends 3.6GiB: drives on [::]:10809, control on\n  https://[::]\n"
    )
    shown = screen(tmp_path, "lend", "true")
    assert "Disks visible: 0" in shown and shown[-1] == "  https://[::]"
    large_lines = [line for line in shown if "█" in line]
    assert len(large_lines) >= 8
    with (tmp_path / "node.said").open("a") as file:
        file.write("node lend-56ab12: wiped 1GiB in 16384 chunks, verified zero\n")
    ended = screen(tmp_path, "lend", "true", "receipt")
    assert "node lend-56ab12: wiped 1GiB in 16384 chunks, verified zero" in ended


def screen(run: Path, entry: str, disks: str, action: str = "draw") -> list[str]:
    """Returns a screen of 80 columns and 25 lines of the machine whose programs' output is in the directory `run`."""
    etc = Path(initrd.HERE, "rootfs", "etc")
    program = (etc / "screen").read_text().replace("/etc/", f"{tmp_etc(run, etc)}/").replace("/run/", f"{run}/")
    program = program.replace("at in /dev/tty1 /dev/ttyS0", "at in /dev/stdout")
    program = f"disks() {{ {disks}; }}\nip() {{ :; }}\nhostname() {{ echo {entry}-56ab12; }}\nentry={entry}\n{program}\n{action}\n"
    done = subprocess.run(
        ["sh", "-c", program], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
    )
    shown = done.stdout.removeprefix("\033[H\033[J").splitlines()
    assert len(shown) <= 24 and all(len(line) <= 79 for line in shown), done.stdout
    return shown


def tmp_etc(run: Path, etc: Path) -> Path:
    """Returns a copy of the files of the screen, which name each other by their new paths."""
    made = run / "etc"
    made.mkdir(exist_ok=True)
    for name in ("letters", "large", "screen-lend", "screen-serve"):
        (made / name).write_text((etc / name).read_text().replace("/etc/letters", str(made / "letters")))
    return made
