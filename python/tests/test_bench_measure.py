"""Measurements of a tool: time, processor, memory, bytes; how it is ended; its bottleneck."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench_fakes import tmp_path as tmp_path
from conftest import MIB, PATIENCE_S

from cheetah.bench import fio
from cheetah.bench.storage.measurement import counters, measure, quiet, reserve, tool
from cheetah.bench.storage.measurement.counters import Counters
from cheetah.bench.storage.sample import Outcome, Sample
from cheetah.bench.storage.steps import Command
from cheetah.bench.storage.targets.target import ReadyTarget

BLANK = Sample("here", "work", "cold", 1, Outcome.DONE)
SLEEPS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def python(code: str, *words: str) -> tuple[str, ...]:
    """Returns the command line of a tool."""
    return (sys.executable, "-I", "-S", "-c", code, *words)


def taken(directory: Path, *commands: Sequence[str], limit_s: float = PATIENCE_S) -> Sample:
    """Returns a sample of these commands in sequence."""
    ready = ReadyTarget(directory, None)
    return measure.measure(BLANK, [Command(tuple(argv)) for argv in commands], ready, limit_s)[0]


def is_gone(pid: int) -> bool:
    """Waits until a process has ended."""
    for _ in range(int(PATIENCE_S / 0.05)):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_usage_of_children_counts_as_the_tools(tmp_path: Path) -> None:
    grandchild = (
        "import time\n"
        "while time.process_time() < 0.3: pass\n"
        "data = open('/dev/zero', 'rb').read(30 << 20)\n"
        "open('/dev/null', 'wb').write(data[: 20 << 20])\n"
    )
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', {grandchild!r}])"
    sample = taken(tmp_path, (sys.executable, "-c", child))
    assert sample.outcome is Outcome.DONE, sample.problem
    assert sample.read_bytes is not None and 30 * MIB <= sample.read_bytes < 40 * MIB
    assert sample.written_bytes is not None and 20 * MIB <= sample.written_bytes < 21 * MIB
    assert sample.cpu_s is not None and sample.cpu_s >= 0.3
    assert sample.memory_peak_bytes is not None and 30 * MIB <= sample.memory_peak_bytes < 90 * MIB
    assert sample.seconds is not None and sample.tool_s is not None and sample.flush_s is not None
    assert sample.seconds == pytest.approx(sample.tool_s + sample.flush_s)


def test_memory_of_the_harness_is_not_counted(tmp_path: Path) -> None:
    ours = bytearray(100 * MIB)
    ours[::4096] = bytes([1]) * len(ours[::4096])
    sample = taken(tmp_path, ("true",))
    assert sample.memory_peak_bytes is not None and sample.memory_peak_bytes < 16 * MIB


def test_a_tool_is_ended_before_it_fills_a_shared_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others need space on the disk. A file system that was made to be filled may be."""
    space = types.SimpleNamespace(f_frsize=MIB, f_blocks=64 << 10, f_bavail=32 << 10)
    monkeypatch.setattr(reserve.os, "statvfs", lambda _: space)
    assert (
        reserve.watch(ReadyTarget(tmp_path, None)) is None
        and reserve.watch(ReadyTarget(tmp_path, "7:0", (tmp_path,))) is None
    )
    look = reserve.watch(ReadyTarget(tmp_path, "8:0"))
    assert look is not None and look() == ""
    space.f_bavail = 1000
    assert "no more than 1,000 MiB" in look()
    monkeypatch.setattr(reserve, "watch", lambda _: look)
    sample = taken(tmp_path, python(SLEEPS))
    assert sample.outcome is Outcome.FAILED and "it was ended, since it left no more" in sample.problem


def test_measuring_costs_less_than_one_percent(tmp_path: Path) -> None:
    sample = taken(tmp_path, python("import time; time.sleep(1); open('/dev/zero', 'rb').read(50 << 20)"))
    assert sample.read_bytes is not None and sample.harness_bytes < sample.read_bytes / 100
    assert sample.seconds is not None and sample.harness_cpu_s < sample.seconds / 10
    assert not sample.warnings or "host" in sample.warnings[0]


def test_several_commands_are_measured_together(tmp_path: Path) -> None:
    read = "open('/dev/zero', 'rb').read(5 << 20)"
    sample = taken(tmp_path, python(read), python(read))
    assert sample.read_bytes is not None and 10 * MIB <= sample.read_bytes < 11 * MIB


