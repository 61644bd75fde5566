"""A triage, from its source to its report."""

import contextlib
import pathlib
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

from cheetah import options, path_text
from cheetah.error import Error
from cheetah.triage.hub import closing, custody
from cheetah.triage.hub.clock import now
from cheetah.triage.hub.custody import Custody
from cheetah.triage.hub.folder import JOURNAL, PARTS, Folder
from cheetah.triage.hub.journal import NOTHING, Journal, Vouched
from cheetah.triage.hub.ledger import Ledger
from cheetah.triage.hub.opened import Opened, Workers
from cheetah.triage.hub.preview import Previews
from cheetah.triage.hub.stage_progress import StageProgress, Tell
from cheetah.triage.hub.stages import Stages
from cheetah.triage.hub.top_findings import TopFindings
from cheetah.triage.reading import shared_source
from cheetah.triage.reading.shared_source import SharedSource
from cheetah.triage.settings import Settings
from cheetah.triage.tables.store import Parts
from cheetah.triage.versions import deciding, versions
from cheetah.triage.workers import of_clusters
from cheetah.triage.workers.pool import Pool


class Run:
    """A run. `tell` receives progress events; `command` is the command line for the report; `opened` waits for a
    source that is already being opened."""

    def __init__(
        self,
        settings: Settings,
        tell: Tell,
        command: Iterable[str] = (),
        opened: Callable[[], SharedSource] | None = None,
    ):
        self._settings = settings
        self._tell = tell
        self._command = tuple(command)
        self._opened = opened
        self._started = now()
        self._began_s = time.monotonic()

    def go(self) -> tuple[int, dict[str, Any]]:
        """Runs all stages; returns the exit code and the summary. Raises OSError if the source cannot be opened,
        Misuse if the command makes no sense."""
        folder = Folder(self._settings.out, self._settings.fresh)
        with contextlib.ExitStack() as stack:
            stack.callback(folder.close)
            opened = self._opened or stack.enter_context(shared_source.opening(self._settings))
            shared = opened()
            # The log is closed last: it records why there is no result.
            log_kept = stack.enter_context(contextlib.ExitStack())
            with contextlib.ExitStack() as working:
                ready = self._open(folder, shared, working, log_kept)
                stages = Stages(ready)
                stages.run()
            return closing.close(ready, stages)

    def _open(
        self, folder: Folder, shared: SharedSource, working: contextlib.ExitStack, log_kept: contextlib.ExitStack
    ) -> Opened:
        """Opens everything else; `working` closes what only the stages need."""
        settings = self._settings
        # Workers take a while to start; the source is identified meanwhile.
        workers = (
            _start_workers(shared.uri, settings)
            if settings.scheduler is None
            else _cluster(settings.scheduler, shared, settings)
        )
        working.callback(workers.close)
        identity = shared_source.identity(shared.uri, shared.name, shared.size)
        binding_settings = {**settings.binding(), "unlocked": shared.opened_volumes(), "versions": deciding()}
        if any(shared.logical.values()):
            binding_settings["logical"] = shared.logical
        beside = [shared_source.identity(one, one) for one in settings.beside]
        if beside:
            binding_settings["beside"] = [{**one, "name": ""} for one in beside]
        again = folder.bind(identity, binding_settings)
        log = log_kept.enter_context(_closed_at_end(Custody(folder.path)))
        # Of a folder that is not bound yet, nothing is taken over.
        binding = folder.binding()
        vouched = log.vouched(binding) if again else NOTHING
        self._record(log, identity, binding, again)
        if shared.unlocked is not None:
            log.unlocked(shared.unlocked)
        parts = Parts(folder.path / PARTS)
        journal = _resumed(folder.path / JOURNAL, parts, settings.max_file, vouched, log)
        working.callback(journal.close)
        top_findings = TopFindings()
        ledger = Ledger(journal, workers.submit, top_findings.forget)
        return Opened(
            settings=settings,
            command=self._command,
            started=self._started,
            out=folder.path,
            shared=shared,
            identity=identity,
            workers=workers,
            log=log,
            parts=parts,
            journal=journal,
            ledger=ledger,
            top_findings=top_findings,
            progress=StageProgress(self._tell, ledger, top_findings, self._began_s),
            previews=Previews(top_findings, workers.submit, ledger.is_listed),
            looking=working.enter_context(futures.ThreadPoolExecutor(1)).submit(shared.doubts),
        )

    def _record(self, log: Custody, identity: dict[str, Any], binding: bytes, again: bool) -> None:
        """Records the start of the run."""
        source = {
            "kind": "triage",
            "location": self._settings.source,
            "name": identity["name"],
            "size_bytes": identity["size"],
        }
        if self._settings.beside:
            source["beside"] = list(self._settings.beside)
        command = path_text.to_text(shlex.join(self._command))
        how = {"command": command, custody.BOUND_TO: custody.bound(binding), **versions()}
        log.begin(source, dict(self._settings.case), how, again)


@contextlib.contextmanager
def _closed_at_end(log: Custody) -> Iterator[Custody]:
    """Closes a log. Why there is no result is recorded before, as far as that can be written."""
    try:
        yield log
    except OSError as error:
        with contextlib.suppress(OSError):
            log.stop(options.sentence(error))
        raise
    finally:
        log.close()


def _resumed(path: pathlib.Path, parts: Parts, max_file: int, vouched: Vouched, log: Custody) -> Journal:
    """Opens the journal, as far as the custody log vouches for it."""
    try:
        return Journal(path, parts, max_file, vouched, log.vouch)
    except Error as error:
        log.changed(str(error))
        raise


def _start_workers(uri: str, settings: Settings) -> Workers:
    return Pool(uri, settings, settings.workers)


def _cluster(scheduler: str, shared: SharedSource, settings: Settings) -> Workers:
    cluster: Workers = of_clusters().Cluster(scheduler, shared.uri, settings, shared.parts())
    return cluster
