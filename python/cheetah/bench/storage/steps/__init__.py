"""The steps, in the order in which an examiner takes them."""

from cheetah.bench.failure import BenchError
from cheetah.bench.storage.settings import Settings
from cheetah.bench.storage.steps.copying import Copy
from cheetah.bench.storage.steps.hashes import Hash
from cheetah.bench.storage.steps.step import Base, Command, NotReached, Place, Skipped, Step

__all__ = ["Base", "Command", "NotReached", "Place", "Skipped", "Step", "steps"]


def steps(settings: Settings) -> list[Step]:
    """The steps that were asked for, in order; `fio` or `fio/read` stand for all that begin so. Those that
    make what a step works on come with it. BenchError for a name that is no step."""
    every = _every(settings)
    if not settings.steps:
        return every
    for wanted in settings.steps:
        if not any(_is(step, wanted) for step in every):
            known = ", ".join(dict.fromkeys(step.key.partition("/")[0] for step in every))
            raise BenchError(f"there is no step {wanted}; there are {known}")
    chosen = {step.key for step in every if any(_is(step, wanted) for wanted in settings.steps)}
    for step in reversed(every):
        if step.key in chosen:
            chosen.update(step.after)
    return [step for step in every if step.key in chosen]


def _every(settings: Settings) -> list[Step]:
    return [Copy(), Hash("md5sum"), Hash("sha256sum")]


def _is(step: Step, wanted: str) -> bool:
    return step.key == wanted or step.key.startswith(wanted + "/")