def test_a_tool_has_empty_input_and_runs_in_its_target(tmp_path: Path) -> None:
    ran = tool.run(python("import os, sys; print(len(sys.stdin.read()), os.getcwd())"), tmp_path)
    assert ran.printed.split() == ["0", str(tmp_path)]


def test_output_goes_to_the_named_file(tmp_path: Path) -> None:
    ran = tool.run(python("print('said')"), tmp_path, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "said\n"
    assert ran.printed == ""


def test_a_failing_tool_is_reported_with_its_last_output(tmp_path: Path) -> None:
    sample = taken(tmp_path, python("import sys; sys.stderr.write('x' * (8 << 20) + ' no such luck\\n'); sys.exit(3)"))
    assert sample.outcome is Outcome.FAILED
    assert "exit code 3" in sample.problem and sample.problem.endswith("no such luck")
    assert len(sample.problem) < 1000
    assert sample.seconds is None


def test_other_exit_codes_may_mean_success(tmp_path: Path) -> None:
    command = Command(python("import sys; sys.exit(2)"), good=frozenset({0, 2}))
    assert measure.measure(BLANK, [command], ReadyTarget(tmp_path, None), PATIENCE_S)[0].outcome is Outcome.DONE


def test_a_tool_ended_by_a_signal_is_reported(tmp_path: Path) -> None:
    sample = taken(tmp_path, python("import os; os.kill(os.getpid(), 11)"))
    assert sample.outcome is Outcome.FAILED and "signal 11" in sample.problem


@pytest.mark.parametrize("name", ["no-such-program", "/etc/hostname"])
def test_a_tool_that_cannot_be_started_is_reported(tmp_path: Path, name: str) -> None:
    sample = taken(tmp_path, (name,))
    assert sample.outcome is Outcome.FAILED and "could not be started" in sample.problem


def test_a_hanging_tool_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "TERM_S", 0.5)
    code = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "time.sleep(600)\n"
    )
    sample = taken(tmp_path, (sys.executable, "-c", code), limit_s=10)
    assert sample.outcome is Outcome.HUNG
    assert "not done after 10 s" in sample.problem and "--step-limit" in sample.problem
    assert all(is_gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_processes_left_by_a_tool_are_ended(tmp_path: Path) -> None:
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid)"
    ran = tool.run((sys.executable, "-c", code), tmp_path)
    assert is_gone(int(ran.printed))


def test_a_tool_that_cannot_be_ended_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Like a process that waits for a dead device.
    monkeypatch.setattr(tool, "TERM_S", 0.1)
    monkeypatch.setattr(tool, "KILL_S", 0.1)
    groups = []
    monkeypatch.setattr(tool.os, "killpg", lambda group, number: groups.append(group))
    with pytest.raises(measure.Abandoned) as abandoned:
        taken(tmp_path, python(SLEEPS), limit_s=1)
    monkeypatch.undo()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(groups[0], signal.SIGKILL)
    assert abandoned.value.sample.outcome is Outcome.HUNG
    assert "left out from here on" in str(abandoned.value)


def test_a_tool_ends_with_the_harness(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from cheetah.bench.storage.measurement import tool\n"
        "tool.run([sys.executable, '-c', \"import os, time; open('pid', 'w').write(f'{os.getpid()} '); time.sleep(600)\"],"
        " Path(sys.argv[1]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as harness:
        until_s = time.monotonic() + PATIENCE_S
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith(" ")):
            assert time.monotonic() < until_s
            time.sleep(0.05)
        harness.kill()
    assert is_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("busy", "verdict"),
    [
        ({"tool": 0.95, "processors": 0.5, "device": 0.1}, "processor (one)"),
        ({"tool": 0.95, "processors": 0.5, "device": 0.9}, "processor (one)"),
        ({"tool": 1.9, "processors": 0.97, "device": 0.1}, "processors (all)"),
        ({"tool": 0.2, "processors": 0.95, "device": 0.9}, "processors (all)"),
        ({"tool": 0.2, "processors": 0.2, "device": 0.85}, "storage"),
        ({"tool": 0.2, "processors": 0.2, "io stalled": 0.6}, "storage"),
        ({"tool": 0.2, "processors": 0.2, "device": 0.95, "network": 0.9}, "network"),
        ({"tool": 0.95, "processors": 0.6, "device": 0.95, "memory stalled": 0.4}, "memory"),
        ({"tool": 0.5, "processors": 0.5, "device": 0.5, "io stalled": 0.1, "network": 0.5}, "unclear"),
        ({}, "unclear"),
    ],
)
def test_the_bottleneck_follows_from_the_shares(busy: dict[str, float], verdict: str) -> None:
    assert counters.bottleneck(busy, processors=2) == verdict


