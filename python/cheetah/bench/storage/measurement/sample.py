"""A sample: one step, done once on one target, and all that was seen of it."""

import dataclasses
from enum import StrEnum
from typing import Any

COLD, WARM = "cold", "warm"


class Outcome(StrEnum):
    """How a step ended."""

    DONE = "done"
    SKIPPED = "skipped"
    """It could not begin here: its tool is not installed, or its target cannot be used."""
    FAILED = "failed"
    HUNG = "hung"
    """It was ended at the limit of time."""
    NOT_REACHED = "not reached"
    """What it needs was not there: a step before it failed, or its target is gone."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One step on one target once: a line of the journal. What could not be measured is None."""

    target: str
    step: str
    state: str
    """What the memory held of its inputs: "cold" or "warm"."""
    repetition: int
    """From 1."""
    outcome: Outcome
    problem: str = ""
    """A sentence, if it is not done."""
    seconds: float | None = None
    """`tool_s` + `flush_s`: until what it wrote is on the target."""
    tool_s: float | None = None
    flush_s: float | None = None
    cpu_s: float | None = None
    """User and system time of the tool and of all processes it has waited for."""
    memory_peak_bytes: int | None = None
    """The most memory that one process of the tool had resident, the largest of them; not their sum. Below
    some 10 MiB it is not told apart."""
    read_bytes: int | None = None
    """What the tool asked the kernel for, from wherever it came: also out of pipes and out of the cache."""
    written_bytes: int | None = None
    device_read_bytes: int | None = None
    """What the device of the target moved, whoever had it do so."""
    device_written_bytes: int | None = None
    network_bytes: int | None = None
    """The most that went over one network interface in one direction, whoever sent it; loopback does not count."""
    resident_share_before: float | None = None
    """Of the step's inputs, how much was in memory when it began: 0 to 1."""
    bytes_per_s: float | None = None
    """The rate that the tool itself tells, where it tells one."""
    bottleneck: str = ""
    """ "storage", "processor (one)", "processors (all)", "memory", "network" or "unclear"."""
    busy: dict[str, float] = dataclasses.field(default_factory=dict)
    """The shares of the time behind that verdict, 0 to 1 each."""
    harness_cpu_s: float = 0.0
    """Our own processor time while the tool ran."""
    harness_bytes: int = 0
    """What we ourselves read and wrote meanwhile."""
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What tells it from all other samples of a run."""
        return self.target, self.step, self.state, self.repetition

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {**dataclasses.asdict(self), "warnings": list(self.warnings)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Sample":
        """As it was kept. TypeError, ValueError or KeyError where it is none."""
        return cls(**{**value, "outcome": Outcome(value["outcome"]), "warnings": tuple(value.get("warnings", ()))})
