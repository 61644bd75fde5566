"""What was found so far, for whoever watches: the best of what is kept, and what was only seen early, which somebody
finds again in its turn."""

from collections.abc import Hashable, Iterable

from cheetah.triage.task import Finding

LATEST = 10


class Latest:
    """The most important findings."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._early: dict[Hashable, Finding] = {}
        self._named: set[int] = set()
        """Volumes of which names are found in the listing itself by now."""

    def keep(self, findings: Iterable[Finding]) -> None:
        """Findings of the result. What was seen of them early is not told twice."""
        new = list(findings)
        for one in new:
            self._early.pop(_key(one), None)
            if one.kind == "name":
                self._named.add(one.volume)
        self._kept = _best([*self._kept, *new])

    def see(self, findings: Iterable[Finding]) -> None:
        """Findings that the result has later."""
        for one in findings:
            if one.kind != "name" or one.volume not in self._named:
                self._early.setdefault(_key(one), one)

    def forget(self, volume: int) -> None:
        """What was found in a volume so far is no part of the result."""
        self._kept = [one for one in self._kept if one.volume != volume]

    def settle(self) -> None:
        """What was seen early is to be found from now on."""
        self._early.clear()

    @property
    def early(self) -> int:
        """How many were seen that the result has later."""
        return len(self._early)

    def best(self) -> tuple[Finding, ...]:
        """The best, at most `LATEST`."""
        return tuple(_best([*self._kept, *self._early.values()]))


def _best(findings: list[Finding]) -> list[Finding]:
    order = sorted(findings, key=lambda one: (-one.score, one.volume, one.path or "", one.offset or 0))
    return order[:LATEST]


def _key(finding: Finding) -> Hashable:
    """What two findings have in common that are the same; of a name, its path may not be known early."""
    if finding.kind != "name" or finding.address is None:
        return finding
    return finding.volume, finding.rule, finding.address.partition("-")[0]
