"""All targets of a run made ready at once, as they take turns; and taken down, whatever happens."""

import contextlib
import dataclasses
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from cheetah.bench.failure import BenchError
from cheetah.bench.storage.measurement.sample import Outcome
from cheetah.bench.storage.targets.target import Missing, Ready, Target

LEAVE_S = 60.0
"""For taking down a target that does not answer: the results are not to wait for it."""
_FAILURES = (BenchError, OSError, subprocess.SubprocessError)


@dataclasses.dataclass
class ActiveTargets:
    """The targets of a run."""

    ready: dict[str, Ready] = dataclasses.field(default_factory=dict)
    """By name, those that can be used."""
    lost: dict[str, tuple[Outcome, str]] = dataclasses.field(default_factory=dict)
    """The others, and why they cannot."""

    hung: set[str] = dataclasses.field(default_factory=set)
    """Of the lost ones, those that do not answer any more."""

    def lose(self, name: str, outcome: Outcome, why: str) -> None:
        """Leaves a target out from here on. It is taken down at the end like the others."""
        self.lost[name] = outcome, why
        self.ready.pop(name, None)


@contextlib.contextmanager
def activated(
    targets: Sequence[Target], need_bytes: int, tell: Callable[[str], None], warn: Callable[[str], None]
) -> Iterator[ActiveTargets]:
    """Makes them ready; one that cannot be is left out. `tell` hears the name of each before; `warn`, what could not be
    taken down."""
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
def _one(target: Target, need_bytes: int, warn: Callable[[str], None], among: ActiveTargets) -> Iterator[Ready]:
    """One that does not keep the others from being taken down."""
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
                warn(f"{target.name} does not answer, and could not be taken down: what was made in it is still there")
        else:
            leaving.run()


def _leave(inside: AbstractContextManager[Ready], name: str, warn: Callable[[str], None]) -> None:
    try:
        inside.__exit__(None, None, None)
    except _FAILURES as error:
        warn(f"{name} could not be taken down: {error}")
