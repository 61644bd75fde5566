"""The part of the program for Windows: what it refuses, what it runs, and its rows. No time is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.parts import windows
from bench.tools import wine
from bench.tools.wine import Wine, there
from cheetah.bench.failure import BenchError


def test_a_missing_program_is_refused_with_what_builds_it(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="there is no .*make static TARGET="):
        wine.release_build(str(tmp_path))


@pytest.mark.parametrize("profile", ["dev\n", None])
def test_a_build_for_tests_is_refused(tmp_path: Path, profile: str | None) -> None:
    (tmp_path / "cheetah.exe").write_bytes(b"MZ")
    if profile is not None:
        (tmp_path / "profile").write_text(profile)
    with pytest.raises(BenchError, match=f"{'profile dev' if profile else 'unknown profile'}.*make static TARGET="):
        wine.release_build(str(tmp_path))


def test_a_release_build_is_taken(tmp_path: Path) -> None:
    (tmp_path / "cheetah.exe").write_bytes(b"MZ")
    (tmp_path / "profile").write_text("release\n")
    assert wine.release_build(str(tmp_path)) == str(tmp_path / "cheetah.exe")


def test_a_missing_wine_is_refused_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(wine, "DEBIAN", str(tmp_path))
    with pytest.raises(BenchError, match="there is no wine64: .*install-deps --windows"):
        wine.program("wine64", "wine64")
    loader = tmp_path / "wine64"
    loader.write_text("")
    loader.chmod(0o755)
    assert wine.program("wine64", "wine64") == str(loader)


def test_a_command_line_runs_the_program_for_windows_with_settings_of_its_own() -> None:
    made = Wine("/w/wine64", "/b/cheetah.exe", "/b/wine", "/scratch/wine-1")
    argv = made.command(["/usr/bin/cheetah", "--json", "node", "--memory", "64MiB"])
    assert argv[argv.index("/w/wine64") :] == ["/w/wine64", "/b/cheetah.exe", "--json", "node", "--memory", "64MiB"]
    assert "WINEPREFIX=/scratch/wine-1/prefix" in argv and r"WINEPATH=Z:\b\wine" in argv
    assert r"XDG_CONFIG_HOME=Z:\scratch\wine-1\settings" in argv
    assert there("/a/b.raw") == r"Z:\a\b.raw"


def test_a_node_has_a_bar_for_large_reads_only() -> None:
    assert {key: bar for key, *_, bar in windows.WORKLOADS if bar is not None} == {"seq-read-1m-qd16": 0.5}


def test_an_agent_has_a_bar_beside_the_link_and_none_beside_linux() -> None:
    rates = {windows.IN_WINE: 96.0, windows.ON_LINUX: 120.0, windows.LINK: 100.0}
    figures = windows.agent_figures({name: [{"rate": rate}] for name, rate in rates.items()}, "Not Windows.")
    assert {figure.id: (figure.bar, figure.met()) for figure in figures} == {
        "windows/acquire/link/rate": (0.95, True),
        "windows/acquire/linux/rate": (None, None),
    }
    assert [figure.ratio() for figure in figures] == [0.96, 0.8]
    assert {figure.note for figure in figures} == {"Not Windows."}
