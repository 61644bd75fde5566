"""Progress of the stages: the share of each that is done, and the findings so far."""

import time
from collections.abc import Callable

from cheetah.triage.hub.ledger import Ledger
from cheetah.triage.hub.progress import TELL_S
from cheetah.triage.hub.top_findings import TopFindings
from cheetah.triage.tables import timeline
from cheetah.triage.task import Event

PASSES = {"ranking": 3, "merging": 2 + timeline.PASSES}
"""How often each row is written, read or sorted while files are ranked and tables are written."""
_UNITS = {"listing": "entries", "unallocated": "bytes", "ranking": "rows", "merging": "rows"}

Tell = Callable[[Event], None]


class StageProgress:
    """Sends progress events to `tell`, in seconds since `began_s`."""

    def __init__(self, tell: Tell, ledger: Ledger, latest: TopFindings, began_s: float):
        self.totals: dict[str, int] = {}
        """The total work of each stage, if known."""
        self.findings: int | None = None
        """The number of findings in the result, once known."""
        self.doubts: tuple[str, ...] = ()
        """What is in doubt about the source, once it is known."""
        self._tell = tell
        self._ledger = ledger
        self._top_findings = latest
        self._began_s = began_s
        self._told_s = 0.0
        self._row_stage, self._processed = "", 0
        """Rows processed in this stage, counted once for each pass."""

    def begin_rows(self, stage: str) -> None:
        """Begins a stage that passes over the listing several times."""
        self._row_stage, self._processed = stage, 0
        self.totals[stage] = self._ledger.rows("listing")
        self.of(stage, always=True)

    def processed(self, rows: int) -> None:
        """Counts processed rows."""
        self._processed += rows
        self.of(self._row_stage)

    def atoms(self, done: int, total: int) -> None:
        """Reports how far the search for atoms of rules came, in bytes of the source."""
        now = time.monotonic()
        if not done or now - self._told_s >= TELL_S:
            self._told_s = now
            self._tell(Event("atoms", done, total, doubts=self.doubts, unit="bytes", elapsed_s=now - self._began_s))

    def of(self, stage: str, always: bool = False) -> None:
        """Reports a stage, at most every `TELL_S`."""
        now = time.monotonic()
        if not always and now - self._told_s < TELL_S:
            return
        self._told_s = now
        done = self._ledger.rows(stage)
        if stage == "unallocated":
            done = self._ledger.searched_bytes
        if stage in PASSES:
            done = self._processed // PASSES[stage]
        total = max(self.totals.get(stage, done), done)
        findings = self.findings
        if findings is None:
            findings = self._top_findings.preview_count + sum(one.finding_count for one in self._ledger.all())
        unit, since = _UNITS.get(stage, "files"), now - self._began_s
        best, read = self._top_findings.best(), self._ledger.bytes_read
        self._tell(Event(stage, done, total, read, findings, best, self.doubts, unit, since))
