"""A run: failures are isolated, interrupted runs resume, and nothing is left behind."""

import dataclasses
import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_fakes import COPY, Directory, Fake, Measured, directories, measured
from bench_fakes import tmp_path as tmp_path
from bench_targets import soon
from conftest import PATIENCE_S, program, run

from cheetah import progress_output
from cheetah.bench import results
from cheetah.bench.failure import BenchError, Misuse
from cheetah.bench.storage.measurement import cache, quiet, tool
from cheetah.bench.storage.run import progress
from cheetah.bench.storage.run.progress import Event
from cheetah.bench.storage.run.runner import GO_ON
from cheetah.bench.storage.steps import Command, Workplace
from cheetah.bench.storage.targets import active

FAILS = "import sys; sys.exit('no good')"
HANGS = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def _beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # Caches are kept, and the check for a quiet machine is short.
    monkeypatch.setattr(cache, "_DROP", "/nonexistent/drop_caches")
    monkeypatch.setattr(quiet, "LOOK_S", 0.05)


def is_clean(*targets: Directory) -> bool:
    """Returns whether nothing of a run is left."""
    return not any(any(target.path.iterdir()) for target in targets)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Directory]:
    """A target of 8 MiB."""
    yield from mounted(tmp_path, "small", "size=8m")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Directory]:
    """A target that cannot be written to."""
    yield from mounted(tmp_path, "read-only", "ro")


