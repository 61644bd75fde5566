"""Collects the results of a run, writing them after each part, so that a later failure loses none."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cheetah import options
from cheetah.bench import results
from cheetah.bench.failure import BenchError, Misuse
from cheetah.bench.results import Part, Results
from cheetah.page.visible import plain
from cheetah.path_text import to_text

SAME_MACHINE = ("processor", "memory", "kernel")
DONE, FAILED, MISUSED, REFUSED = 0, 1, 2, 3


class ResultCollector:
    """The results in a directory, earlier ones included: a part measured again is replaced.

    Raises Misuse if the directory holds measurements of another machine: a report of both would be worthless.
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

    def add(self, part: Part, code: int = DONE) -> None:
        """Adds a part, and writes everything. `code` is the part's exit code; the highest counts."""
        self.results.put({"command": self.results.command, **part})
        self._measured.append(part)
        self.code = max(self.code, code)
        results.write(self.out, self.results)

    def interrupted(self) -> None:
        """Records that the run was interrupted."""
        self.code = max(self.code, FAILED)
        print(
            "interrupted; all that the run had started has been stopped, and its measurements are kept", file=sys.stderr
        )

    def finish(self, as_json: bool) -> int:
        """Writes the report and prints the results of this run; returns the exit code."""
        paths = {
            "results": self.out / results.JSON,
            "csv": self.out / results.CSV,
            "report": render(self.results, self.out),
        }
        if as_json:
            parts = [
                {"part": part["part"], "figures": len(part.get("figures", ())), "problem": part.get("problem", "")}
                for part in self._measured
            ]
            answer: dict[str, Any] = {key: to_text(path) for key, path in paths.items()}
            print(json.dumps({"event": "done", **answer, "parts": parts, "exit_code": self.code}))
            if self.code:
                problems = [f"{part['part']}: {part['problem']}" for part in self._measured if part.get("problem")]
                options.answer("; ".join(problems) or "not all was measured; the results say why", self.code)
            return self.code
        show(self._measured)
        print(to_text(paths["report"]))
        for part in self._measured:
            if part.get("problem"):
                print(f"not measured: {part['part']}: {plain(part['problem'])}", file=sys.stderr)
        return self.code


def render(found: Results, out: Path) -> Path:
    """Writes report.html into `out`; returns its path."""
    # Its template engine is slow to import.
    from cheetah.bench import report

    return report.write(found, out)


def show(parts: Sequence[Part]) -> None:
    """Prints the tables of these parts."""
    from cheetah.bench import table

    for part in parts:
        table.show(part)
