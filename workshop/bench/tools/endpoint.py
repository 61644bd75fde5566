"""Servers under measurement, and jobs against them."""

import dataclasses

from bench.harness import fio
from bench.harness.process import cpu_s, timed
from cheetah.bench.process import Process
from cheetah.bench.units import MIB
from cheetah.bench.verbs import Enter


@dataclasses.dataclass
class Endpoint:
    """An NBD server: its URI, and the processes whose processor time is counted. `enter` puts a client into the
    namespace from which the server is reachable."""

    name: str
    uri: str
    processes: list[Process]
    enter: Enter = list

    def cpu_s(self) -> float:
        """Returns the processor time of its processes so far."""
        return sum(cpu_s(process) for process in self.processes)

    def measure(self, job: fio.Job) -> dict[str, float]:
        """Runs a fio job; returns rate (MiB/s), requests per second, p99 latency, and processor time per request."""
        before_s = self.cpu_s()
        result = self.run(job)
        spent_s = self.cpu_s() - before_s
        return {
            "rate": result.bytes_per_s / MIB,
            "iops": result.requests_per_s,
            "p99": result.latency_p99_us,
            "cpu": spent_s / result.requests * 1e6,
        }

    def run(self, job: fio.Job) -> fio.FioResult:
        """Runs a fio job."""
        return fio.over_nbd(job, self.uri, self.enter([]))

    def copy(self, source: str, target: str, size_bytes: int, connections: int) -> dict[str, float]:
        """Runs nbdcopy and returns the rate (MiB/s); "uri" in the arguments stands for this server."""
        argv = ["nbdcopy", f"--connections={connections}"]
        argv += [self.uri if end == "uri" else end for end in (source, target)]
        return {"rate": size_bytes / MIB / timed(self.enter(argv))}

    def fill(self, path: str) -> None:
        """Writes a file into it from its start."""
        timed(self.enter(["nbdcopy", path, self.uri]))
