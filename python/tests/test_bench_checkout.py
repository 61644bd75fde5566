"""Parts measured by a checkout: finding, running and interrupting it, and adopting its figures."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S

from cheetah.bench import checkout, results
from cheetah.bench.checkout import Checkout, Choice
from cheetah.bench.failure import BenchError

RUN = """
    import json, os, signal, sys, time
    words = sys.argv[1:]
    if words == ["--parts"]:
        print(json.dumps([{"part": part, "title": part.upper(), "about": "What it is."} for part in ("node", "acquire")]))
        sys.exit()
    part, out = words[0], words[words.index("--out") + 1]
    print("  one round", words, flush=True)
    mode = os.environ.get("PRETEND", "")
    if mode in ("fail", f"fail {part}"):
        print(f"{part}: fio is not installed", file=sys.stderr)
        print("a last word")
        sys.exit(1)
    if mode == "wait":
        try:
            open(os.environ["PRETEND_AT"], "w").close()
            time.sleep(600)
        except KeyboardInterrupt:
            time.sleep(0.2)
            open(os.environ["PRETEND_AT"] + ".cleaned", "w").close()
            sys.exit(130)
    figure = {"id": f"{part}/rate", "what": "rate", "unit": "MiB/s", "ours": "cheetah", "better": "higher", "bar": 1.0,
              "samples": {"cheetah": [3.0, 2.0], "nbdkit": [1.0]}, "note": ""}
    if mode == "none":
        figure["samples"] = {"cheetah": [float("nan")]}
    value = {"part": part, "quick": "--quick" in words, "rounds": 2, "finished": "2026-11-21T18:00:00+00:00",
             "machine": {"fio": "fio-3.33"}, "figures": [figure]}
    with open(os.path.join(out, part + ".json"), "w") as file:
        json.dump(value, file)
"""
NODE = {"part": "node", "title": "NODE", "about": "What it is."}


@pytest.fixture(name="sources")
def _sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake checkout."""
    root = tmp_path / "sources"
    for name in checkout.NEEDS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(RUN), encoding="utf-8")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return root


def test_a_named_checkout_is_used(sources: Path, tmp_path: Path) -> None:
    assert checkout.find(sources) == sources.resolve()
    with pytest.raises(BenchError, match="is not a checkout of Cheetah"):
        checkout.find(tmp_path)


def test_a_surrounding_checkout_is_used_unless_others_could_have_placed_it(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "__file__", str(tmp_path / "site-packages/cheetah/bench/checkout.py"))
    (sources / "a/b").mkdir(parents=True)
    monkeypatch.chdir(sources / "a/b")
    assert checkout.find(None) == sources
    (sources / checkout.RUN).chmod(0o777)
    with pytest.raises(BenchError, match=r"need a checkout of Cheetah.*--sources DIR"):
        checkout.find(None)


def test_figures_of_a_checkout_are_adopted(sources: Path) -> None:
    progress = io.StringIO()
    parts = Checkout(sources).parts()
    assert list(parts) == ["node", "acquire"]
    part, machine = Checkout(sources).measure(parts["node"], Choice(quick=True, rounds=2), progress)
    assert (part["title"], part["quick"], part["rounds"]) == ("NODE", True, 2)
    assert machine == {"fio": "fio-3.33"} and "machine" not in part
    assert results.figures(part)[0].ratio() == 2.5
    assert "one round" in progress.getvalue() and "'--quick', '--rounds', '2'" in progress.getvalue()


def test_a_failing_part_reports_its_reason(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETEND", "fail")
    with pytest.raises(BenchError, match=r"^fio is not installed$"):
        Checkout(sources).measure(NODE, Choice(), io.StringIO())
    monkeypatch.setenv("PRETEND", "none")
    with pytest.raises(BenchError, match=r"left no figures: .*not a measurable number"):
        Checkout(sources).measure(NODE, Choice(), io.StringIO())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BenchError, match="needs root"):
        Checkout(sources).measure(NODE, Choice(), io.StringIO())


def bench(sources: Path, out: Path, *words: str, **env: str) -> "subprocess.Popen[str]":
    """Runs `cheetah bench WORDS` with that checkout."""
    if os.getuid() != 0:
        pytest.skip("needs root, as every part does")
    argv = [sys.executable, "-m", "cheetah.bench", *words, "--sources", str(sources), "--out", str(out)]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}, cwd="/"
    )


def test_a_part_has_a_second_name(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = bench(sources, out, "transfer", "--quick", "--json")
    said, complained = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, complained
    assert json.loads(said.splitlines()[-1])["parts"] == [{"part": "acquire", "figures": 1, "problem": ""}]
    assert "one round" in complained
    # A second part is added to the first.
    run = bench(sources, out, "node")
    said, complained = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, complained
    assert [part["part"] for part in results.read(out).parts] == ["acquire", "node"]
    assert (out / "report.html").is_file() and str(out / "report.html") in said
    # A failing part keeps the earlier figures, with a note.
    run = bench(sources, out, "node", PRETEND="fail")
    said, complained = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1 and "fio is not installed" in complained
    part = results.read(out).part("node")
    assert part is not None and part["figures"] and "fio is not installed" in part["problem"]


def test_an_unknown_part_lists_the_known_ones(sources: Path, tmp_path: Path) -> None:
    run = bench(sources, tmp_path / "out", "disks")
    _, complained = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 2 and "there are storage, compare, report, node, acquire, transfer" in complained


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_part_stops_what_it_started(sources: Path, tmp_path: Path, number: signal.Signals) -> None:
    mark = tmp_path / "mark"
    run = bench(sources, tmp_path / "out", "node", PRETEND="wait", PRETEND_AT=str(mark))
    deadline = time.monotonic() + PATIENCE_S
    while not mark.exists():
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.2)
    run.send_signal(number)
    _, complained = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1, complained
    assert (tmp_path / "mark.cleaned").exists()
    part = results.read(tmp_path / "out").part("node")
    assert part is not None and part["problem"] == "interrupted"
    assert "interrupted" in complained and "Traceback" not in complained
