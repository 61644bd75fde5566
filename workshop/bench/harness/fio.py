"""Runs fio and parses its output."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.units import iec


@dataclasses.dataclass(frozen=True)
class Job:
    """One access pattern. `runtime_s` None is one pass over the target; with `runtime_s` and `loops` false the pass is
    cut off at that time; with `loops` true it starts again until then."""

    rw: str
    block_bytes: int
    size_bytes: int
    depth: int = 1
    threads: int = 1
    runtime_s: float | None = None
    loops: bool = True
    fsync_at_end: bool = False
    extra: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Returns the options common to every target."""
        share_bytes = self.size_bytes // self.threads // self.block_bytes * self.block_bytes
        argv = [f"--rw={self.rw}", f"--bs={self.block_bytes}", f"--size={share_bytes}", f"--iodepth={self.depth}"]
        argv += [f"--numjobs={self.threads}", f"--offset_increment={share_bytes}", "--randrepeat=0"]
        if self.runtime_s is not None:
            argv += [f"--runtime={round(self.runtime_s * 1000)}ms"]
            argv += ["--time_based"] if self.loops else []
        argv += ["--end_fsync=1"] if self.fsync_at_end else []
        return [*argv, *self.extra]

    def __str__(self) -> str:
        depth = f" depth {self.depth}" if self.depth > 1 else ""
        threads = f" × {self.threads} threads" if self.threads > 1 else ""
        return f"{iec(self.block_bytes)} {self.rw}{depth}{threads}"


@dataclasses.dataclass(frozen=True)
class FioResult:
    """The outcome of a job, reads and writes together."""

    bytes_done: int
    requests: int
    seconds: float
    latency_p99_us: float
    latency_max_us: float = 0.0

    @property
    def bytes_per_s(self) -> float:
        """Throughput."""
        return self.bytes_done / self.seconds

    @property
    def requests_per_s(self) -> float:
        """Requests per second (IOPS)."""
        return self.requests / self.seconds


def over_nbd(job: Job, uri: str, prefix: Sequence[str] = ()) -> FioResult:
    """Runs the job against an NBD server."""
    return _run(job, [*prefix], ["--ioengine=nbd", f"--uri={uri}"])


def on_file(job: Job, path: str, prefix: Sequence[str] = ()) -> FioResult:
    """Runs the job against an existing file, with plain pread and pwrite."""
    argv = [*prefix, *plain_command(job, path)]
    return result(argv, run(argv))


def directly_on_file(job: Job, path: str, prefix: Sequence[str] = ()) -> FioResult:
    """Runs the job against an existing file without the page cache, with as many requests in flight as the job has."""
    argv = [*prefix, *direct_command(job, path)]
    return result(argv, run(argv))


def run_job(job: Job) -> FioResult:
    """Runs a job whose own options name engine and target."""
    return _run(job, [], [])


def sum_of_jobs(argv: Sequence[str]) -> float:
    """Runs a command with several jobs that begin together; returns all their bytes over the time of the longest."""
    printed = run(argv)
    jobs = json.loads(printed[printed.find("{") :])["jobs"]
    if failed := [job["jobname"] for job in jobs if job["error"]]:
        raise BenchError(f"{' '.join(argv)}: {', '.join(failed)} failed")
    results = [_parse(job) for job in jobs]
    return sum(result.bytes_done for result in results) / max(result.seconds for result in results)


def plain_command(job: Job, path: str) -> list[str]:
    """Returns the command that runs the job against an existing file, with plain pread and pwrite."""
    return _command(job, ["--ioengine=psync", f"--filename={path}", "--allow_file_create=0"])


def direct_command(job: Job, path: str) -> list[str]:
    """Returns the command that runs the job against an existing file without the page cache."""
    return _command(job, ["--ioengine=libaio", "--direct=1", f"--filename={path}", "--allow_file_create=0"])


def _command(job: Job, target: Sequence[str]) -> list[str]:
    return ["fio", "--name=job", "--thread", "--group_reporting", "--output-format=json", *target, *job.arguments()]


def _run(job: Job, prefix: Sequence[str], target: Sequence[str]) -> FioResult:
    argv = [*prefix, *_command(job, target)]
    return result(argv, run(argv))


def result(argv: Sequence[str], printed: str) -> FioResult:
    """Returns the outcome of a command of fio that printed this. Raises BenchError if it is none, or an error."""
    start = printed.find("{")
    if start < 0:
        raise BenchError(f"{' '.join(argv)}: printed no result: {printed.strip()[:400]}")
    answer = json.loads(printed[start:])["jobs"][0]
    if answer["error"]:
        raise BenchError(f"{' '.join(argv)}: failed with error {answer['error']}: {printed[:start].strip()}")
    return _parse(answer)


def _parse(answer: dict[str, Any]) -> FioResult:
    sides = [answer[side] for side in ("read", "write") if answer[side]["total_ios"]]
    if not sides:
        raise BenchError("fio made not a single request")
    # With several threads that of the slowest. It includes the fsync at the end, where there is one.
    milliseconds = max(side["runtime"] for side in sides)
    return FioResult(
        bytes_done=sum(side["io_bytes"] for side in sides),
        requests=sum(side["total_ios"] for side in sides),
        seconds=max(milliseconds, 1) / 1e3,
        latency_p99_us=max(side["clat_ns"]["percentile"]["99.000000"] for side in sides) / 1e3,
        latency_max_us=max(side["clat_ns"]["max"] for side in sides) / 1e3,
    )
