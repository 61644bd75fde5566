"""The journal of a run: each sample as it is taken, so that a run that was cut short goes on where it was."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from cheetah.bench.failure import BenchError, Misuse
from cheetah.bench.storage.sample import Outcome, Sample
from cheetah.durable import replace

SAMPLES, SETTINGS = "samples.jsonl", "settings.json"

Key = tuple[str, str, str, int]


class Journal:
    """The samples in the folder `out`, for which `binding` says with what they were taken.

    Misuse where there are samples that nobody wanted to go on with, or that were taken with other settings; BenchError
    where another run is at work there.
    """

    def __init__(self, out: Path, binding: dict[str, Any], resume: bool):
        binding = json.loads(json.dumps(binding))
        out.mkdir(parents=True, exist_ok=True)
        self._file = open(out / SAMPLES, "a+b")
        try:
            _lock(self._file.fileno(), out)
            self.taken: dict[Key, Sample] = self._read()
            if self.taken:
                if not resume:
                    raise Misuse(
                        f"{out} has the samples of an earlier run: go on with it with --resume, or name another --out"
                    )
                _require_same(out, binding)
            replace(out / SETTINGS, json.dumps(binding, indent=1).encode() + b"\n")
        except BaseException:
            self._file.close()
            raise

    def add(self, sample: Sample) -> None:
        """Keeps a sample, in the stead of an earlier one of the same."""
        self.taken[sample.key] = sample
        self._file.write(json.dumps(sample.to_json(), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()

    def is_done(self, key: Key) -> bool:
        """Whether it was measured."""
        return key in self.taken and self.taken[key].outcome is Outcome.DONE

    def close(self) -> None:
        """Lets go of the folder."""
        self._file.close()

    def _read(self) -> dict[Key, Sample]:
        """What is there. A line that a crash cut short was not measured."""
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._file.truncate(whole)
        taken = {}
        for line in content[:whole].splitlines():
            try:
                sample = Sample.from_json(json.loads(line))
            except (ValueError, TypeError, KeyError):
                continue
            taken[sample.key] = sample
        return taken


def _lock(file: int, out: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BenchError(f"another run is at work in {out}: wait for it, or name another --out") from None


def _require_same(out: Path, binding: dict[str, Any]) -> None:
    try:
        earlier = json.loads((out / SETTINGS).read_bytes())
        names = sorted({*earlier, *binding})
    except (OSError, ValueError, TypeError):
        raise Misuse(
            f"{out}/{SETTINGS} cannot be read, so nobody knows how its samples were taken: name another --out"
        ) from None
    differing = [f"{name} was {_short(earlier.get(name))} and is {_short(binding.get(name))}" for name in names
                 if earlier.get(name) != binding.get(name)]  # fmt: skip
    if differing:
        raise Misuse(f"{out} was measured with other settings: {'; '.join(differing)}. Give the same, or another --out")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + "…"


def remembered(out: Path) -> bool:
    """Whether there are samples in a folder."""
    try:
        return os.path.getsize(out / SAMPLES) > 0
    except OSError:
        return False