def mounted(parent: Path, name: str, options: str) -> Iterator[Directory]:
    """A tmpfs."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount")
    program("mount")
    directory = parent / name
    directory.mkdir()
    try:
        run("mount", "-t", "tmpfs", "-o", options, "none", directory)
    except AssertionError as error:
        pytest.skip(f"cannot mount here: {error}")
    yield Directory(directory)
    run("umount", directory)


def test_every_step_runs_on_every_target_in_turns(tmp_path: Path) -> None:
    targets = directories(tmp_path, "a", "b", "c")
    done = measured(tmp_path, targets, [Fake("copy", COPY), Fake("again", COPY, ("copy",))], repetitions=2)
    assert done.code == 0
    turns = [(event.repetition, event.step, event.target) for event in done.events if event.stage == "measured"]
    assert turns == [
        (number, step, target)
        for number, order in ((1, "abc"), (2, "bca"))
        for step in ("copy", "again")
        for target in order
    ]  # fmt: skip
    assert is_clean(*targets)
    results.checked(json.loads(json.dumps(done.part, allow_nan=False)))
    figures = {figure.id: figure for figure in results.figures(done.part)}
    assert list(figures) == ["storage/copy/cold", "storage/again/cold"]
    figure = figures["storage/again/cold"]
    assert (figure.unit, figure.better, figure.baseline) == ("s", "lower", "a")
    of_b = [one for one in done.part["samples"] if (one["step"], one["target"]) == ("again", "b")]
    assert figure.samples["b"] == [one["seconds"] for one in of_b]


def test_a_sample_has_all_measurements(tmp_path: Path) -> None:
    done = measured(tmp_path, directories(tmp_path, "a"), [Fake("copy", COPY)], states=("cold", "warm"))
    cold, warm = done.part["samples"]
    assert (cold["state"], warm["state"]) == ("cold", "warm")
    assert cold["written_bytes"] >= 1 << 20 and cold["read_bytes"] >= 1 << 20
    assert cold["seconds"] > 0 and cold["cpu_s"] > 0 and cold["bottleneck"]
    assert warm["resident_share_before"] == 1.0


def test_the_journal_has_each_sample_as_it_was_taken(tmp_path: Path) -> None:
    done = measured(tmp_path, directories(tmp_path, "a"), [Fake("copy", COPY)], repetitions=2)
    lines = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    assert lines == done.part["samples"]


def test_a_failing_tool_does_not_stop_the_others(tmp_path: Path) -> None:
    targets = directories(tmp_path, "a", "b")
    fails_in_a = "import os, sys; '/a/' in os.getcwd() and sys.exit('no good'); " + COPY
    steps = [Fake("first", COPY), Fake("bad", fails_in_a), Fake("needy", COPY, ("bad",)), Fake("last", COPY)]
    done = measured(tmp_path, targets, steps)
    assert done.code == 1
    outcomes = done.outcomes()
    assert outcomes.pop(("bad", "a")) == ["failed"]
    assert outcomes.pop(("needy", "a")) == ["not reached"]
    assert len(outcomes) == 6 and set(map(tuple, outcomes.values())) == {("done",)}
    assert "no good" in done.sample("bad", "a")["problem"]
    assert "bad, which it needs, was not done here" in done.sample("needy", "a")["problem"]
    assert is_clean(*targets)


def test_a_directory_that_cannot_be_read_fails_only_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a file system whose device has lost a block.
    exists = Path.exists

    def broken(path: Path) -> bool:
        if path.parts[-3] == "a" and path.name == "first":
            raise OSError(errno.EBADMSG, "Bad message", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", broken)
    done = measured(tmp_path, directories(tmp_path, "a", "b"), [Fake("first", COPY), Fake("second", COPY, ("first",))])
    assert done.code == 1
    assert done.outcomes().pop(("second", "b")) == ["done"]
    assert done.sample("second", "a")["outcome"] == "failed"
    assert "Bad message" in done.sample("second", "a")["problem"]


def test_a_hanging_tool_is_ended_and_the_run_continues(tmp_path: Path) -> None:
    targets = directories(tmp_path, "a")
    done = measured(tmp_path, targets, [Fake("hangs", HANGS), Fake("last", COPY)], step_limit_s=15.0)
    assert done.code == 1
    assert done.outcomes() == {("hangs", "a"): ["hung"], ("last", "a"): ["done"]}
    assert is_clean(*targets)


def test_a_target_that_does_not_answer_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to freeze a file system")
    program("fsfreeze")
    image, frozen = tmp_path / "image", tmp_path / "frozen"
    frozen.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    run(program("mkfs.ext4"), "-q", image)
    try:
        run("mount", "-o", "loop", image, frozen)
    except AssertionError as error:
        pytest.skip(f"cannot mount here: {error}")
    monkeypatch.setattr(tool, "TERM_S", 0.2)
    monkeypatch.setattr(tool, "KILL_S", 0.5)
    monkeypatch.setattr(active, "LEAVE_S", 0.5)
    freezes = f"import subprocess\nsubprocess.run(['fsfreeze', '-f', {str(frozen)!r}])\nopen('more', 'w')"
    targets = [Directory(frozen), *directories(tmp_path, "other")]

    class Freezes(Fake):
        def commands(self, place: Workplace) -> list:  # type: ignore[type-arg]
            code = freezes if place.directory.is_relative_to(frozen) else ""
            return [Command((sys.executable, "-c", code))]

    try:
        done = measured(tmp_path, targets, [Freezes("hangs", ""), Fake("last", COPY)], step_limit_s=15.0)
    finally:
        run("fsfreeze", "-u", frozen)
        # Processes left behind there end now.
        assert soon(lambda: subprocess.run(["umount", frozen], capture_output=True, check=False).returncode == 0)
    assert done.code == 1
    assert done.outcomes()["hangs", "frozen"] == ["hung"]
    assert "cannot be ended" in done.sample("hangs", "frozen")["problem"]
    assert done.outcomes()["last", "frozen"] == ["not reached"]
    assert done.outcomes()["last", "other"] == ["done"]
    assert any("frozen does not answer" in warning for warning in done.part["warnings"])


def test_a_full_target_is_reported_and_the_run_continues(tmp_path: Path, small: Directory) -> None:
    fills = "import sys\nfor _ in range(16): sys.stdout.buffer.write(bytes(1 << 20))"
    (other,) = directories(tmp_path, "other")
    steps = [Fake("fills", fills), Fake("needy", COPY, ("fills",)), Fake("last", COPY)]
    done = measured(tmp_path, [small, other], steps)
    assert done.code == 1
    outcomes = done.outcomes()
    assert outcomes["fills", "small"] == ["failed"] and "No space left" in done.sample("fills", "small")["problem"]
    assert outcomes["needy", "small"] == ["not reached"]
    assert outcomes["last", "small"] == ["done"], "what the failed tool had written is in the way"
    assert [outcomes[step, "other"] for step in ("fills", "needy", "last")] == [["done"]] * 3
    assert is_clean(small, other)


def test_a_read_only_target_is_reported_and_the_run_continues(tmp_path: Path, read_only: Directory) -> None:
    (other,) = directories(tmp_path, "other")
    done = measured(tmp_path, [other, read_only], [Fake("copy", COPY), Fake("again", COPY, ("copy",))], repetitions=2)
    assert done.code == 1
    for step in ("copy", "again"):
        assert done.outcomes()[step, "read-only"] == ["failed"]
        assert "Read-only" in done.sample(step, "read-only")["problem"]
        assert done.outcomes()[step, "other"] == ["done", "done"]
    assert sum("read-only" in warning for warning in done.part["warnings"]) == 1


def test_a_target_that_becomes_read_only_is_reported(tmp_path: Path, small: Directory) -> None:
    (other,) = directories(tmp_path, "other")

    class Turns(Fake):
        def commands(self, place: Workplace) -> list:  # type: ignore[type-arg]
            run("mount", "-o", "remount,ro", small.path)
            return super().commands(place)  # type: ignore[return-value]

    try:
        done = measured(tmp_path, [small, other], [Fake("first", COPY), Turns("copy", COPY)])
    finally:
        run("mount", "-o", "remount,rw", small.path)
    assert done.outcomes()["first", "small"] == ["done"]
    assert done.outcomes()["copy", "small"] == ["failed"]
    assert "Read-only" in done.sample("copy", "small")["problem"]
    assert done.outcomes()["copy", "other"] == ["done"]
    assert any("could not be taken down" in warning for warning in done.part["warnings"])


def test_a_missing_tool_is_reported_once(tmp_path: Path) -> None:
    steps = [Fake("copy", COPY), Fake("rare", COPY, tools=("no-such-carver",)), Fake("needy", COPY, ("rare",))]
    done = measured(tmp_path, directories(tmp_path, "a", "b"), steps, repetitions=2)
    assert done.outcomes()["rare", "a"] == done.outcomes()["rare", "b"] == ["skipped"]
    assert "no-such-carver is not installed" in done.sample("rare", "a")["problem"]
    assert sum("no-such-carver" in warning for warning in done.part["warnings"]) == 1
    assert done.outcomes()["copy", "b"] == ["done"] * 2


def test_a_missing_tool_is_not_a_failure(tmp_path: Path) -> None:
    steps = [Fake("copy", COPY), Fake("rare", COPY, tools=("no-such-carver",))]
    assert measured(tmp_path, directories(tmp_path, "a"), steps).code == 0


class Teller(Fake):
    """A tool that reports its rate, and in its output whether it failed."""

    def commands(self, place: Workplace) -> list:  # type: ignore[type-arg]
        return [dataclasses.replace(one, stdout=None) for one in super().commands(place)]

    def rate(self, printed: str) -> float | None:
        return float(printed)

    def failure(self, place: Workplace, printed: str) -> str:
        return "it says that it was nothing" if printed.strip() == "0" else ""


def test_a_rate_reported_by_the_tool_is_used(tmp_path: Path) -> None:
    done = measured(tmp_path, directories(tmp_path, "a"), [Teller("fast", "print(5e6)"), Teller("nothing", "print(0)")])
    assert done.sample("fast", "a")["bytes_per_s"] == 5e6
    (figure,) = results.figures(done.part)
    assert (figure.unit, figure.better, figure.samples) == ("bytes/s", "higher", {"a": [5e6]})
    assert done.sample("nothing", "a")["problem"] == "it says that it was nothing"


def test_output_that_no_step_needs_is_removed(tmp_path: Path) -> None:
    lists = "import os; print(sorted(os.listdir()))"
    steps = [Fake("one", COPY), Fake("two", COPY, ("one",)), Fake("see", lists), Fake("three", COPY, ("two",))]
    kept: list[str] = []

    class Looks(Fake):
        def commands(self, place: Workplace) -> list:  # type: ignore[type-arg]
            kept.append(" ".join(sorted(path.name for path in place.directory.iterdir())))
            return super().commands(place)  # type: ignore[return-value]

    steps = [*steps[:2], Looks("see", "", ()), steps[3], Looks("end", "", ())]
    measured(tmp_path, directories(tmp_path, "a"), steps, repetitions=2)
    assert kept == ["two", "", "two", ""]


def interrupted(tmp_path: Path, number: int, when: str) -> Measured:
    """Runs two steps on two targets, and sends a signal when `when` has begun in b; returns the result."""
    code = """
