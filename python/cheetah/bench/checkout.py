"""The parts that need the lab: bench/run of a checkout measures them, and its figures are adopted."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.results import Part, checked

RUN = "bench/run"
NEEDS = (RUN, "bench/report/results_md.py", "lab/namespace.py")
NAMES = {"transfer": "acquire"}
"""Other names of parts."""
END_S = 120.0
"""How long an interrupted part may take to stop its network and servers."""


def find(sources: Path | None) -> Path:
    """Returns the checkout to measure with: the one named, otherwise the one that contains this package, otherwise the
    one around the current directory. Raises BenchError if there is none."""
    if sources is not None:
        if not _is_one(sources):
            raise BenchError(f"{sources} is not a checkout of Cheetah: it has no {RUN}")
        return sources.resolve()
    here = Path.cwd()
    for place in (Path(__file__).resolve().parents[3], here, *here.parents):
        if _is_one(place) and _is_ours(place / RUN):
            return place
    raise BenchError(
        "all parts but storage need a checkout of Cheetah, since they are measured in its lab, a network on this "
        "machine, beside peers that it starts; run this in a checkout, or name one with --sources DIR"
    )


def _is_one(place: Path) -> bool:
    return all((place / name).is_file() for name in NEEDS)


def _is_ours(path: Path) -> bool:
    """Returns whether only this user or root could have placed the file: it is about to be run, and the current
    directory may be evidence."""
    status = path.stat()
    return status.st_uid in (0, os.geteuid(), int(os.environ.get("SUDO_UID", "0"))) and not status.st_mode & 0o002


@dataclasses.dataclass(frozen=True)
class Choice:
    """How much of a part is measured. `rounds` None uses the part's default."""

    quick: bool = False
    full: bool = False
    rounds: int | None = None

    def words(self) -> list[str]:
        """Returns the options for bench/run."""
        words = ["--quick"] if self.quick else []
        words += ["--full"] if self.full else []
        return words + (["--rounds", str(self.rounds)] if self.rounds else [])


@dataclasses.dataclass(frozen=True)
class Checkout:
    """A checkout that can measure."""

    root: Path

    def parts(self) -> dict[str, Part]:
        """Returns the parts by key: `part`, `title` and `about` of each."""
        try:
            listed = json.loads(run([sys.executable, str(self.root / RUN), "--parts"], timeout_s=120))
            return {str(part["part"]): part for part in listed}
        except (ValueError, TypeError, KeyError):
            raise BenchError(
                f"{self.root / RUN} does not list its parts; is the checkout as old as this version?"
            ) from None

    def measure(self, part: Part, choice: Choice, progress: TextIO) -> tuple[Part, dict[str, str]]:
        """Measures a part; returns it, and the description of the machine. The output of bench/run goes to `progress`.
        Raises BenchError with the reason of a failure, and KeyboardInterrupt after everything has been stopped."""
        if os.geteuid() != 0:
            raise BenchError("needs root, for network namespaces, loop devices and dropping caches")
        key = part["part"]
        with tempfile.TemporaryDirectory(prefix="cheetah-bench-") as out:
            argv = [sys.executable, str(self.root / RUN), key, "--out", out, *choice.words()]
            reason = _pass_through(key, argv, progress)
            if reason is not None:
                raise BenchError(reason)
            try:
                with open(os.path.join(out, f"{key}.json"), encoding="utf-8") as file:
                    measured = json.load(file)
                machine = {str(name): str(text) for name, text in measured.pop("machine").items()}
                return checked({**part, **measured}), machine
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise BenchError(f"{RUN} {key} left no figures: {error}") from None


def _pass_through(key: str, argv: list[str], progress: TextIO) -> str | None:
    """Runs a command to its end; returns why it failed, or None.

    It has its own session, so that Ctrl-C reaches only this process, which interrupts it exactly once.
    """
    child = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", *argv],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        text=True, errors="replace", env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    reason = ""
    try:
        assert child.stdout is not None
        for line in child.stdout:
            progress.write(line)
            progress.flush()
            if line.startswith((f"{key}: ", "bench/run: ")) or not reason.startswith((f"{key}: ", "bench/run: ")):
                reason = line.strip() or reason
        if child.wait() == 0:
            return None
    except BaseException:
        _end(child)
        raise
    for prefix in (f"{key}: ", "bench/run: "):
        reason = reason.removeprefix(prefix)
    return reason[:1000] or f"exit status {child.returncode}"


def _end(child: subprocess.Popen[str]) -> None:
    """Asks the run to stop the processes it started, and kills it if it does not."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    try:
        child.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
