"""The journal of a run: each sample as it is taken, so that a run that was cut short goes on where it was."""

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cheetah.bench.failure import BenchError, Misuse
from cheetah.bench.storage.measurement.sample import Outcome, Sample
from cheetah.durable import no_link, replace

SAMPLES, SETTINGS = "samples.jsonl", "settings.json"

Key = tuple[str, str, str, int]


class Journal:
    """The samples in the folder `out`, for which `binding` says with what they were taken.

    Misuse where there are samples that nobody wanted to go on with, or that were taken with other settings; BenchError
    where another run is at work there.
    """

    def __init__(self, out: Path, binding: dict[str, Any], resume: bool):
        self._settings = out / SETTINGS
        self._told: dict[str, Any] = {"binding": json.loads(json.dumps(binding)), "about": {}, "remarks": []}
        out.mkdir(parents=True, exist_ok=True)
        self._file = open(out / SAMPLES, "a+b", opener=no_link)
        try:
            _lock(self._file.fileno(), out)
            self.taken: dict[Key, Sample] = self._read()
            if self.taken:
                if not resume:
                    raise Misuse(
                        f"{out} has the samples of an earlier run: go on with it with --resume, or name another --out"
                    )
                self._told |= _of_the_same(out, self._told["binding"])
            self._keep()
        except BaseException:
            self._file.close()
            raise

    def add(self, sample: Sample) -> None:
        """Keeps a sample, in the stead of an earlier one of the same."""
        self.taken[sample.key] = sample
        self._file.write(json.dumps(sample.to_json(), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()

    @property
    def about(self) -> dict[str, dict[str, str]]:
        """By target: what it was, also in an earlier part of the run."""
        return dict(self._told["about"])

    @property
    def remarks(self) -> list[str]:
        """What was said of how the samples were taken, also in an earlier part of the run."""
        return list(self._told["remarks"])

    def tell(self, about: dict[str, dict[str, str]], remarks: Sequence[str]) -> None:
        """Keeps that too."""
        self._told["about"].update(about)
        self._told["remarks"] = list(dict.fromkeys([*self._told["remarks"], *remarks]))
        self._keep()

    def _keep(self) -> None:
        replace(
            self._settings,
            json.dumps(self._told, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n",
        )

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


def _of_the_same(out: Path, binding: dict[str, Any]) -> dict[str, Any]:
    """What was kept beside the samples; Misuse where they were taken with other settings."""
    try:
        told = json.loads((out / SETTINGS).read_bytes())
        about, remarks = dict(told["about"]), list(told["remarks"])
        earlier = dict(told["binding"])
        names = sorted({*earlier, *binding})
    except (OSError, ValueError, TypeError, KeyError):
        raise Misuse(
            f"{out}/{SETTINGS} cannot be read, so nobody knows how its samples were taken: name another --out"
        ) from None
    differing = [f"{name} was {_short(earlier.get(name))} and is {_short(binding.get(name))}" for name in names
                 if earlier.get(name) != binding.get(name)]  # fmt: skip
    if differing:
        raise Misuse(f"{out} was measured with other settings: {'; '.join(differing)}. Give the same, or another --out")
    return {"about": about, "remarks": remarks}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + "…"


def remembered(out: Path) -> bool:
    """Whether there are samples in a folder."""
    try:
        return (out / SAMPLES).stat().st_size > 0
    except OSError:
        return False
