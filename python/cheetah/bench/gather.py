"""What a run measures, gathered as it comes: written after each part, so that none is lost to the next one."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cheetah.bench import results
from cheetah.bench.failure import BenchError, Misuse
from cheetah.bench.results import Part, Results
from cheetah.page.visible import plain

SAME_MACHINE = ("processor", "memory", "kernel")
DONE, FAILED, MISUSED, REFUSED = 0, 1, 2, 3


class Gathered:
    """The results of a folder, what was measured there before included: a part measured again is replaced.

    Misuse where the folder holds what was measured on another machine: one report of both would not be believed.
    """

    def __init__(self, out: Path, command: Sequence[str], machine: dict[str, str]) -> None:
        self.out = out
        self.results = Results(machine, list(command))
        self.code = DONE
        self._measured: list[Part] = []
        if (out / results.JSON).exists():
            try:
                self._take_over(results.read(out))
            except BenchError as error:
                raise Misuse(f"{error}; name another folder with --out") from None

    def _take_over(self, earlier: Results) -> None:
        for name in SAME_MACHINE:
            there, here = (machine.get(name) for machine in (earlier.machine, self.results.machine))
            if there != here:
                raise Misuse(f"{self.out} holds what was measured on another machine ({name}: {there}, here {here})")
        self.results.machine = {**earlier.machine, **self.results.machine}
        self.results.parts = earlier.parts

    def add(self, part: Part, machine: dict[str, str] | None = None, code: int = DONE) -> None:
        """Takes a part in, and what it tells of the machine beside; writes all. `code` is what it has to say to the
        exit code: the gravest counts."""
        self.results.machine.update(machine or {})
        self.results.put({"command": self.results.command, **part})
        self._measured.append(part)
        self.code = max(self.code, code)
        results.write(self.out, self.results)

    def failed(self, part: Part, reason: str, code: int = FAILED) -> None:
        """Notes why a part was not measured. Figures of an earlier run stay, with that beside."""
        earlier = self.results.part(part["part"])
        if earlier is not None and earlier.get("figures"):
            said = f"measured again {results.now()}, and failed: {reason}; the figures are those of {earlier.get('finished')}"
            part = {**earlier, "problem": said}
        else:
            part = {**part, "figures": [], "finished": results.now(), "problem": reason}
        self.add(part, code=code)

    def forget(self, key: str) -> None:
        """Leaves a part out that an earlier run had noted."""
        self.results.parts = [part for part in self.results.parts if part["part"] != key]

    def interrupted(self) -> None:
        """Notes that the run was ended before its time."""
        self.code = max(self.code, FAILED)
        print("interrupted; everything it had started is ended, and what was measured is kept", file=sys.stderr)

    def finish(self, as_json: bool) -> int:
        """Writes the report and shows what this run measured; returns the exit code."""
        paths = {"results": self.out / results.JSON, "csv": self.out / results.CSV, "report": render(self.results, self.out)}
        if as_json:
            parts = [
                {"part": part["part"], "figures": len(part.get("figures", ())), "problem": part.get("problem", "")}
                for part in self._measured
            ]
            told: dict[str, Any] = {key: str(path) for key, path in paths.items()}
            print(json.dumps({"event": "done", **told, "parts": parts, "exit_code": self.code}))
            return self.code
        show(self._measured)
        print(paths["report"])
        for part in self._measured:
            if part.get("problem"):
                print(f"not measured: {part['part']}: {plain(part['problem'])}", file=sys.stderr)
        return self.code


def render(found: Results, out: Path) -> Path:
    """Writes report.html into `out`; returns its path."""
    # Its template engine takes a while to be imported.
    from cheetah.bench import report

    return report.write(found, out)


def show(parts: Sequence[Part]) -> None:
    """Prints the tables of these parts."""
    from cheetah.bench import table

    for part in parts:
        table.show(part)
