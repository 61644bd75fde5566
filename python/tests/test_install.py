"""The package as pip installs it from a checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, program, run

# Only needed if something changed after scripts/python-env, or if another cargo holds the lock of the target directory, as the lints do.
BUILD_S = 1800


def test_a_build_by_pip_leaves_the_target_directory_of_the_checkout_alone(tmp_path: Path) -> None:
    cargo = program("cargo")
    pytest.importorskip("maturin")
    # A cargo that reports its target directory, and stops.
    pretended = tmp_path / "bin/cargo"
    pretended.parent.mkdir()
    pretended.write_text(
        f"""#!/bin/sh
case "$*" in
    *metadata*) exec {cargo} "$@" ;;
    *rustc* | *build*) printf %s "$CARGO_TARGET_DIR" >{tmp_path}/marker; exit 1 ;;
esac
exec {cargo} "$@"
"""
    )
    pretended.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CARGO_TARGET")}
    environment["PATH"] = f"{pretended.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment["CARGO"] = str(pretended)
    argv = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, ROOT / "python"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    marker = tmp_path / "marker"
    assert done.returncode != 0 and marker.exists(), done.stdout + done.stderr
    assert marker.read_text() and ROOT not in Path(marker.read_text()).parents
    assert not Path(marker.read_text()).exists()


@pytest.mark.timeout(BUILD_S)
def test_pip_installs_all_of_it_and_nothing_else(tmp_path: Path) -> None:
    program("cargo")
    pytest.importorskip("maturin")
    # As scripts/python-env builds it, so that it need not be built again.
    settings = {"MATURIN_PEP517_ARGS": "--profile dev"}
    settings["CARGO_TARGET_DIR"] = str(ROOT / "target")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    flags = ("--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--target", tmp_path)
    environment = os.environ | settings | {"PATH": path}
    # Tests of the boot image set it, and with another one C code is built again.
    environment.pop("SOURCE_DATE_EPOCH", None)
    run(sys.executable, "-m", "pip", "install", *flags, ROOT / "python", env=environment, timeout_s=BUILD_S)

    installed = {str(path.relative_to(tmp_path / "cheetah")) for path in (tmp_path / "cheetah").rglob("*.*")}
    sources = {str(path.relative_to(ROOT / "python/cheetah")) for path in (ROOT / "python/cheetah").rglob("*.*")}
    assert {name for name in installed ^ sources if "__pycache__" not in name} == set()
    assert {"py.typed", "_native.pyi", "triage/__main__.py"} < installed
    assert {entry.name.partition("-")[0] for entry in tmp_path.iterdir()} == {"cheetah", "cheetah_forensics"}

    code = "import cheetah, importlib.metadata as about; print(cheetah.__file__, about.requires('cheetah-forensics'))"
    said = run(sys.executable, "-c", code, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert said.startswith(str(tmp_path)) and said.count("extra ==") == said.count(";") == 2
