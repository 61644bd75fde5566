"""The packages for Debian and Fedora: installed, used and purged."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pages
import pytest
from conftest import PATIENCE_S, ROOT, program, run

# What a package has beside the binary, on Debian.
FILES = {
    "usr/bin/cheetah",
    "usr/lib/systemd/system/cheetah-node.service",
    "usr/lib/systemd/system/cheetah-serve@.service",
    "usr/lib/udev/rules.d/59-cheetah.rules",
    "usr/share/bash-completion/completions/cheetah",
    "usr/share/cheetah/monitoring/cheetah-alerts.yml",
    "usr/share/cheetah/monitoring/cheetah-dashboard.json",
    "usr/share/fish/vendor_completions.d/cheetah.fish",
    "usr/share/man/man1/cheetah-mount.1.gz",
    "usr/share/man/man1/cheetah.1.gz",
}
NAME = "cheetah-forensics"
FAST = "-Zgzip -z1"
# Crates that the program is linked with, and one that only its tests are.
LINKED, NOT_LINKED = ("tokio", "zstd-sys"), "proptest"


@pytest.fixture(scope="module")
def deb(pack: Callable[..., Path]) -> Path:
    """The package for Debian, compressed quickly."""
    program("dpkg-deb")
    return pack("deb", COMPRESSION=FAST)


def test_the_package_for_debian_has_the_same_bytes_when_it_is_made_again(deb: Path, pack: Callable[..., Path]) -> None:
    assert pack("deb", COMPRESSION=FAST).read_bytes() == deb.read_bytes()


def test_lintian_finds_nothing_wrong_with_the_package_for_debian(deb: Path) -> None:
    found = subprocess.run(
        [program("lintian"), "--allow-root", "--fail-on", "error,warning", deb],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_package_without_python_packages_overrides_nothing_of_theirs(deb: Path, tmp_path: Path) -> None:
    # lintian warns of that only if the binary has its symbols, which the one of these tests has not.
    run(program("dpkg-deb"), "--extract", deb, tmp_path)
    overrides = (tmp_path / "usr/share/lintian/overrides" / NAME).read_text()
    assert "[usr/bin/cheetah]" in overrides and "venv" not in overrides and "Python" not in overrides


def test_the_package_for_debian_is_installed_used_and_purged(deb: Path, system: Path, tmp_path: Path) -> None:
    dpkg, chroot = program("dpkg"), (program("chroot"), system)
    run(dpkg, f"--root={system}", "--install", deb)
    assert {name for name in FILES if not (system / name).is_file()} == set()
    assert (system / "usr/share/zsh/vendor-completions/_cheetah").is_file()

    (system / "etc/cheetah").mkdir()
    (system / "etc/cheetah/room").write_text("an invitation")
    credentials = system / "var/lib/private/cheetah-node"
    credentials.mkdir(parents=True)
    assert run(*chroot, "cheetah", "--version").startswith("cheetah ")
    assert "cheetah mount" in run(*chroot, "cheetah", "mount", "--help")
    (system / "var/tmp/disk.raw").write_bytes(os.urandom(3 << 20))
    use = "cd /var/tmp && cheetah acquire disk.raw copy.raw && cheetah verify copy.raw && cmp disk.raw copy.raw"
    run(*chroot, "sh", "-c", use, env={"HOME": "/root", "PATH": "/usr/bin:/bin"})

    run(dpkg, f"--root={system}", "--remove", NAME)
    assert {name for name in FILES if (system / name).exists()} == set()
    assert (system / "etc/cheetah/room").exists() and credentials.exists()
    run(dpkg, f"--root={system}", "--purge", NAME)
    assert not (system / "etc/cheetah").exists() and not credentials.exists()


def first_drive() -> str:
    """What a new user types on one machine, as the guide says."""
    start, end = pages.blocks("install.md#a-first-drive")
    # A user sees when the node is there.
    return pages.changed(
        f"cd /var/tmp && mkdir case42\n{start}cmp disk.raw case42/case42.raw\n{end}",
        {
            "--memory 2GiB &": "--memory 64MiB & node=$!",
            "cheetah create": "until cheetah create",
            "--from disk.raw": "--from disk.raw; do sleep 0.1; done",
            "kill %1; wait": "kill $node; wait $node",
        },
    )


def test_three_commands_lead_from_the_package_for_debian_to_a_mounted_drive(
    deb: Path, system: Path, inside: Callable[..., str]
) -> None:
    if not os.path.exists("/dev/fuse"):
        pytest.skip("needs FUSE")
    run(program("dpkg"), f"--root={system}", "--install", deb)
    (system / "var/tmp/disk.raw").write_bytes(os.urandom(3 << 20))
    inside(system, first_drive())


@pytest.fixture(scope="module")
def rpm(pack: Callable[..., Path]) -> Path:
    """The package for Fedora, compressed quickly."""
    program("rpmbuild")
    return pack("rpm", PAYLOAD="w1.gzdio")


def test_the_package_for_fedora_is_whole_and_has_the_same_files(rpm: Path, stripped: Path, tmp_path: Path) -> None:
    assert "digests OK" in run(program("rpm"), "--dbpath", tmp_path, "-K", rpm)
    listed = run(program("rpm"), "--dbpath", tmp_path, "-qlp", rpm).splitlines()
    assert {f"/{name}" for name in FILES} | {"/usr/share/zsh/site-functions/_cheetah"} <= set(listed)
    archive = tmp_path / "archive"
    archive.write_bytes(subprocess.run([program("rpm2cpio"), rpm], capture_output=True, check=True).stdout)
    run(program("cpio"), "--quiet", "-i", "-d", "-I", archive, cwd=tmp_path)
    assert (tmp_path / "usr/bin/cheetah").read_bytes() == stripped.read_bytes()


def test_the_package_for_fedora_is_installed_used_and_erased(
    rpm: Path, system: Path, rpm_into: Callable[[Path], tuple[str | Path, ...]]
) -> None:
    at = rpm_into(system)
    run(*at, "--nodeps", "--install", rpm)
    assert {name for name in FILES if not (system / name).is_file()} == set()
    chroot = (program("chroot"), system)
    assert run(*chroot, "cheetah", "--version").startswith("cheetah ")
    assert "cheetah mount" in run(*chroot, "cheetah", "mount", "--help")
    assert run(*at, "--verify", "--nodeps", NAME) == ""
    run(*at, "--erase", NAME)
    assert {name for name in FILES if (system / name).exists()} == set()


def test_the_packages_have_the_licences_of_what_is_linked() -> None:
    program("cargo")
    licences = run(ROOT / "packaging/licences")
    listed = {line.partition(" ")[0] for line in licences.split("\n\n")[1].splitlines()}
    assert set(LINKED) <= listed and NOT_LINKED not in listed
    assert "Copyright (c) Tokio Contributors" in licences
    # Of C code in crates, and of what is no crate.
    for owner in ("Eric Biggers", "Microsoft Corporation, Daan Leijen", "Rich Felker", "The Rust Project Developers"):
        assert re.search(rf"Copyright.* {owner}", licences), owner
    assert "GNU GENERAL PUBLIC LICENSE" not in licences
