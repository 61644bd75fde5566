"""The choice of kernel modules."""

from __future__ import annotations

import fnmatch
import os
import shutil
import tempfile
from collections.abc import Iterable

from boot.cpio import Archive
from boot.error import BuildError
from boot.packages import PACKED, Kernel
from boot.run import run

# Network adapters, and the buses, keyboards and power button that a machine without disks needs.
LEND = (
    "drivers/net/ethernet/*",
    "drivers/net/usb/*",
    "drivers/net/phy/*",
    "drivers/net/mdio/*",
    "drivers/net/pcs/*",
    "drivers/net/hyperv/*",
    "drivers/net/vmxnet3/*",
    "drivers/net/virtio_net.ko",
    "drivers/net/xen-netfront.ko",
    "drivers/usb/host/*",
    "drivers/usb/common/*",
    "drivers/hid/hid-generic.ko",
    "drivers/hid/hid-hyperv.ko",
    "drivers/hid/usbhid/*",
    "drivers/hv/hv_vmbus.ko",
    "drivers/input/evdev.ko",
    "drivers/acpi/button.ko",
)
# Adapters that start with firmware from a file only: their drivers come with the firmware.
NEED_FIRMWARE = (
    "drivers/net/ethernet/broadcom/bnx2.ko",
    "drivers/net/ethernet/broadcom/bnx2x/*",
    "drivers/net/ethernet/brocade/bna/*",
    "drivers/net/ethernet/cavium/liquidio/*",
    "drivers/net/ethernet/qlogic/qed/*",
    "drivers/net/ethernet/qlogic/qede/*",
)
# A storage driver in those folders: it offloads iSCSI.
NOT_LENT = ("drivers/net/ethernet/broadcom/cnic.ko",)
# Storage: what the second entry adds. No file system, no md and no device mapper: nothing can be mounted or assembled.
SERVE = (
    "drivers/ata/*",
    "drivers/block/virtio_blk.ko",
    "drivers/block/xen-blkfront.ko",
    "drivers/firewire/*",
    "drivers/memstick/*",
    "drivers/message/fusion/*",
    "drivers/mmc/*",
    "drivers/nvme/host/nvme.ko",
    "drivers/scsi/*",
    "drivers/ufs/*",
    "drivers/usb/storage/*",
    "drivers/misc/cardreader/*",
    "drivers/pci/controller/vmd.ko",
)
# Modules in those folders that reach disks of other machines, serve disks, or are for tests. Adapters that offload iSCSI or
# FCoE have other names. Some adapters do not start without firmware from a file, which this archive does not have.
NOT_SERVED = (
    "drivers/scsi/advansys.ko",
    "drivers/scsi/aic94xx/*",
    "drivers/scsi/bfa/*",
    "drivers/scsi/*iscsi*",
    "drivers/scsi/*/*iscsi*",
    "drivers/scsi/*fcoe*",
    "drivers/scsi/bnx2fc/*",
    "drivers/scsi/bnx2i/*",
    "drivers/scsi/csiostor/*",
    "drivers/scsi/cxgbi/*",
    "drivers/scsi/fnic/*",
    "drivers/scsi/qedf/*",
    "drivers/scsi/qedi/*",
    "drivers/scsi/qla1280.ko",
    "drivers/scsi/qla4xxx/*",
    "drivers/scsi/scsi_debug.ko",
    "drivers/scsi/snic/*",
    "drivers/scsi/wd719x.ko",
)
# Modules that make a block device, or that a block device needs. A lending image that holds one of them is not built.
STORAGE = (
    "block/*",
    "drivers/ata/*",
    "drivers/block/*",
    "drivers/cdrom/*",
    "drivers/dax/*",
    "drivers/firewire/*",
    "drivers/md/*",
    "drivers/memstick/*",
    "drivers/message/*",
    "drivers/mmc/*",
    "drivers/mtd/*",
    "drivers/nvdimm/*",
    "drivers/nvme/*",
    "drivers/scsi/*",
    "drivers/target/*",
    "drivers/ufs/*",
    "drivers/usb/storage/*",
    "fs/*",
)
# Modules that no image may contain: those that mount, assemble or share the content of a disk.
INTERPRETERS = (
    "drivers/block/drbd/*",
    "drivers/block/loop.ko",
    "drivers/dax/*",
    "drivers/md/*",
    "drivers/target/*",
    "fs/*",
)