import json, sys
from pathlib import Path
from bench_fakes import COPY, Directory, Fake, measured
from cheetah.bench.storage.measurement import cache
cache._DROP = "/nonexistent/drop_caches"
out, when = Path(sys.argv[1]), sys.argv[2]
wait = "import os, time; print(open('/proc/self/stat').read().split()[0], file=open('%s', 'w')); time.sleep(600)"
code = {"copy": COPY, "again": COPY}
code[when] = "import os\\nif '/b/' in os.getcwd(): " + wait % (out / "pid") + "\\n" + COPY
steps = [Fake("copy", code["copy"]), Fake("again", code["again"], ("copy",))]
done = measured(out, [Directory(out / "a"), Directory(out / "b")], steps, repetitions=2)
print(json.dumps([done.code, done.part]))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    argv = [sys.executable, "-c", code, str(tmp_path), when]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as process:
        until_s = time.monotonic() + PATIENCE_S
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n")):
            assert time.monotonic() < until_s and process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        printed = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    return Measured(*json.loads(printed), [])


def test_a_terminated_run_leaves_nothing_behind(tmp_path: Path) -> None:
    targets = directories(tmp_path, "a", "b")
    assert interrupted(tmp_path, signal.SIGTERM, "copy").code == 1
    assert is_clean(*targets)


