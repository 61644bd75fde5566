"""How much is measured, and for how long."""

import dataclasses
from typing import Any

from cheetah.bench.units import GIB, MIB


@dataclasses.dataclass(frozen=True)
class Settings:
    """The knobs of a run. Quick ones show that the harness works; their figures are not to be quoted."""

    quick: bool
    rounds: int
    runtime_s: float
    size_bytes: int
    # All of what parts otherwise measure a selection of; hours.
    full: bool = False

    @classmethod
    def of(cls, quick: bool, rounds: int | None = None, full: bool = False) -> Any:
        """The usual run, or the quick one."""
        if quick:
            return cls(True, rounds or 3, 0.3, 128 * MIB, False)
        return cls(False, rounds or 5, 4.0, GIB, full)
