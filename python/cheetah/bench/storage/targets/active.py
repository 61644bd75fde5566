"""Makes all targets of a run ready at once, since they take turns, and always takes them down."""

import contextlib
import dataclasses
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from cheetah.bench.failure import BenchError
from cheetah.bench.storage.sample import Outcome
from cheetah.bench.storage.targets.target import Missing, ReadyTarget, Target

LEAVE_S = 60.0
"""The time for taking down a target that does not answer; the results do not wait longer."""
_FAILURES = (BenchError, OSError, subprocess.SubprocessError)


@dataclasses.dataclass
class ActiveTargets:
    """The targets of a run."""

    ready: dict[str, ReadyTarget] = dataclasses.field(default_factory=dict)
    """By name, the usable targets."""
    lost: dict[str, tuple[Outcome, str]] = dataclasses.field(default_factory=dict)
    """The others, and why they are unusable."""

    hung: set[str] = dataclasses.field(default_factory=set)
    """Lost targets that no longer answer."""

    def lose(self, name: str, outcome: Outcome, why: str) -> None:
        """Leaves a target out from now on. It is taken down at the end like the others."""
        self.lost[name] = outcome, why
        self.ready.pop(name, None)


@contextlib.contextmanager
def activated(
    targets: Sequence[Target], need_bytes: int, tell: Callable[[str], None], warn: Callable[[str], None]
) -> Iterator[ActiveTargets]:
    """Makes targets ready; a failing one is left out. `tell` receives each name before, `warn` each leftover that
    could not be taken down."""
    found = ActiveTargets()
    with contextlib.ExitStack() as stack:
        for target in targets:
            tell(target.name)
            try:
                found.ready[target.name] = stack.enter_context(_one(target, need_bytes, warn, found))
            except _FAILURES as error:
                outcome = Outcome.SKIPPED if isinstance(error, Missing) else Outcome.FAILED
                found.lose(target.name, outcome, str(error))
        yield found


@contextlib.contextmanager
def _one(target: Target, need_bytes: int, warn: Callable[[str], None], among: ActiveTargets) -> Iterator[ReadyTarget]:
    """Enters a target so that it cannot keep others from being taken down."""
    inside = target.enter(need_bytes)
    ready = inside.__enter__()
    try:
        yield ready
    finally:
        leaving = threading.Thread(target=_leave, args=(inside, target.name, warn), daemon=True)
        if target.name in among.hung:
            leaving.start()
            leaving.join(LEAVE_S)
            if leaving.is_alive():
                warn(f"{target.name} does not answer and could not be taken down: files made in it are still there")
        else:
            leaving.run()


def _leave(inside: AbstractContextManager[ReadyTarget], name: str, warn: Callable[[str], None]) -> None:
    try:
        inside.__exit__(None, None, None)
    except _FAILURES as error:
        warn(f"{name} could not be taken down: {error}")
