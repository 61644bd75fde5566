"""The custody log of a triage: who examined which source, when and how, and the hash of each file of the result.

It is the log that an acquisition writes (docs/guide/custody.md): signed, chained, only appended to. It stays in the folder when
a triage starts over.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cheetah import _native, path_text
from cheetah.open_options import Unlocked
from cheetah.triage.hub.journal import NOTHING, Vouched

LOG = "triage.custody"
UNFINISHED = "bodyfile.unfinished.txt"
BOUND_TO = "bound_to"
"""The option of a run that has the digest of the file that binds its folder to the source and the settings."""
_DIGESTED_BYTES = 1 << 20
_EVENTS = (b'"event":"started"', b'"event":"checkpoint"')


def bound(binding: bytes) -> str:
    """Returns what the log says of the file that binds a folder."""
    return hashlib.sha256(binding).hexdigest()


class Custody:
    """The log of the folder `out`, open for one run. Raises `cheetah.Error` if it cannot be written, or was tampered
    with."""

    def __init__(self, out: pathlib.Path):
        self._out = out
        self._path = out / LOG
        self._log = _native.CustodyLog(self._path)

    @property
    def key(self) -> str:
        """The short name of the key that signs."""
        return self._log.key

    def begin(
        self, source: Mapping[str, Any], case: Mapping[str, str], options: Mapping[str, str], again: bool
    ) -> None:
        """Records the start of a run; `again` says that it resumes an earlier one. A resumed run with other case data is
        recorded as a start, so that the log has them."""
        known_source, known_case = _native.custody_state(self._path)
        is_same_case = known_case is not None and json.loads(known_case) == dict(case)
        if again and known_source is not None and is_same_case:
            self._append("resumed", {"at": 0, "source": dict(source)})
        else:
            details = {"source": dict(source), "destinations": [path_text.to_text(str(self._out))], "case": dict(case)}
            self._append("started", {**details, "options": dict(options)})

    def vouched(self, binding: bytes) -> Vouched:
        """The part of the journal that the last checkpoint of this user vouches for, if it is of a run that was bound to
        its source by a file with this content. The log was checked when it was opened, and is locked."""
        last, bound_to = NOTHING, None
        with open(self._path, "rb") as log:
            for line in log:
                if not line.endswith(b"\n") or not any(event in line for event in _EVENTS):
                    continue
                record = json.loads(line)
                details = record["details"]
                if record["event"] == "started":
                    last, bound_to = NOTHING, details["options"].get(BOUND_TO) if record["key"] == self.key else None
                elif record["event"] == "checkpoint" and record["key"] == self.key:
                    last = Vouched(details["at"], details["journal"])
        return last if bound_to == bound(binding) else NOTHING

    def vouch(self, vouched: Vouched) -> None:
        """Records a checkpoint of the journal."""
        self._append("checkpoint", {"at": vouched.length, "journal": vouched.sha256})

    def changed(self, why: str) -> None:
        """Records that the journal was changed, so that the run does not resume. The run then ends."""
        self._append("error", {"what": why})

    def doubts(self, sentences: Sequence[str]) -> None:
        """Records what is in doubt about the source."""
        self._append("doubts", {"doubts": list(sentences)})

    def unlocked(self, what: Unlocked) -> None:
        """Records which protector opened which encrypted volume, and what stays locked."""
        self._append("unlocked", what)

    def end(self, complete: bool, verdict: str, names: tuple[str, ...], why: str | None) -> None:
        """Records the result: the files of these names that there are. `why` says why it is not complete."""
        outputs = [_output(self._out / name) for name in (*names, UNFINISHED) if (self._out / name).is_file()]
        self._append("triaged", {"complete": complete, "verdict": verdict, "outputs": outputs})
        if not complete:
            self.stop(why or "interrupted")

    def stop(self, why: str) -> None:
        """Records that the run ended early."""
        self._append("stopped", {"why": why})

    def close(self) -> None:
        """Lets another run write the log."""
        self._log.close()

    def _append(self, event: str, details: Mapping[str, Any]) -> None:
        self._log.append(json.dumps({"event": event, "details": details}))


def _output(path: pathlib.Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while piece := file.read(_DIGESTED_BYTES):
            digest.update(piece)
            size += len(piece)
    return {"name": path.name, "size_bytes": size, "sha256": digest.hexdigest()}
