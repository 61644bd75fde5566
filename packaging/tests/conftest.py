"""What tests of the packages share: the binary in its smallest form, and the packages made of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from conftest import ROOT, binary, program, run

__all__ = ["binary"]

# A wheel is packed after the extension was built, which takes minutes where nothing was built before.
BUILD_S = 900
# Releases of Debian of which there may be a bare system.
RELEASES = ("bookworm", "trixie")


@pytest.fixture(scope="session")
def stripped(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The binary without symbols, which make up most of one that is built for tests."""
    made = tmp_path_factory.mktemp("binary") / "cheetah"
    run(program("strip"), "-s", "-o", made, binary)
    return made


@pytest.fixture(scope="session")
def pack(stripped: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a package of the binary and other files, with settings of the script; returns its path."""

    def made(kind: str, *files: Path, **settings: str) -> Path:
        out = tmp_path_factory.mktemp("packages")
        env = os.environ | settings | {"OUT": str(out)}
        return Path(run(ROOT / "packaging" / kind, stripped, *files, timeout_s=BUILD_S, env=env).strip())

    return made


@pytest.fixture(params=["this system", *RELEASES])
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A system to install into: this one, or a bare one of a release of Debian. Changes are kept apart, in memory."""
    lower = Path("/") if request.param == "this system" else ROOT / f"target/chroot-{request.param}"
    if not lower.is_dir():
        pytest.skip(f"needs a bare system ('packaging/chroot {request.param}' makes it)")
    if os.geteuid() != 0:
        pytest.skip("needs root, to install packages")
    changes, root = tmp_path / "changes", tmp_path / "root"
    changes.mkdir()
    root.mkdir()
    run(program("mount"), "-t", "tmpfs", "tmpfs", changes)
    try:
        for folder in ("upper", "work"):
            (changes / folder).mkdir()
        options = f"lowerdir={lower},upperdir={changes}/upper,workdir={changes}/work"
        argv = [program("mount"), "-t", "overlay", "overlay", "-o", options, root]
        made = subprocess.run(argv, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"needs overlay file systems: {made.stderr.strip()}")
        try:
            yield root
        finally:
            run(program("umount"), root)
    finally:
        run(program("umount"), changes)


@pytest.fixture
def rpm_into() -> Callable[[Path], tuple[str | Path, ...]]:
    """The command rpm for a system, with a database of packages that knows of no others."""
    rpm = program("rpm")
    force = ("--force-debian",) if "--force-debian" in run(rpm, "--help") else ()
    return lambda system: (rpm, "--root", system, "--dbpath", "/var/tmp/rpm", *force)


@pytest.fixture
def inside() -> Callable[..., str]:
    """Runs a script in a system, as its user root; returns its output. It is a machine of its own, without a network unless it is
    given this one's: its ports are free, and what it starts ends with it. Folders of this machine appear at other places there."""

    def ran(system: Path, script: str, *, network: bool = False, lent: Mapping[str | Path, str] | None = None) -> str:
        steps = ["mount --bind /dev $0/dev", "mount -t proc proc $0/proc"]
        for folder, place in (lent or {}).items():
            (system / place).mkdir(parents=True, exist_ok=True)
            steps.append(f"mount --bind {folder} $0/{place}")
        own = [program("unshare"), "--mount", "--pid", "--fork", "--kill-child"]
        if not network:
            own.append("--net")
            steps.append(f"{program('ip')} link set lo up")
        env = {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        steps.append('exec chroot $0 sh -ec "$1"')
        return run(*own, "sh", "-ec", "; ".join(steps), system, script, env=env, timeout_s=BUILD_S)

    return ran
