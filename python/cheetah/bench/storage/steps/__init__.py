"""The steps of an examination, in order."""

from cheetah import options
from cheetah.bench.failure import Misuse
from cheetah.bench.storage.settings import Settings
from cheetah.bench.storage.steps.carving import carvers
from cheetah.bench.storage.steps.copying import Copy
from cheetah.bench.storage.steps.hashes import Hash
from cheetah.bench.storage.steps.matrix import cells, files_bytes
from cheetah.bench.storage.steps.recover import Recover, Sorter, Tar
from cheetah.bench.storage.steps.step import Base, Command, NotReached, Skipped, Step, Workplace
from cheetah.bench.storage.steps.strings import Strings
from cheetah.bench.storage.steps.tools import described
from cheetah.bench.storage.steps.unallocated import Unallocated
from cheetah.bench.units import MIB

__all__ = ["Base", "Command", "NotReached", "Workplace", "Skipped", "Step", "described", "need_bytes", "steps"]

MARGIN_BYTES = 16 * MIB


def steps(settings: Settings) -> list[Step]:
    """Returns the requested steps in order; `fio` or `fio/read` stands for all keys that begin so. Steps whose output
    is needed are included. Raises Misuse for an unknown step."""
    every = _every(settings)
    if not settings.steps:
        return every
    for wanted in settings.steps:
        if not any(_is(step, wanted) for step in every):
            known = list(dict.fromkeys(step.key.partition("/")[0] for step in every))
            tip = options.similar("step", wanted, known) or f"there are {', '.join(known)}"
            raise Misuse(f"there is no step '{wanted}'; {tip}")
    chosen = {step.key for step in every if any(_is(step, wanted) for wanted in settings.steps)}
    for step in reversed(every):
        if step.key in chosen:
            chosen.update(step.after)
    return [step for step in every if step.key in chosen]


def need_bytes(settings: Settings, image_bytes: int) -> int:
    """Estimates the space a target should have: the image, its derivatives, and an archive of them, or the files of
    the matrix. A step that makes more of an unusual image fails with a message."""
    chosen = steps(settings)
    cells_bytes = files_bytes(settings.extent) if any(_is(step, "fio") for step in chosen) else 0
    working = any(not _is(step, "fio") for step in chosen)
    return max(3 * image_bytes if working else 0, cells_bytes) + MARGIN_BYTES


def _every(settings: Settings) -> list[Step]:
    examiner: list[Step] = [Copy(), Hash("md5sum"), Hash("sha256sum"), Strings(), Unallocated(), *carvers()]
    return [*examiner, Recover(), Tar(), Sorter(), *cells(settings.extent)]


def _is(step: Step, wanted: str) -> bool:
    return step.key == wanted or step.key.startswith(wanted + "/")
