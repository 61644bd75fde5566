"""The most important findings so far: stored ones, and previews that the result will contain later."""

from collections.abc import Hashable, Iterable

from cheetah.triage.task import Finding

TOP_MAX = 10


class TopFindings:
    """The most important findings."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._previews: dict[Hashable, Finding] = {}
        self._named: set[int] = set()
        """Volumes whose listing has found names itself."""

    def add(self, findings: Iterable[Finding]) -> None:
        """Adds findings of the result. Their previews are dropped."""
        new = list(findings)
        for one in new:
            self._previews.pop(_key(one), None)
            if one.kind == "name":
                self._named.add(one.volume)
        self._kept = _best([*self._kept, *new])

    def add_previews(self, findings: Iterable[Finding]) -> None:
        """Adds previews of findings that the result will contain later."""
        for one in findings:
            if one.kind != "name" or one.volume not in self._named:
                self._previews.setdefault(_key(one), one)

    def forget(self, volume: int) -> None:
        """Drops the findings of a volume whose listing starts over."""
        self._kept = [one for one in self._kept if one.volume != volume]

    def drop_previews(self) -> None:
        """Drops the remaining previews."""
        self._previews.clear()

    @property
    def preview_count(self) -> int:
        """The number of previews."""
        return len(self._previews)

    def best(self) -> tuple[Finding, ...]:
        """Returns the best findings, at most `TOP_MAX`."""
        return tuple(_best([*self._kept, *self._previews.values()]))


def _best(findings: list[Finding]) -> list[Finding]:
    order = sorted(findings, key=lambda one: (-one.score, one.volume, one.path or "", one.offset or 0))
    return order[:TOP_MAX]


def _key(finding: Finding) -> Hashable:
    """Returns the key of equal findings; the path of a name may be unknown in a preview."""
    if finding.kind != "name" or finding.address is None:
        return finding
    return finding.volume, finding.rule, finding.address.partition("-")[0]
