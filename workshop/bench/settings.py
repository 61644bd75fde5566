"""The amount and the duration of measurements."""

import dataclasses
from typing import Any

from cheetah.bench.units import GIB, MIB


@dataclasses.dataclass(frozen=True)
class Settings:
    """The parameters of a run. A quick one shows that the harness works; do not quote its figures."""

    quick: bool
    rounds: int
    runtime_s: float
    size_bytes: int
    # Everything that parts otherwise sample; takes hours.
    full: bool = False
    # Only the cases with these words in their names; "" is all of them.
    only: str = ""

    @classmethod
    def of(cls, quick: bool, rounds: int | None = None, full: bool = False, only: str = "") -> Any:
        """Returns the settings of a normal or a quick run."""
        if quick:
            return cls(True, rounds or 3, 0.3, 128 * MIB, False, only)
        return cls(False, rounds or 5, 4.0, GIB, full, only)
