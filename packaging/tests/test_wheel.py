"""The wheel in a clean environment, and what `make install` and the packages make of it: every verb works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path

import pytest
from conftest import ROOT, program, run

# With the time to build the extension: the first test that asks for the wheel waits for it.
pytestmark = pytest.mark.timeout(1200)
# What triage imports, and bench in part, as the command line checks it.
IMPORTED = re.findall(r"packages: &\[(.*?)\]", (ROOT / "crates/desk/cheetah/src/commands/triage.rs").read_text())


@pytest.fixture(scope="module")
def wheel(pack: Callable[..., Path]) -> Path:
    """The wheel in the folder CHEETAH_WHEEL, or else one with the extension as scripts/python-env builds it, so that it need not be
    built again."""
    if made := sorted(Path(os.environ.get("CHEETAH_WHEEL", os.devnull)).glob("*.whl")):
        return made[0]
    program("cargo")
    pytest.importorskip("maturin")
    pytest.importorskip("wheel")
    os.environ.pop("SOURCE_DATE_EPOCH", None)
    return pack("wheel", PROFILE="dev", TOOLS=sys.prefix, VIRTUAL_ENV=sys.prefix)


def lent_dependencies(environment: Path) -> None:
    """Makes what the wheel needs importable: the packages of the tests, which need not be downloaded again."""
    packages = next(environment.glob("lib/python3*/site-packages"))
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")


def bare(**more: str) -> dict[str, str]:
    """An environment in which nothing names a Python."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CHEETAH_PYTHON", "VIRTUAL_ENV")}
    return kept | {"PATH": "/usr/bin:/bin"} | more


def lists_an_image(cheetah: Path, folder: Path, image: Path) -> None:
    """Runs triage, by the program alone."""
    run(cheetah, "triage", image, "--out", folder / "out", env=bare(XDG_STATE_HOME=str(folder)))
    assert (folder / "out/report.html").is_file()


def starts_bench(cheetah: Path) -> None:
    """Runs a benchmark without its arguments, which it must say itself."""
    said = subprocess.run([cheetah, "bench", "storage"], env=bare(), capture_output=True, text=True, check=False)
    assert said.returncode == 2 and "runs in Python" not in said.stderr, said.stderr


def disk(folder: Path) -> Path:
    """An image with a file system and a file."""
    (folder / "files").mkdir()
    (folder / "files/letter.txt").write_text("a letter")
    image = folder / "disk.raw"
    image.touch()
    os.truncate(image, 4 << 20)
    run(program("mkfs.ext4"), "-q", "-d", folder / "files", image)
    return image