def test_with_one_processor_only_one_can_be_the_bottleneck() -> None:
    assert counters.bottleneck({"tool": 0.95, "processors": 0.97}, processors=1) == "processor (one)"


def test_shares_are_of_the_time_between_two_readings() -> None:
    before = Counters(100.0, 0, 0, 7.0, 1000, 0, 5000, {"io": 1.0}, {"eth0": (0, 0), "lo": (0, 0)})
    after = Counters(110.0, 4096, 0, 12.0, 1500, 20, 7000, {"io": 3.5}, {"eth0": (10**9, 5), "lo": (10**9, 10**9)})
    busy = counters.shares(before, after, 0.7, {"eth0": 125e6})
    assert busy == {
        "tool": 0.7, "processors": 0.25, "stolen": 0.01, "device": 0.5, "io stalled": 0.25, "network": 0.8
    }  # fmt: skip


def test_a_reported_start_is_left_out_of_the_shares() -> None:
    """Of ten seconds on two processors the tool spent six, and four of processor time, on starting."""
    before = Counters(100.0, 0, 0, 7.0, 1000, 0, 5000, {"io": 1.0}, {"eth0": (0, 0)})
    after = Counters(110.0, 4096, 0, 11.0, 1600, 0, 7000, {"io": 3.0}, {"eth0": (10**8, 0)})
    busy = counters.shares(before, after, 0.5, {"eth0": 125e6}, work_s=4.0, start_cpu_s=400 / counters.TICKS_PER_S)
    assert busy == {
        "tool": 0.5, "processors": 0.25, "stolen": 0.0, "device": 1.0, "io stalled": 0.5, "network": 0.2
    }  # fmt: skip


def test_the_start_of_fio_does_not_count_in_the_bottleneck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, float | None, float]] = []

    def shares(
        _before: Counters, _after: Counters, tool_share: float, _links: object, work_s: float, start_cpu_s: float
    ) -> dict[str, float]:
        seen.append((tool_share, work_s, start_cpu_s))
        return {}

    monkeypatch.setattr(counters, "shares", shares)
    jobs = [{"job_runtime": 250, "usr_cpu": 8.0, "sys_cpu": 2.0}, {"job_runtime": 250, "usr_cpu": 0.0, "sys_cpu": 0.0}]
    code = f"import json; x = sum(range(10**6)); print(json.dumps({{'jobs': {jobs}}}))"
    sample, _ = measure.measure(BLANK, [Command(python(code))], ReadyTarget(tmp_path, None), PATIENCE_S, busy=fio.busy)
    assert sample.outcome is Outcome.DONE, sample.problem
    ((tool_share, work_s, start_cpu_s),) = seen
    assert work_s == pytest.approx(0.5 + sample.flush_s) and sample.cpu_s is not None
    work_cpu_s = min(0.025, sample.cpu_s)
    assert tool_share == pytest.approx(work_cpu_s / work_s) and start_cpu_s == pytest.approx(sample.cpu_s - work_cpu_s)


def test_a_busy_machine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Counters(100.0, None, None, None, 1000, 0, 5000, {"io": 1.0}, {})
    busy = Counters(101.0, None, None, None, 1100, 0, 5200, {"io": 1.02}, {})
    readings = iter([before, busy, before, before])
    monkeypatch.setattr(counters, "read", lambda device: next(readings))
    assert quiet.disturbance(0).endswith("measured: its processors were busy for 50% of the time")
    assert quiet.disturbance(0) == ""


def test_loopback_is_not_counted_as_network() -> None:
    before = counters.read(None)
    moved = {"lo": (10**9, 10**9), "eth0": (5, 7)}
    then = Counters(**{**vars(before), "network_bytes": {"lo": (0, 0), "eth0": (0, 0)}})
    assert counters.network_bytes(then, Counters(**{**vars(before), "network_bytes": moved})) == 7
    assert counters.network_bytes(then, Counters(**{**vars(before), "network_bytes": {"lo": (9, 9)}})) is None


def test_counters_missing_in_the_kernel_are_omitted() -> None:
    now = counters.read(None)
    assert now.device_busy_s is None and now.device_read_bytes is None
    assert "device" not in counters.shares(now, now, 0.0, {})
    assert counters.read("0:9999").device_busy_s is None
