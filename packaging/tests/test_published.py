"""What a release publishes, installed and used in systems that have nothing else: `make release` runs these tests.

CHEETAH_RELEASE names the folder of the release. packaging/chroot makes the systems.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import program, run

# With the time to install packages.
pytestmark = pytest.mark.timeout(3600)
LINTIAN_S = 1800
# The time within which a person has every verb by the wheel, with all that is fetched for it.
WHEEL_S = 60
ENVIRONMENT = "/usr/lib/cheetah/venv"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
bare = pytest.mark.parametrize("system", ["bookworm", "trixie"], indirect=True)

TRIAGE = """
cheetah triage /var/tmp/disk.raw --out /var/tmp/found
cheetah bench storage 2>&1 || test $? = 2
"""


@pytest.fixture(scope="module")
def release() -> Path:
    """The folder of the release."""
    if "CHEETAH_RELEASE" not in os.environ:
        pytest.skip("needs a release (make release)")
    return Path(os.environ["CHEETAH_RELEASE"])


def put_image(system: Path, folder: Path) -> None:
    """Puts an image with one file into a system."""
    (folder / "files").mkdir()
    (folder / "files/letter.txt").write_text("a letter")
    image = system / "var/tmp/disk.raw"
    image.touch()
    os.truncate(image, 4 << 20)
    run(program("mkfs.ext4"), "-q", "-d", folder / "files", image)


def was_listed(system: Path, said: str) -> bool:
    """Whether triage has found the file, and the benchmark has started."""
    return "runs in Python" not in said and "letter.txt" in (system / "var/tmp/found/bodyfile.txt").read_text()


def only(release: Path, pattern: str) -> Path:
    """The one file of the release that is called so."""
    found = list(release.glob(pattern))
    if not found:
        pytest.skip(f"the release has no {pattern}")
    [file] = found
    return file


@bare
def test_the_package_for_debian_gives_every_verb_to_a_bare_system_without_a_network(
    system: Path, release: Path, inside: Callable[..., str], tmp_path: Path
) -> None:
    put_image(system, tmp_path)
    shutil.copy(only(release, "*.deb"), system / "var/tmp/package.deb")
    inside(system, "apt-get install -q -y --no-install-recommends /var/tmp/package.deb")
    environment = system / ENVIRONMENT[1:] / "lib"
    # Modules are compiled for the one Python that is there.
    [python] = {path.name.split(".")[-2] for path in environment.rglob("*.pyc")}
    places = {path.relative_to(environment).parts[0] for path in environment.rglob("*.pyc")}
    assert places == {"shared", python.replace("cpython-3", "python3.")}
    said = inside(system, TRIAGE)
    assert was_listed(system, said), said
    # As after another Python was installed.
    inside(
        system,
        f"find {ENVIRONMENT} -name '*.pyc' -delete; dpkg-trigger --by-package=python3-minimal --no-await /usr/bin/python3",
    )
    inside(system, "dpkg --triggers-only --pending")
    assert list(environment.rglob("*.pyc"))
    inside(system, "apt-get purge -q -y cheetah-forensics")
    assert not (system / "usr/lib/cheetah").exists() and not (system / "usr/bin/cheetah").exists()


@bare
def test_the_package_for_fedora_gives_every_verb_to_a_bare_system(
    system: Path,
    release: Path,
    inside: Callable[..., str],
    rpm_into: Callable[[Path], tuple[str | Path, ...]],
    tmp_path: Path,
) -> None:
    put_image(system, tmp_path)
    rpm = rpm_into(system)
    run(*rpm, "--nodeps", "--install", only(release, "*.rpm"))
    assert list((system / ENVIRONMENT[1:]).rglob("*.pyc"))
    said = inside(system, TRIAGE)
    assert was_listed(system, said), said
    run(*rpm, "--erase", "cheetah-forensics")
    assert not (system / "usr/lib/cheetah").exists()


def test_lintian_finds_nothing_wrong_with_the_published_package(release: Path) -> None:
    run(program("lintian"), "--allow-root", "--fail-on", "error,warning", only(release, "*.deb"), timeout_s=LINTIAN_S)


def test_the_binary_names_the_crates_that_it_is_linked_with(release: Path, tmp_path: Path) -> None:
    # Where `cargo audit bin` looks, by the sections of ELF.
    listed = tmp_path / "listed"
    run(program("objcopy"), "--dump-section", f".dep-v0={listed}", only(release, "cheetah-*-linux"), os.devnull)
    packages = json.loads(zlib.decompress(listed.read_bytes()))["packages"]
    crates = {crate["name"] for crate in packages if crate.get("kind") != "build"}
    bill = json.loads(only(release, "*.cdx.json").read_text())
    known = {part["name"] for part in [bill["metadata"]["component"], *bill["components"]]}
    assert {"cheetah", "tokio", "zstd-sys"} <= crates and crates <= known, crates - known


@bare
def test_the_wheel_gives_every_verb_to_a_bare_system_without_a_compiler(
    system: Path, release: Path, inside: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_image(system, tmp_path)
    wheel = only(release, "*.whl")
    shutil.copy(wheel, system / "var/tmp")
    # This machine's way to packages, which may lead over a proxy that it trusts.
    for name in ("etc/hosts", "etc/resolv.conf"):
        shutil.copy(Path("/", name), system / name)
    prepare = "apt-get update -q && apt-get install -q -y python3-venv && python3 -m venv /opt/cheetah"
    inside(system, prepare, network=True)
    if CERTIFICATES.is_file():
        shutil.copy(CERTIFICATES, system / CERTIFICATES.relative_to("/"))
        (system / "etc/pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\n")
    began = time.monotonic()
    inside(system, f"/opt/cheetah/bin/pip install --quiet /var/tmp/{wheel.name}", network=True)
    took_s = time.monotonic() - began
    with capsys.disabled():
        print(f" pip installed the wheel in {took_s:.0f} s")
    assert took_s <= WHEEL_S
    said = inside(system, f"PATH=/opt/cheetah/bin:$PATH\n{TRIAGE}")
    assert was_listed(system, said), said
    assert inside(system, "command -v cc gcc || true") == ""
