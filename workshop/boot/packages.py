"""Debian's packages: downloaded by apt, which checks their signatures, and unpacked; none is installed."""

from __future__ import annotations

import lzma
import os
import re
import shutil

from boot.error import BuildError, MissingError
from boot.run import run

KERNEL = "linux-image-6.12-amd64"
# How the package's modules are compressed.
PACKED = ".xz"


class Packages:
    """A directory of unpacked packages."""

    def __init__(self, dir: str) -> None:
        self._dir = dir

    def version(self, name: str) -> str | None:
        """Returns the version of a package that apt would install; `None` if apt knows no such package."""
        found = re.search(r"Candidate: (\S+)", run(["apt-cache", "policy", name]))
        return found[1] if found and found[1] != "(none)" else None

    def unpack(self, name: str) -> str:
        """Returns the directory into which the package is unpacked, after downloading it unless its present version is
        there already."""
        version = self.version(name)
        if not version:
            raise MissingError(f"apt knows no package {name}; the image is built on Debian 12, after apt-get update")
        root = os.path.join(self._dir, f"{name}_{version.replace(':', '%3a')}")
        if os.path.isdir(root):
            return root
        scratch = f"{root}.{os.getpid()}"
        os.makedirs(scratch)
        try:
            _download(f"{name}={version}", scratch)
            package = os.path.join(scratch, os.listdir(scratch)[0])
            run(["dpkg-deb", "--extract", package, os.path.join(scratch, "root")])
            os.rename(os.path.join(scratch, "root"), root)
        finally:
            shutil.rmtree(scratch)
        return root

    def kernel(self) -> Kernel:
        """Returns the newest kernel of the generic flavour, the one with the widest choice of drivers."""
        depends = run(["apt-cache", "depends", "--important", KERNEL])
        found = re.search(r"Depends: (linux-image-\S+)", depends)
        if not found:
            raise MissingError(f"apt knows no package {KERNEL}; Debian 12 has it in its security updates")
        return Kernel(self.unpack(found[1]), found[1].removeprefix("linux-image-"))


class Kernel:
    """An unpacked kernel package."""

    def __init__(self, root: str, release: str) -> None:
        self.release = release
        self.image = os.path.join(root, "boot", f"vmlinuz-{release}")
        self.modules = os.path.join(root, "lib", "modules", release)

    def find(self, name: str) -> str:
        """Returns the path below `kernel/` of the module of this name."""
        root = os.path.join(self.modules, "kernel")
        for dir, _, files in os.walk(root):
            if f"{name}.ko{PACKED}" in files:
                return os.path.relpath(os.path.join(dir, f"{name}.ko"), root)
        raise BuildError(f"the kernel {self.release} has no module {name}")

    def module(self, name: str) -> bytes:
        """Returns a module by its path below `kernel/`, unpacked."""
        with lzma.open(os.path.join(self.modules, "kernel", name + PACKED)) as file:
            return file.read()


def _download(package: str, dir: str) -> None:
    try:
        run(["apt-get", "-q", "download", package], cwd=dir)
    except BuildError as error:
        raise MissingError(str(error)) from error
