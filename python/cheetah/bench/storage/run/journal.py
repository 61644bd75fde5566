"""The journal of a run: every sample as it is taken, so that an interrupted run can resume."""

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cheetah.bench.failure import BenchError, Misuse
from cheetah.bench.storage.sample import Outcome, Sample
from cheetah.durable import for_owner, refuse_other_content, replace

SAMPLES, SETTINGS = "samples.jsonl", "settings.json"

Key = tuple[str, str, str, int]


class Journal:
    """The samples in the directory `out`; `binding` are the settings they depend on.

    Raises Misuse if there are samples and the run is not resumed, or if they were taken with other settings;
    BenchError if another run uses the directory.
    """

    def __init__(self, out: Path, binding: dict[str, Any], resume: bool):
        self._settings = out / SETTINGS
        self._told: dict[str, Any] = {"binding": json.loads(json.dumps(binding)), "about": {}, "remarks": []}
        out.mkdir(parents=True, exist_ok=True)
        refuse_other_content(out / SAMPLES, b'{"')
        self._file = open(out / SAMPLES, "a+b", opener=for_owner)
        try:
            _lock(self._file.fileno(), out)
            self.taken: dict[Key, Sample] = self._read()
            if self.taken:
                if not resume:
                    raise Misuse(
                        f"{out} has the samples of an earlier run: add --resume to continue it, or name another --out"
                    )
                self._told |= _of_the_same(out, self._told["binding"])
            self._keep()
        except BaseException:
            self._file.close()
            raise

    def add(self, sample: Sample) -> None:
        """Adds a sample, replacing an earlier one with the same key."""
        self.taken[sample.key] = sample
        self._file.write(json.dumps(sample.to_json(), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()

    @property
    def about(self) -> dict[str, dict[str, str]]:
        """Returns the description of each target, earlier parts of the run included."""
        return dict(self._told["about"])

    @property
    def remarks(self) -> list[str]:
        """Returns remarks on how the samples were taken, earlier parts of the run included."""
        return list(self._told["remarks"])

    def tell(self, about: dict[str, dict[str, str]], remarks: Sequence[str]) -> None:
        """Stores descriptions and remarks."""
        self._told["about"].update(about)
        self._told["remarks"] = list(dict.fromkeys([*self._told["remarks"], *remarks]))
        self._keep()

    def _keep(self) -> None:
        replace(
            self._settings,
            json.dumps(self._told, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n",
        )

    def is_done(self, key: Key) -> bool:
        """Returns whether a sample was taken."""
        return key in self.taken and self.taken[key].outcome is Outcome.DONE

    def close(self) -> None:
        """Releases the directory."""
        self._file.close()

    def _read(self) -> dict[Key, Sample]:
        """Returns the samples. An incomplete last line is ignored."""
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
        raise BenchError(f"another run uses {out}: wait for it, or name another --out") from None


def _of_the_same(out: Path, binding: dict[str, Any]) -> dict[str, Any]:
    """Returns the data stored beside the samples. Raises Misuse if they were taken with other settings."""
    try:
        record = json.loads((out / SETTINGS).read_bytes())
        about, remarks = dict(record["about"]), list(record["remarks"])
        earlier = dict(record["binding"])
        names = sorted({*earlier, *binding})
    except (OSError, ValueError, TypeError, KeyError):
        raise Misuse(
            f"{out}/{SETTINGS} cannot be read, so the settings of its samples are unknown: name another --out"
        ) from None
    differing = [f"{name} was {_short(earlier.get(name))} and is {_short(binding.get(name))}" for name in names
                 if earlier.get(name) != binding.get(name)]  # fmt: skip
    if differing:
        raise Misuse(f"{out} was measured with other settings: {'; '.join(differing)}. Use the same, or another --out")
    return {"about": about, "remarks": remarks}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + "…"


def remembered(out: Path) -> bool:
    """Returns whether there are samples in a directory."""
    try:
        return (out / SAMPLES).stat().st_size > 0
    except OSError:
        return False
