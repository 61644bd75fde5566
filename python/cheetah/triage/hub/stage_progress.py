"""Tells how a run gets on: of each stage how much is done of what it takes, and what has been found."""

import time
from collections.abc import Callable

from cheetah.triage.hub.ledger import Ledger
from cheetah.triage.hub.progress import TELL_S
from cheetah.triage.hub.top_findings import Latest
from cheetah.triage.tables import timeline
from cheetah.triage.task import Event

PASSES = {"ranking": 3, "merging": 2 + timeline.PASSES}
"""How often each row is written, read or put in order, when files are ranked and when the tables are made."""
_UNITS = {"listing": "entries", "unallocated": "bytes", "ranking": "rows", "merging": "rows"}

Tell = Callable[[Event], None]


class Teller:
    """Tells `tell`, in seconds since `began_s`."""

    def __init__(self, tell: Tell, ledger: Ledger, latest: Latest, began_s: float):
        self.totals: dict[str, int] = {}
        """How much a stage takes, where that is known."""
        self.findings: int | None = None
        """How many the result has, once that is known."""
        self._tell = tell
        self._ledger = ledger
        self._latest = latest
        self._began_s = began_s
        self._told_s = 0.0
        self._row_stage, self._gone_through = "", 0
        """How many rows were gone through in this stage, each counted once for each pass over it."""

    def begin_rows(self, stage: str) -> None:
        """Of a stage that goes through all that was listed, several times."""
        self._row_stage, self._gone_through = stage, 0
        self.totals[stage] = self._ledger.rows("listing")
        self.of(stage, always=True)

    def went_through(self, rows: int) -> None:
        """So many more of them."""
        self._gone_through += rows
        self.of(self._row_stage)

    def of(self, stage: str, always: bool = False) -> None:
        """Tells of a stage, now and then."""
        now = time.monotonic()
        if not always and now - self._told_s < TELL_S:
            return
        self._told_s = now
        done = self._ledger.rows(stage)
        if stage == "unallocated":
            done = self._ledger.searched_bytes
        if stage in PASSES:
            done = self._gone_through // PASSES[stage]
        total = max(self.totals.get(stage, done), done)
        findings = self.findings
        if findings is None:
            findings = self._latest.early + sum(one.finding_count for one in self._ledger.all())
        unit, since = _UNITS.get(stage, "files"), now - self._began_s
        self._tell(Event(stage, done, total, self._ledger.bytes_read, findings, self._latest.best(), unit, since))
