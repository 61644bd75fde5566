"""The choice of kernel modules, archives, and a laboratory's own image."""

from __future__ import annotations

import pytest

from boot import initrd, lab, modules
from boot.cpio import Archive
from boot.error import BuildError


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


def test_a_laboratory_s_archive_replaces_the_place_for_it_and_nothing_else() -> None:
    image = b"before" + initrd.lab() + b"after"
    own = lab.archive("--room /etc/cheetah/room.pem", "", {"room.pem": b"secret"})
    made = lab.put(image, own)
    assert len(made) == len(image) and made.startswith(b"before") and made.endswith(b"after")
    assert b"secret" in made and initrd.LAB_MARK not in made


def test_an_image_without_a_place_and_too_large_a_file_are_refused() -> None:
    own = lab.archive("", "", {})
    with pytest.raises(BuildError, match="make live"):
        lab.put(b"another image", own)
    with pytest.raises(BuildError, match="room for"):
        lab.archive("", "", {"large": bytes(1 << 17)})
