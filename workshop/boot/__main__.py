"""Builds the boot image: `python3 -m boot`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

from boot import cpio, firmware, initrd, medium, modules, netboot
from boot.error import BuildError
from boot.packages import Packages

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main() -> int:
    """Builds, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python3 -m boot", description="Builds the boot image and the network-boot tree."
    )
    parser.add_argument("--out", default=os.path.join(ROOT, "target", "live"), help="directory of the results")
    parser.add_argument(
        "--cheetah", default=os.path.join(ROOT, "target", "static", "cheetah"), help="the static binary"
    )
    parser.add_argument(
        "--level", type=int, default=cpio.LEVEL, help=f"level of compression, 1 to {cpio.LEVEL} (%(default)s)"
    )
    args = parser.parse_args()
    if not 1 <= args.level <= cpio.LEVEL:
        parser.error(f"--level {args.level} is not in 1 to {cpio.LEVEL}")
    try:
        for path in build(os.path.abspath(args.out), os.path.abspath(args.cheetah), args.level):
            print(path)
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def build(out: str, cheetah: str, level: int = cpio.LEVEL, packages_dir: str | None = None) -> list[str]:
    """Builds both, and returns their paths. The same packages, binary, commit and level of compression give the same bytes."""
    os.makedirs(out, exist_ok=True)
    packages = Packages(packages_dir or os.path.join(out, "packages"))
    kernel = packages.kernel()
    iso, pxe = os.path.join(out, "cheetah.iso"), os.path.join(out, "pxe")
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        tree = os.path.join(scratch, "disc")
        files = os.path.join(tree, "boot")
        os.makedirs(files)
        shutil.copyfile(kernel.image, os.path.join(files, "vmlinuz"))
        for name, content in (
            ("lend.img", initrd.lend(kernel, cheetah, level)),
            ("serve.img", initrd.serve(kernel, level)),
            ("firmware.img", firmware.archive(kernel, modules.lend(kernel), packages, level)),
            ("lab.img", initrd.lab()),
        ):
            if content is None:
                continue
            with open(os.path.join(files, name), "wb") as file:
                file.write(content)
        netboot.build(os.path.join(scratch, "pxe"), files, packages)
        medium.build(os.path.join(scratch, "cheetah.iso"), tree, packages, epoch_s())
        shutil.rmtree(pxe, ignore_errors=True)
        os.rename(os.path.join(scratch, "pxe"), pxe)
        os.rename(os.path.join(scratch, "cheetah.iso"), iso)
    return [iso, pxe]


def epoch_s() -> int:
    """Returns the time stamp of the image: SOURCE_DATE_EPOCH, or that of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    done = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False)
    return int(done.stdout.strip() or 0)


if __name__ == "__main__":
    sys.exit(main())
