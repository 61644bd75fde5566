"""Keywords and rules in unallocated space: free blocks of file systems, the rest of a volume after its file system,
and space outside all volumes.

A task searches a range of the image; the file system's own record says which of its blocks are free. A hit belongs to
the range in which it begins, so the division into ranges does not matter. Adjacent free blocks are searched as one;
matches across fragments that lie apart cannot be found.
"""

import collections.abc
import dataclasses

from cheetah.triage.content.analysis import Tools
from cheetah.triage.filesystem import allocation, allocation_maps
from cheetah.triage.ranking import score
from cheetah.triage.reading import salvage
from cheetah.triage.reading.image import GONE
from cheetah.triage.reading.worker import Worker
from cheetah.triage.search import scan as scanning
from cheetah.triage.task import Finding, Problem, Result

# Findings of one keyword or rule in one range; more of a frequent keyword say nothing new.
FINDINGS_MAX = 100


def scan(worker: Worker, volume: int, start: int, length: int) -> Result:
    """Searches the free space of `length` bytes at `start` in the image. `volume` is -1 outside all file systems."""
    result = Result()
    tools = Tools.of(worker)
    if tools.engine is None:
        return result
    tools.engine.name("")
    if volume >= 0 and start == worker.volumes[volume].start:
        _overlaps(worker, volume, result)
    try:
        ranges = list(_free(tools, worker, volume, start, length))
    except allocation.Unknown as error:
        found = worker.volumes[volume]
        # Once for all ranges of a volume.
        if start == found.start:
            sentence = f"unallocated space was not searched: {error}"
            result.problems.append(Problem("unallocated", sentence, volume, None, start, found.length))
        result.failed = True
        return result
    except allocation_maps.Unreadable as error:
        sentence = f"unallocated space was not searched: the record of free blocks could not be read: {error}"
        result.problems.append(Problem("unallocated", sentence, volume, None, error.offset, error.length))
        result.failed = True
        return result
    counts: dict[tuple[str, str], int] = {}
    for begin, size, tail in ranges:
        if tools.atoms is not None and tools.atoms.has_none(begin, size + tail):
            # It was read where it lies.
            result.bytes_read += size
            continue
        for hit in _search(worker, tools.engine, volume, begin, size, tail, result):
            _findings(result, counts, volume, hit)
    return result


def _overlaps(worker: Worker, volume: int, result: Result) -> None:
    """Reports, once for a volume, that others claim the same bytes: free space of one may be a file of another."""
    own = worker.volumes[volume]
    for other in worker.volumes:
        begin, end = max(own.start, other.start), min(own.start + own.length, other.start + other.length)
        if other.fs and other.index < volume and begin < end:
            sentence = f"volumes {other.index} and {volume} overlap in {end - begin} bytes from byte {begin} on"
            result.problems.append(
                Problem("unallocated", f"{sentence}: what is unallocated in one may be a file's in the other", volume)
            )


def _free(
    tools: Tools, worker: Worker, volume: int, start: int, length: int
) -> collections.abc.Iterator[tuple[int, int, int]]:
    """Yields free ranges: their offset in the image, their length, and how many free bytes follow directly, as far as
    a hit may reach."""
    reach = scanning.OVERLAP_BYTES
    if volume < 0:
        end = min(start + length, worker.source.size)
        if end > start:
            yield start, end - start, _gap_tail(worker, end, reach)
        return
    found = worker.volumes[volume]
    known = tools.maps.of(volume)
    until = min(start + length + reach, found.start + found.length) - found.start
    free = list(known.free(start - found.start, until - (start - found.start)))
    slack = max(known.end, start - found.start)
    if slack < until:
        # The rest of the volume after the file system holds no file either.
        joined = bool(free) and sum(free[-1]) == slack
        begin = free.pop()[0] if joined else slack
        free.append((begin, until - begin))
    for begin, size in free:
        begin += found.start
        if begin < start + length:
            inside = min(size, start + length - begin)
            yield begin, inside, min(size - inside, reach)


def _gap_tail(worker: Worker, end: int, reach: int) -> int:
    """Returns how many of the bytes after a range outside all file systems are outside as well."""
    behind = [one.start for one in worker.volumes if one.fs and one.start + one.length > end]
    limit = min([max(end, start) for start in behind] + [worker.source.size])
    return max(0, min(reach, limit - end))


def _search(
    worker: Worker, engine: scanning.Engine, volume: int, begin: int, size: int, tail: int, result: Result
) -> list[scanning.Hit]:
    """Returns the hits that begin in a free range."""
    stream = scanning.Stream(engine, begin + size)
    error = ""

    def read(offset: int, length: int) -> bytes | None:
        nonlocal error
        worker.beat()
        try:
            content = worker.image().pread(offset, length)
        except OSError as failed:
            error = failed.strerror or str(failed)
            return None
        if len(content) == length:
            return content
        error = "the source ends before it"
        return None

    for offset, length, content, given_up in salvage.of(read, begin, begin + size + tail):
        inside = max(0, min(length, begin + size - offset))
        if content is not None:
            stream.feed(content, offset)
            result.bytes_read += inside
        elif inside:
            what = "was given up after many failures" if given_up or error == GONE else "could not be read"
            _lost(result, Problem("unallocated", f"unallocated space {what}: {error}", volume, None, offset, inside))
    hits = stream.finish()
    if stream.trouble is not None:
        # It was read: nothing of it counts as unreadable.
        sentence = f"unallocated space was not searched for everything: {stream.trouble}"
        result.problems.append(Problem("unallocated", sentence, volume, None, begin))
    return hits


def _lost(result: Result, problem: Problem) -> None:
    """Joins adjacent problems with the same cause."""
    last = result.problems[-1] if result.problems else problem
    if last.offset is not None and last.offset + (last.length or 0) == problem.offset:
        whole = dataclasses.replace(last, length=(last.length or 0) + (problem.length or 0))
        if whole == dataclasses.replace(problem, offset=whole.offset, length=whole.length):
            result.problems[-1] = whole
            return
    result.problems.append(problem)


def _findings(result: Result, counts: dict[tuple[str, str], int], volume: int, hit: scanning.Hit) -> None:
    """Yields a finding for each match; a rule has one, at its first match."""
    offsets = hit.offsets[:1] if hit.kind == "yara" else hit.offsets
    for offset, excerpt in zip(offsets, hit.excerpts, strict=False):
        count = counts[hit.kind, hit.rule] = counts.get((hit.kind, hit.rule), 0) + 1
        if count > FINDINGS_MAX:
            return
        detail = "in unallocated space"
        if count == FINDINGS_MAX:
            detail += "; further matches near here are omitted"
        if hit.kind == "yara":
            detail = f"{hit.detail(False)}; {detail}"
        points = score.of_finding(hit.kind, None)
        result.findings.append(Finding(points, volume, hit.kind, hit.rule, detail, None, None, offset, excerpt))
