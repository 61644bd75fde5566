"""A figure: what was measured, of whom, and what it had to reach."""

import dataclasses
import statistics
import typing


@dataclasses.dataclass
class Figure:
    """One line of the report. `samples` maps each contender to one value a round, in the order of the rounds."""

    id: str
    what: str
    unit: str
    ours: str
    samples: typing.Dict[str, typing.List[float]]
    better: str = "higher"
    bar: typing.Optional[float] = None
    note: str = ""

    def median(self, name):
        """The median over the rounds."""
        return statistics.median(self.samples[name])

    def peer(self):
        """The best of the others, by its median; None where there is no other."""
        peers = [name for name in self.samples if name != self.ours]
        choose = max if self.better == "higher" else min
        return choose(peers, key=self.median, default=None)

    def ratio(self):
        """Ours to the best peer's, medians; None where either is missing or the peer's is nothing."""
        peer = self.peer()
        if peer is None or not self.samples.get(self.ours) or not self.median(peer):
            return None
        return self.median(self.ours) / self.median(peer)

    def ratio_spread(self):
        """The lowest and highest of the ratios within one round."""
        pairs = zip(self.samples[self.ours], self.samples[self.peer()])
        ratios = [ours / peer for ours, peer in pairs if peer]
        return min(ratios), max(ratios)

    def met(self):
        """Whether the bar was reached; None where there is no bar, or nothing of ours to hold against it."""
        ratio = self.ratio()
        if self.bar is None or ratio is None:
            return None
        return ratio >= self.bar if self.better == "higher" else ratio <= self.bar

    def to_json(self):
        """As it is kept."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value):
        """As it was kept."""
        return cls(**value)


@dataclasses.dataclass(frozen=True)
class Metric:
    """One of several things a single measurement tells."""

    key: str
    what: str
    unit: str
    better: str = "higher"
    bar: typing.Optional[float] = None
    note: str = ""


def from_rounds(prefix, what, ours, metrics, results):
    """One figure for each metric from `results`: for each contender a list of {metric key: value}."""
    figures = []
    for metric in metrics:
        samples = {}
        for name, rounds in results.items():
            values = [values[metric.key] for values in rounds if values.get(metric.key) is not None]
            if values:
                samples[name] = values
        label = f"{what}: {metric.what}" if metric.what else what
        figures.append(Figure(f"{prefix}/{metric.key}", label, metric.unit, ours, samples, metric.better,
                              metric.bar, metric.note))
    return figures
