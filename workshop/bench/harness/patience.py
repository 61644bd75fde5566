"""How long peers are waited for, so that a measurement of many columns ends."""

from __future__ import annotations


class Patience:
    """A limit for the peers of one column: a multiple of our longest time in it, once that is known."""

    def __init__(self, factor: float, least_s: float, most_s: float) -> None:
        self._factor, self._least_s, self._most_s = factor, least_s, most_s
        self._ours_s: float | None = None

    def saw(self, seconds: float) -> None:
        """Notes a time of ours."""
        self._ours_s = max(seconds, self._ours_s or 0.0)

    @property
    def limit_s(self) -> float:
        """Returns the limit now."""
        if self._ours_s is None:
            return self._most_s
        return min(self._most_s, max(self._least_s, self._factor * self._ours_s))

    @property
    def said(self) -> str:
        """Returns the rule for notes."""
        return (
            f"Peers were cut off at {self._factor:g} times our longest time, at least {self._least_s:g} s and at most "
            f"{self._most_s:g} s, which then is their time"
        )
