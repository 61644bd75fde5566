"""Parses the output of fio."""

import json
from typing import Any

MILLISECONDS_MIN = 100


def rate(printed: str) -> float | None:
    """Returns the bytes per second of the last job in fio's output, which had one request in flight at a time; None
    without a result. It is fio's own figure, except for reads of less than `MILLISECONDS_MIN`, since fio counts in
    milliseconds: there it is the bytes over the sum of the requests' latencies. (Writes end with an fsync, which no
    latency includes.)"""
    answer = _first_json(printed)
    jobs = answer.get("jobs") if answer else None
    if not jobs or jobs[-1]["error"]:
        return None
    side = jobs[-1]["read"] if jobs[-1]["read"]["total_ios"] else jobs[-1]["write"]
    latencies_ns = side["lat_ns"]["mean"] * side["total_ios"]
    if side is jobs[-1]["read"] and side["runtime"] < MILLISECONDS_MIN and latencies_ns:
        return float(side["io_bytes"] / latencies_ns * 1e9)
    return float(side["bw_bytes"]) or None


def busy(printed: str) -> tuple[float, float] | None:
    """Returns the seconds that the jobs in fio's output ran, and their processor time; None without a result. Neither
    includes fio's own start, which takes longer than many a job."""
    answer = _first_json(printed)
    jobs = answer.get("jobs") if answer else None
    if not jobs:
        return None
    seconds = [job["job_runtime"] / 1e3 for job in jobs]
    shares = [(job["usr_cpu"] + job["sys_cpu"]) / 100 for job in jobs]
    return sum(seconds), sum(run * share for run, share in zip(seconds, shares, strict=True))


def _first_json(printed: str) -> dict[str, Any] | None:
    """fio complains before and after it."""
    start = printed.find("{")
    try:
        answer = json.JSONDecoder().raw_decode(printed, start)[0] if start >= 0 else None
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
