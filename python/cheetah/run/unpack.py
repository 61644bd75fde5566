"""Unpacks what a program left at a worker."""

import os
import pathlib
import tarfile

from cheetah import durable, path_text

LEFT_OUT = "left_out.txt"
"""The file that names what is left out of a folder."""


def unpack(archive: pathlib.Path, folder: pathlib.Path) -> int:
    """Unpacks an archive into a new folder, and stores it. Returns how many entries are left out, which `LEFT_OUT` in the folder names:
    links to the outside of the folder, and what is no file, link or folder. Raises tarfile.TarError if it is no archive."""
    left_out: list[str] = []

    def kept(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        # The filter also drops the owners of the other machine.
        try:
            return tarfile.data_filter(member, path)
        except tarfile.FilterError:
            left_out.append(path_text.to_text(os.path.normpath(member.name)))
            return None

    folder.mkdir()
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter=kept)
    if left_out:
        with open(folder / LEFT_OUT, "x", encoding="utf-8") as names:
            names.writelines(f"{name}\n" for name in left_out)
    durable.store(folder)
    return len(left_out)