def lend(kernel: Kernel) -> list[str]:
    """Returns the modules of the lending image, by their paths below `kernel/`. Raises BuildError if one is a storage
    driver."""
    wanted = [name for name in _matching(kernel, LEND) if not _is_one_of(name, NOT_LENT)]
    return _choose(kernel, wanted, STORAGE, "the lending image")


def with_needed(kernel: Kernel, names: Iterable[str]) -> list[str]:
    """Returns the modules of these names and those that they need, by their paths below `kernel/`."""
    needed = _dependencies(kernel)
    paths = [kernel.find(name) for name in names]
    return sorted({path for path in paths} | {other for path in paths for other in needed[path]})


def with_firmware(chosen: Iterable[str]) -> list[str]:
    """Returns the modules that need firmware from a file."""
    return [name for name in chosen if _is_one_of(name, NEED_FIRMWARE)]


def serve(kernel: Kernel) -> list[str]:
    """Returns the modules that the serving entry adds to those of the lending image."""
    wanted = [name for name in _matching(kernel, SERVE) if not _is_one_of(name, NOT_SERVED)]
    return sorted(set(_choose(kernel, wanted, INTERPRETERS, "the serving image")) - set(lend(kernel)))


def _choose(kernel: Kernel, wanted: Iterable[str], denied: Iterable[str], image: str) -> list[str]:
    """Returns the wanted modules and those that they need. A driver that needs a denied module is left out: of network
    adapters, those that need the MMC core or MTD."""
    needed = _dependencies(kernel)
    chosen: set[str] = set()
    for name in wanted:
        if not any(_is_one_of(other, denied) for other in needed[name]):
            chosen |= {name, *needed[name]}
    refuse(chosen, denied, image)
    return sorted(chosen)


def refuse(chosen: Iterable[str], denied: Iterable[str], image: str) -> None:
    """Raises BuildError if one of the modules is on the deny-list."""
    found = [name for name in chosen if _is_one_of(name, denied)]
    if found:
        raise BuildError(
            f"{image} would hold {', '.join(found)}, which the deny-list in workshop/boot/modules.py forbids"
        )


def add(archive: Archive, kernel: Kernel, chosen: Iterable[str], present: Iterable[str] = ()) -> None:
    """Adds modules to the archive, with the index that modprobe needs. The index also covers the modules that are `present`
    in other archives. Modules are unpacked, since the archive compresses better as a whole, and otherwise unchanged, since
    each ends with its signature."""
    base = f"lib/modules/{kernel.release}"
    with tempfile.TemporaryDirectory() as scratch:
        root = os.path.join(scratch, base)
        for name in present:
            _write(os.path.join(root, "kernel", name), kernel.module(name))
        for name in chosen:
            content = kernel.module(name)
            _write(os.path.join(root, "kernel", name), content)
            archive.file(path(kernel, name), content, 0o644)
        for name in ("modules.builtin", "modules.order"):
            shutil.copyfile(os.path.join(kernel.modules, name), os.path.join(root, name))
        run(["depmod", "-b", scratch, kernel.release])
        for name in ("modules.dep", "modules.alias"):
            archive.copy(f"{base}/{name}", os.path.join(root, name), 0o644)


def path(kernel: Kernel, name: str) -> str:
    """Returns where a module lies in the image."""
    return f"lib/modules/{kernel.release}/kernel/{name}"


def _write(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _matching(kernel: Kernel, patterns: Iterable[str]) -> list[str]:
    root = os.path.join(kernel.modules, "kernel")
    names = (os.path.relpath(os.path.join(dir, file), root) for dir, _, files in os.walk(root) for file in files)
    plain = (name.removesuffix(PACKED) for name in names)
    return [name for name in plain if _is_one_of(name, patterns)]


def _dependencies(kernel: Kernel) -> dict[str, list[str]]:
    index = os.path.join(kernel.modules, "modules.dep")
    if not os.path.exists(index):
        root = kernel.modules.removesuffix(f"/lib/modules/{kernel.release}")
        run(["depmod", "-b", root, kernel.release])
    with open(index, encoding="utf-8") as file:
        lines = (line.rstrip("\n").partition(":") for line in file)
        return {_plain(name): [_plain(other) for other in rest.split()] for name, _, rest in lines}


def _plain(name: str) -> str:
    return name.removeprefix("kernel/").removesuffix(PACKED)
