"""A sample: one step done once on one target, with all measurements."""

import dataclasses
from enum import StrEnum
from typing import Any

COLD, WARM = "cold", "warm"


class Outcome(StrEnum):
    """How a step ended."""

    DONE = "done"
    SKIPPED = "skipped"
    """It could not begin: its tool is not installed, or its target cannot be used."""
    FAILED = "failed"
    HUNG = "hung"
    """It was ended at the time limit."""
    NOT_REACHED = "not reached"
    """Its input was missing: an earlier step failed, or its target is gone."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One step done once on one target: a line of the journal. A value that could not be measured is None."""

    target: str
    step: str
    state: str
    """The state of its inputs in the cache: "cold" or "warm"."""
    repetition: int
    """From 1."""
    outcome: Outcome
    problem: str = ""
    """A sentence, unless it is done."""
    seconds: float | None = None
    """`tool_s` + `flush_s`: until the output is on the target."""
    tool_s: float | None = None
    flush_s: float | None = None
    cpu_s: float | None = None
    """User and system time of the tool and all processes it has waited for."""
    memory_peak_bytes: int | None = None
    """The largest resident memory of any process of the tool, not their sum; at least about 10 MiB."""
    read_bytes: int | None = None
    """Bytes the tool asked the kernel for, from any source, pipes and cache included."""
    written_bytes: int | None = None
    device_read_bytes: int | None = None
    """Bytes the target's device transferred, on behalf of any process."""
    device_written_bytes: int | None = None
    network_bytes: int | None = None
    """The most bytes over one network interface in one direction, by any process; without loopback."""
    resident_share_before: float | None = None
    """The share of the step's inputs in memory when it began: 0 to 1."""
    bytes_per_s: float | None = None
    """The rate reported by the tool itself, if any."""
    bottleneck: str = ""
    """ "storage", "processor (one)", "processors (all)", "memory", "network" or "unclear"."""
    busy: dict[str, float] = dataclasses.field(default_factory=dict)
    """The shares of time behind the bottleneck, 0 to 1 each."""
    harness_cpu_s: float = 0.0
    """The harness's own processor time while the tool ran."""
    harness_bytes: int = 0
    """Bytes the harness itself read and wrote meanwhile."""
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Identifies it among all samples of a run."""
        return self.target, self.step, self.state, self.repetition

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {**dataclasses.asdict(self), "warnings": list(self.warnings)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Sample":
        """Parses the JSON form. Raises TypeError, ValueError or KeyError if it is invalid."""
        return cls(**{**value, "outcome": Outcome(value["outcome"]), "warnings": tuple(value.get("warnings", ()))})
