"""A figure: what was measured, for which contenders, and the bar to reach."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Self


@dataclasses.dataclass
class Figure:
    """One line of the report. `samples` maps each contender to one value per round, in the order of the rounds.

    `ours` is Cheetah's contender, compared with the best of the others; None if all are equal candidates, which are
    then compared with `baseline`.
    """

    id: str
    what: str
    unit: str
    ours: str | None
    samples: dict[str, list[float]]
    better: str = "higher"
    bar: float | None = None
    note: str = ""
    baseline: str | None = None

    def median(self, name: str) -> float:
        """Returns the median over the rounds."""
        return statistics.median(self.samples[name])

    def peer(self) -> str | None:
        """Returns the best of the others by median, or None."""
        peers = [name for name in self.samples if name != self.ours]
        if not peers:
            return None
        return max(peers, key=self.median) if self.better == "higher" else min(peers, key=self.median)

    def ratio(self) -> float | None:
        """Returns the ratio of our median to the best peer's; None if either is missing or the peer's is zero."""
        peer = self.peer()
        if peer is None or self.ours is None or not self.samples.get(self.ours) or not self.median(peer):
            return None
        return self.median(self.ours) / self.median(peer)

    def ratio_spread(self) -> tuple[float, float]:
        """Returns the lowest and highest ratio within one round; only if there is a ratio."""
        peer = self.peer()
        assert self.ours is not None and peer is not None
        ratios = [
            ours / theirs for ours, theirs in zip(self.samples[self.ours], self.samples[peer], strict=False) if theirs
        ]
        return min(ratios), max(ratios)

    def met(self) -> bool | None:
        """Returns whether the bar was reached; None without a bar or without our figure."""
        ratio = self.ratio()
        if self.bar is None or ratio is None:
            return None
        return ratio >= self.bar if self.better == "higher" else ratio <= self.bar

    def speed_up(self, name: str) -> float | None:
        """Returns how many times as good as the baseline a contender is, by the medians; None if either is missing or
        zero."""
        if self.baseline is None or not self.samples.get(self.baseline) or not self.samples.get(name):
            return None
        baseline, contender = self.median(self.baseline), self.median(name)
        above, below = (contender, baseline) if self.better == "higher" else (baseline, contender)
        return above / below if below else None

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parses the JSON form."""
        return cls(**value)


def overlap(some: Sequence[float], others: Sequence[float]) -> bool:
    """Returns whether the ranges of two sets of samples overlap: then a difference may be chance."""
    return min(some) <= max(others) and min(others) <= max(some)


CHANCE_MAX = 0.02
"""Above this probability, a difference beyond the spread proves nothing."""
COUNTED_MAX = 100


def chance(rounds: int, others: int) -> float:
    """Returns how often two equal contenders, measured this many times each, differ beyond the spread by chance: 0.1
    for three and three, 0.008 for five and five. It counts, for any distribution, the orders in which all samples of
    one are above or below all of the other."""
    # Beyond this many the probability is negligible, and counting takes long.
    few, many = min(rounds, COUNTED_MAX), min(others, COUNTED_MAX)
    return min(2 / math.comb(few + many, few), 1.0)