def test_an_interrupted_run_resumes(tmp_path: Path) -> None:
    targets = directories(tmp_path, "a", "b")
    first = interrupted(tmp_path, signal.SIGINT, "again")
    assert first.code == 1 and GO_ON in first.part["warnings"]
    assert is_clean(*targets)
    assert first.outcomes() == {("copy", "a"): ["done"], ("copy", "b"): ["done"], ("again", "a"): ["done"]}
    steps = [Fake("copy", COPY), Fake("again", COPY, ("copy",))]
    then = measured(tmp_path, targets, steps, repetitions=2, resume=True)
    assert then.code == 0
    assert set(map(tuple, then.outcomes().values())) == {("done", "done")}
    before = first.part["samples"]
    assert [sample for sample in then.part["samples"] if sample in before] == before
    turns = [(event.repetition, event.step, event.target) for event in then.events if event.stage == "measured"]
    assert turns[0] == (1, "again", "b") and len(turns) == 5
    again = measured(tmp_path, targets, steps, repetitions=2, resume=True)
    assert not [event for event in again.events if event.stage in ("entering", "measured")]
    assert again.part["samples"] == then.part["samples"]
    assert again.part["targets"] == [{"name": name, "about": {"of": "a test"}} for name in ("a", "b")]
    assert is_clean(*targets)


def test_more_repetitions_can_be_asked_for_later(tmp_path: Path) -> None:
    targets, steps = directories(tmp_path, "a"), [Fake("copy", COPY)]
    first = measured(tmp_path, targets, steps)
    then = measured(tmp_path, targets, steps, repetitions=2, resume=True)
    assert then.part["samples"][0] == first.part["samples"][0] and len(then.part["samples"]) == 2


def test_failed_samples_are_measured_again(tmp_path: Path) -> None:
    targets = directories(tmp_path, "a")
    assert measured(tmp_path, targets, [Fake("copy", FAILS)]).code == 1
    then = measured(tmp_path, targets, [Fake("copy", COPY)], resume=True)
    assert then.code == 0 and then.outcomes() == {("copy", "a"): ["done"]}


def test_an_incomplete_journal_line_is_ignored(tmp_path: Path) -> None:
    targets, steps = directories(tmp_path, "a", "b"), [Fake("copy", COPY)]
    first = measured(tmp_path, targets, steps)
    journal = tmp_path / "out" / "samples.jsonl"
    journal.write_bytes(journal.read_bytes()[:-40])
    then = measured(tmp_path, targets, steps, resume=True)
    assert [event.target for event in then.events if event.stage == "measured"] == ["b"]
    assert then.part["samples"][0] == first.part["samples"][0]
    assert len([json.loads(line) for line in journal.read_text().splitlines()]) == 2


def test_remarks_on_a_busy_machine_stay_with_its_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets, steps = directories(tmp_path, "a"), [Fake("copy", COPY)]
    monkeypatch.setattr(quiet, "disturbance", lambda: "somebody was at work")
    measured(tmp_path, targets, steps)
    monkeypatch.setattr(quiet, "disturbance", lambda: "")
    then = measured(tmp_path, targets, steps, repetitions=2, resume=True)
    assert then.part["warnings"].count("somebody was at work") == 1


