"""A laboratory's own image: `python3 -m boot.lab` puts options and credentials into an image that is built already."""

from __future__ import annotations

import argparse
import os
import sys

from boot.cpio import Archive
from boot.error import BuildError
from boot.initrd import LAB_BYTES, LAB_MARK
from boot.initrd import lab as place


def archive(lend: str, serve: str, files: dict[str, bytes]) -> bytes:
    """Returns the laboratory's archive: the options of both entries, and files below `/etc/cheetah`, which only root may read.
    Raises BuildError if it does not fit."""
    made = Archive()
    made.file("etc/cheetah/lend", f"{lend}\n".encode(), 0o644)
    made.file("etc/cheetah/serve", f"{serve}\n".encode(), 0o644)
    for name, content in files.items():
        made.file(f"etc/cheetah/{name}", content, 0o600)
    content = made.content()
    if len(content) > LAB_BYTES:
        raise BuildError(f"the options and files take {len(content)} bytes, and there is room for {LAB_BYTES}")
    return content + b"\0" * (LAB_BYTES - len(content))


def put(image: bytes, own: bytes) -> bytes:
    """Returns the image with the laboratory's archive in its place. Raises BuildError if the image has no such place."""
    start = image.find(LAB_MARK) - place().index(LAB_MARK)
    if start < 0 or image[start : start + LAB_BYTES] != place():
        raise BuildError("this is no image that make live has made, or a laboratory's archive is in it already")
    return image[:start] + own + image[start + LAB_BYTES :]


def main() -> int:
    """Makes the image, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m boot.lab", description="Makes a laboratory's own boot image.")
    parser.add_argument("--image", default="target/live/cheetah.iso", help="the image of make live")
    parser.add_argument("--out", required=True, help="the new image; a name that ends in .img gets the archive alone")
    parser.add_argument("--lend", default="", help="options of cheetah node")
    parser.add_argument("--serve", default="", help="options of cheetah serve; PORT stands for the port of each disk")
    parser.add_argument(
        "--file", action="append", default=[], help="a file to put below /etc/cheetah, such as a credential"
    )
    args = parser.parse_args()
    try:
        files = {}
        for path in args.file:
            with open(path, "rb") as file:
                files[os.path.basename(path)] = file.read()
        made = archive(args.lend, args.serve, files)
        if not args.out.endswith(".img"):
            with open(args.image, "rb") as file:
                made = put(file.read(), made)
        # A credential may be in it.
        with open(os.open(args.out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made)
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
