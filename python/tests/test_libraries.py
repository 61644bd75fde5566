"""Unmodified libraries that take file objects see the same as on the plain image."""

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import run

import cheetah

pytsk3 = pytest.importorskip("pytsk3")


def tsk(file: Any) -> list[str]:
    """Every name The Sleuth Kit sees, deleted ones too."""

    class Image(pytsk3.Img_Info):  # type: ignore[misc, name-defined]
        def read(self, offset: int, length: int) -> bytes:
            file.seek(offset)
            return bytes(file.read(length))

        def get_size(self) -> int:
            return int(file.seek(0, 2))

    names: list[str] = []

    def walk(directory: Any, path: str) -> None:
        for entry in directory:
            name = entry.info.name.name.decode(errors="replace")
            names.append(path + name)
            if name not in (".", "..") and entry.info.meta and entry.info.meta.type == pytsk3.TSK_FS_META_TYPE_DIR:
                walk(entry.as_directory(), f"{path}{name}/")

    volume = pytsk3.FS_Info(Image(url=""))
    walk(volume.open_dir("/"), "/")
    return names


def dfvfs(file: Any, kind: str) -> list[str]:
    """Every name dfVFS sees."""
    factory = pytest.importorskip("dfvfs.path.factory").Factory
    context = pytest.importorskip("dfvfs.resolver.context").Context()
    resolver = pytest.importorskip("dfvfs.resolver.resolver").Resolver
    image = factory.NewPathSpec("FAKE", location="/image")
    context.CacheFileObject(image, file)
    root = factory.NewPathSpec(kind, location="\\" if kind == "NTFS" else "/", parent=image)
    names: list[str] = []

    def walk(entry: Any, path: str) -> None:
        for inner in entry.sub_file_entries:
            names.append(path + inner.name)
            if inner.IsDirectory():
                walk(inner, f"{path}{inner.name}/")

    walk(resolver.OpenFileEntry(root, resolver_context=context), "/")
    return names


def dissect_ntfs(file: Any) -> list[str]:
    """The names Dissect sees first; it takes its time."""
    ntfs = pytest.importorskip("dissect.ntfs").NTFS(file)
    records = itertools.islice(ntfs.mft.segments(), 300)
    return [f"{record.segment} {record.filename}" for record in records]


def dissect_extfs(file: Any) -> list[str]:
    """The same of ext4."""
    names: list[str] = []

    def walk(node: Any, path: str) -> None:
        for name, inner in node.listdir().items():
            if name not in (".", ".."):
                names.append(path + name)
                if inner.filetype == 0o040000:
                    walk(inner, f"{path}{name}/")

    walk(pytest.importorskip("dissect.extfs").ExtFS(file).root, "/")
    return names


LISTINGS: dict[str, list[Callable[[Any], list[str]]]] = {
    "ntfs": [tsk, lambda file: dfvfs(file, "NTFS"), dissect_ntfs],
    "ext4": [tsk, lambda file: dfvfs(file, "EXT"), dissect_extfs],
}


@pytest.mark.parametrize("system", LISTINGS)
def test_libraries_list_on_a_drive_what_they_list_on_the_image(
    system: str, tmp_path: Path, drive: Callable[[Path, Path], Path], request: pytest.FixtureRequest
) -> None:
    image = request.getfixturevalue(system)
    path = drive(tmp_path / f"{system}.drive", image)
    for listing in LISTINGS[system]:
        with image.open("rb") as plain, cheetah.open(path) as device:
            expected = listing(plain)
            assert listing(device) == expected and len(expected) > 3


def test_libraries_list_in_an_e01_what_they_list_in_its_image(tmp_path: Path, ntfs: Path, binary: str) -> None:
    path = tmp_path / "case42.E01"
    run(binary, "acquire", ntfs, path)
    for listing in LISTINGS["ntfs"]:
        with ntfs.open("rb") as plain, cheetah.open(path) as device:
            assert listing(device) == listing(plain)


def test_libraries_list_a_real_volume(
    tmp_path: Path, evidence: Callable[[str], Path], nbdkit: Callable[..., str]
) -> None:
    image = tmp_path / "ntfs.raw"
    image.write_bytes(gzip.decompress(evidence("ntfs.bin.gz").read_bytes()))
    uri = nbdkit("file", image)
    for listing in LISTINGS["ntfs"]:
        with image.open("rb") as plain, cheetah.open(uri) as device:
            expected = listing(plain)
            assert listing(device) == expected and len(expected) > 100