def test_samples_of_other_settings_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets, steps = directories(tmp_path, "a"), [Fake("copy", COPY)]
    measured(tmp_path, targets, steps)
    with pytest.raises(Misuse, match="--resume"):
        measured(tmp_path, targets, steps)
    with pytest.raises(Misuse, match=r"states was \[\"cold\"\] and is \[\"warm\"\]"):
        measured(tmp_path, targets, steps, resume=True, states=("warm",))
    with monkeypatch.context() as patch, pytest.raises(Misuse, match=r"kernel was .* and is \"another\""):
        patch.setattr(
            "cheetah.bench.storage.run.runner._machine", lambda: {"host": os.uname().nodename, "kernel": "another"}
        )
        measured(tmp_path, targets, steps, resume=True)
    (tmp_path / "source.raw").write_bytes(b"another")
    with pytest.raises(Misuse, match="image_bytes"):
        measured(tmp_path, targets, steps, resume=True)


def test_samples_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "out" / "samples.jsonl").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic link"):
        measured(tmp_path, directories(tmp_path, "a"), [Fake("copy", COPY)])
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_two_runs_cannot_share_a_directory(tmp_path: Path) -> None:
    targets = directories(tmp_path, "a", "b")
    refused: list[BenchError] = []

    class Second(Fake):
        def commands(self, place: Workplace) -> list:  # type: ignore[type-arg]
            with pytest.raises(BenchError, match="another run uses") as error:
                measured(tmp_path, targets[1:], [Fake("copy", COPY)])
            refused.append(error.value)
            return super().commands(place)  # type: ignore[return-value]

    assert measured(tmp_path, targets[:1], [Second("copy", COPY)]).code == 0
    assert refused


def test_a_step_cannot_remove_files_outside_its_place(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("keep")

    class Greedy(Fake):
        def outputs(self, place: Workplace) -> list[Path]:
            return [mine]

    with pytest.raises(ValueError, match="is not in"):
        measured(tmp_path, directories(tmp_path, "a"), [Greedy("copy", COPY)])
    assert mine.read_text() == "keep"


def test_a_difference_within_the_spread_is_called_chance(tmp_path: Path) -> None:
    done = measured(
        tmp_path, directories(tmp_path, "a", "b"), [Teller("alike", "import time; print(time.time())")], repetitions=2
    )
    assert any(
        "the difference between b" in warning and "may be chance" in warning for warning in done.part["warnings"]
    )


EVENT = Event("measured", 3, 24, 61.5, 240.0, "disk", "md5sum", "cold", 1, 9.0, 2.314)


def test_progress_events_have_words() -> None:
    assert progress.words(EVENT) == "3 of 24: md5sum, cold, on disk: 2.31 s (4 min left)"
    failed = dataclasses.replace(EVENT, seconds=None, said="md5sum: exit code 1", left_s=None)
    assert progress.words(failed) == "3 of 24: md5sum, cold, on disk: md5sum: exit code 1"
    odd = dataclasses.replace(failed, target="\x1b[2Jdisk", said="no \x1b]0;name\x07")
    assert progress.words(odd) == "3 of 24: md5sum, cold, on ⟨U+001B⟩[2Jdisk: no ⟨U+001B⟩]0;name⟨U+0007⟩"
    assert [progress.duration(seconds) for seconds in (8, 700, 11400)] == ["8 s", "12 min", "3 h 10 min"]


def test_progress_in_a_pipe_announces_long_measurements() -> None:
    out = io.StringIO()
    tell = progress.Plain(out)
    tell(dataclasses.replace(EVENT, stage="measuring", seconds=None))
    assert not out.getvalue()
    tell(dataclasses.replace(EVENT, stage="measuring", seconds=None, expected_s=900.0))
    assert out.getvalue() == "   61.5 s  4 of 24: md5sum, cold, on disk (4 min left)\n"


def test_json_progress_is_one_object_per_line() -> None:
    out = io.StringIO()
    progress_output.Json(out)(EVENT)
    assert json.loads(out.getvalue())["progress"]["left_s"] == 240.0
