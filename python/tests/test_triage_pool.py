"""Workers that die or hang: their tasks are done again, and tasks that fail repeatedly are reported."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import triage_tasks

from cheetah.triage.settings import Settings
from cheetah.triage.task import Entry, Result, Task
from cheetah.triage.workers.pool import Pool

HANG_S = 60.0


class Clock:
    """The pool's clock, which goes on only when a test says so."""

    now_s = 0.0

    def monotonic(self) -> float:
        """The time."""
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock of the pool that stands still."""
    made = Clock()
    monkeypatch.setattr("cheetah.triage.workers.pool.time", made)
    monkeypatch.setattr("cheetah.triage.workers.pool.LOOK_S", 0.1)
    return made


@pytest.fixture
def pool(tmp_path: Path, clock: Clock) -> Iterator[Pool]:
    """Two workers that may be silent for a minute."""
    source = tmp_path / "source.raw"
    source.write_bytes(bytes(4096))
    made = Pool(str(source), Settings(str(source), str(tmp_path)), 2, hang_s=HANG_S, do=triage_tasks.do)
    yield made
    made.close()


def order(*what: object) -> Task:
    """A task for `triage_tasks.do`."""
    return Task("unallocated", 0, what)


def results(pool: Pool, *tasks: Task) -> dict[Task, Result]:
    """Their results."""
    return dict(item for item in pool.results(tasks) if item is not None)


def test_a_dead_workers_task_is_done_again(pool: Pool, tmp_path: Path) -> None:
    tasks = [order("die once", str(tmp_path / "died")), *(order("work", number) for number in range(20))]
    found = results(pool, *tasks)
    assert set(found) == set(tasks)
    assert not any(result.failed for result in found.values())
    assert pool.lost == 1


def test_a_task_that_kills_every_worker_is_given_up(pool: Pool, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cheetah.triage.workers.pool.ATTEMPTS", 2)
    tasks = [order("work", 1), order("die"), order("hang"), order("work", 2)]
    found: dict[Task, Result] = {}
    for item in pool.results(tasks):
        if item is not None:
            found[item[0]] = item[1]
        elif len(found) == 3:
            # Only the worker that hangs has a task.
            clock.now_s += 2 * HANG_S
    assert [found[task].failed for task in tasks] == [False, True, True, False]
    assert "died, 2 times" in found[tasks[1]].problems[0].sentence
    assert "did nothing for 60 s, 2 times" in found[tasks[2]].problems[0].sentence


def test_a_reading_worker_is_not_killed_as_hanging(pool: Pool, clock: Clock, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    read = 0
    for item in pool.results([order("read slowly", str(enough))]):
        if item is not None:
            assert not item[1].failed
            break
        # It is silent for less than a minute each time, and works for longer than that.
        (worker,) = (worker for worker in pool._processes if worker.task)
        if worker.reads.value > read:
            read = worker.reads.value
            clock.now_s += 0.9 * HANG_S
        if clock.now_s > 3 * HANG_S:
            enough.touch()
    assert pool.lost == 0


def test_a_file_that_kills_workers_costs_no_other(pool: Pool) -> None:
    names = ("good", "die", "fine")
    entries = [
        Entry(row, 0, str(row), row, None, None, 1, f"/{name}", name, "", False, True) for row, name in enumerate(names)
    ]
    batch = Task.of_entries(0, [entries[1], entries[0], entries[2]])
    found: dict[str, bool] = {}
    for item in pool.results([batch]):
        if item is not None:
            task, result = item
            for one in result.tasks:
                pool.submit(one)
            if not result.tasks:
                found[task.entries()[0].name] = result.failed
                assert not result.failed or result.problems[0].path == "/die"
    assert found == {"good": False, "die": True, "fine": False}