def test_the_wheel_needs_what_its_verbs_import(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    needed = set(re.findall(r"^Requires-Dist: ([\w-]+)$", metadata, re.MULTILINE))
    imported = set(re.findall(r'"(\w+)"', IMPORTED[0]))
    assert {name.replace("-", "_") for name in needed} == imported and len(imported) > 3
    assert re.match(r"cheetah_forensics-[\d.]+-cp311-abi3-manylinux_\w+\.whl", wheel.name), wheel.name


def test_pip_install_of_the_wheel_gives_every_verb(wheel: Path, tmp_path: Path) -> None:
    environment, elsewhere = tmp_path / "environment", tmp_path / "elsewhere"
    venv.create(environment, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "--python", environment / "bin/python", "install", "--no-deps", wheel)
    lent_dependencies(environment)
    # As tools that keep each program in an environment of its own do.
    elsewhere.mkdir()
    (elsewhere / "cheetah").symlink_to(environment / "bin/cheetah")
    lists_an_image(elsewhere / "cheetah", tmp_path, disk(tmp_path))
    starts_bench(elsewhere / "cheetah")
    code = "import cheetah, sys; print(cheetah.open(sys.argv[1]).size)"
    assert run(environment / "bin/python", "-c", code, tmp_path / "disk.raw", cwd=tmp_path) == f"{4 << 20}\n"


def test_the_wheel_gives_every_verb_to_a_system_of_its_own_without_a_network(
    wheel: Path, system: Path, inside: Callable[..., str], tmp_path: Path
) -> None:
    version = f"3.{sys.version_info.minor}"
    if (system / "usr/bin/python3").resolve().name != f"python{version}":
        pytest.skip(f"needs Python {version} as /usr/bin/python3, for which the packages of the tests are")
    if not (system / f"usr/lib/python{version}/ensurepip").is_dir():
        pytest.skip("needs python3-venv in that system (packaging/chroot makes it so)")
    shutil.copy(wheel, system / "var/tmp")
    shutil.copy(disk(tmp_path), system / "var/tmp/disk.raw")
    script = f"""
python3 -m venv /opt/cheetah
/opt/cheetah/bin/pip install --quiet --no-index --no-deps /var/tmp/{wheel.name}
echo /mnt/lent >/opt/cheetah/lib/python{version}/site-packages/lent.pth
PATH=/opt/cheetah/bin:$PATH
cheetah triage /var/tmp/disk.raw --out /var/tmp/found
cheetah bench storage 2>&1 || test $? = 2
"""
    # In place of what would be fetched.
    said = inside(system, script, lent={sysconfig.get_path("purelib"): "mnt/lent"})
    assert "runs in Python" not in said
    assert "letter.txt" in (system / "var/tmp/found/bodyfile.txt").read_text()


def test_make_install_gives_every_verb_also_in_another_place(wheel: Path, stripped: Path, tmp_path: Path) -> None:
    settings = (f"DESTDIR={tmp_path}/stage", "PREFIX=/opt", f"BINARY={stripped}", f"WHEEL={wheel}")
    environment = bare(PIP_OPTIONS="--no-deps", PYTHON=sys.executable)
    run(program("make"), "-C", ROOT, "--no-print-directory", "install", *settings, env=environment)
    lent_dependencies(tmp_path / "stage/opt/lib/cheetah/venv")
    # A package is made in one place, and installed in another.
    prefix = Path(shutil.move(tmp_path / "stage/opt", tmp_path / "opt"))
    lists_an_image(prefix / "bin/cheetah", tmp_path, disk(tmp_path))
    starts_bench(prefix / "bin/cheetah")
    for name in ("lib/systemd/system/cheetah-node.service", "lib/udev/rules.d/59-cheetah.rules"):
        assert (prefix / name).is_file()
    assert (prefix / "share/bash-completion/completions/cheetah").is_file()
    assert {path.name for path in (prefix / "lib/cheetah/venv/bin").iterdir()} <= {
        "python",
        "python3",
        f"python3.{sys.version_info.minor}",
    }
    if man := shutil.which("man"):
        assert "cheetah-triage.1" in run(man, "-M", prefix / "share/man", "-w", "cheetah-triage")


def pinned(path: str) -> dict[str, str]:
    """The versions in a list of packages."""
    return dict(re.findall(r"(?m)^([\w-]+)==(\S+)", (ROOT / path).read_text()))


def test_packages_for_systems_have_all_that_the_wheel_needs_in_the_versions_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
    needed, waiting = set[str](), list(project["dependencies"])
    while waiting:
        name = re.split(r"[^\w.-]", waiting.pop())[0].lower()
        if name not in needed:
            needed.add(name)
            waiting += [line for line in requires(name) or [] if "extra ==" not in line]
    listed = pinned("packaging/vendored.txt")
    assert set(listed) == needed
    tested = pinned("python/requirements-test.txt")
    assert {name: listed[name] for name in listed if name in tested} == {
        name: tested[name] for name in listed if name in tested
    }


def test_the_package_for_debian_has_the_verbs_that_run_in_python(
    wheel: Path, pack: Callable[..., Path], system: Path, inside: Callable[..., str], tmp_path: Path
) -> None:
    dpkg, version = program("dpkg"), f"3.{sys.version_info.minor}"
    if (system / "usr/bin/python3").resolve().name != f"python{version}":
        pytest.skip(f"needs Python {version} as /usr/bin/python3, for which the packages of the tests are")
    environment = tmp_path / "environment"
    settings = os.environ | {"LIST": os.devnull, "TOOLS": sys.prefix, "PYTHONS": version}
    run(ROOT / "packaging/vendor", wheel, environment, env=settings)
    # In place of what would be fetched.
    (environment / f"lib/python{version}/site-packages/lent.pth").write_text("/mnt/lent\n")
    deb = pack("deb", environment, COMPRESSION="-Zgzip -z1")
    assert re.search(r"Depends: libc6 \(>= 2\.\d+\)", run(program("dpkg-deb"), "--info", deb))

    run(dpkg, f"--root={system}", "--install", deb)
    assert list((system / "usr/lib/cheetah").rglob("*.pyc")), "modules are compiled when they are installed"
    shutil.copy(disk(tmp_path), system / "var/tmp/disk.raw")
    triage = "cheetah triage /var/tmp/disk.raw --out /var/tmp/found; cheetah bench storage 2>&1 || test $? = 2"
    said = inside(system, triage, lent={sysconfig.get_path("purelib"): "mnt/lent"})
    assert "runs in Python" not in said
    assert "letter.txt" in (system / "var/tmp/found/bodyfile.txt").read_text()
    run(dpkg, f"--root={system}", "--purge", "cheetah-forensics")
    assert not (system / "usr/lib/cheetah").exists()
