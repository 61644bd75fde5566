"""Places work on a drive: at the workers on those hosts that hold most of the bytes it reads.

It is worth it where few hosts hold a part of the drive: at most half as many as there are hosts with workers. So over a linear
layout or bundles of several sets, work is placed. Over a stripe with small units every host holds some of each part, and
nothing is placed. A place is a preference, and no result depends on it.
"""

import bisect
import collections
import contextlib
import dataclasses
import ipaddress
import socket
import urllib.parse
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from cheetah.device import Device, Part

Range: TypeAlias = tuple[int, int]
"""Start and length in bytes."""

Task = TypeVar("Task")

PARTS_MAX = 1 << 14
PART_BYTES_MIN = 1 << 20


@dataclasses.dataclass(frozen=True)
class Placement:
    """How many `tasks` were given to a cluster, and how many of these were `placed` at the workers on the hosts that hold most of
    their bytes."""

    tasks: int
    placed: int


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A part of a drive, from its first byte to the one after its last, and the hosts that hold bytes of it."""

    start: int
    end: int
    hosts: frozenset[str]


def part_bytes(size_bytes: int) -> int:
    """Returns the size of the parts in which a drive is looked at: whole MiB, and at most `PARTS_MAX` parts."""
    units = -(-size_bytes // (PARTS_MAX * PART_BYTES_MIN))
    return max(1, units) * PART_BYTES_MIN


def parts_of(device: "Device") -> "list[Part]":
    """Returns the parts of a source with their hosts; none if these cannot be had, so that nothing is placed."""
    try:
        return device.parts(part_bytes(device.size))
    except OSError:
        return []


def stretches(parts: "Iterable[Part]") -> list[Stretch]:
    """Returns the parts in order, with neighbours that have the same hosts joined, and without those that have none."""
    joined: list[Stretch] = []
    for part in parts:
        one = Stretch(part.offset, part.offset + part.length, frozenset(part.hosts))
        if joined and joined[-1].end == one.start and joined[-1].hosts == one.hosts:
            joined[-1] = dataclasses.replace(joined[-1], end=one.end)
        else:
            joined.append(one)
    return [one for one in joined if one.hosts]


def hosts_with_most(ranges: Iterable[Range], held: Sequence[Stretch], worker_hosts: int) -> tuple[str, ...]:
    """Returns the hosts that hold at least half of the bytes of some ranges, those with the most first. A stretch counts
    if its hosts are at most half of the `worker_hosts`, the number of hosts with workers."""
    total = 0
    bytes_at: collections.Counter[str] = collections.Counter()
    for start, length in ranges:
        total += length
        at = max(0, bisect.bisect_right(held, start, key=lambda one: one.start) - 1)
        while at < len(held) and held[at].start < start + length:
            one = held[at]
            inside = min(one.end, start + length) - max(one.start, start)
            if inside > 0 and 2 * len(one.hosts) <= worker_hosts:
                for host in one.hosts:
                    bytes_at[host] += inside
            at += 1
    most = [host for host, count in bytes_at.items() if 2 * count >= total]
    return tuple(sorted(most, key=lambda host: (-bytes_at[host], host)))


def addresses(host: str) -> frozenset[str]:
    """Returns the IP addresses of a host, each in one form, and its name if it is given by name. A name that is not known
    here stands for itself."""
    name = host.strip("[]").rstrip(".").lower()
    with contextlib.suppress(ValueError):
        return frozenset({_plain(name)})
    found = {name}
    with contextlib.suppress(OSError, ValueError):
        found |= {_plain(str(info[4][0])) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    return frozenset(found)


def host_of(worker: str) -> str:
    """Returns the host in a worker's address, such as tls://10.0.0.5:40123; nothing if there is none."""
    try:
        return urllib.parse.urlsplit(worker).hostname or ""
    except ValueError:
        return ""


def _plain(address: str) -> str:
    """Returns an IP address without zone, and as IPv4 if it is one. Raises ValueError if it is no address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def in_turn(tasks: Iterable[Task], place_of: Callable[[Task], Hashable]) -> Iterator[Task]:
    """Yields the first task of each place, then the second of each, and so on."""
    lines: dict[Hashable, collections.deque[Task]] = {}
    for task in tasks:
        lines.setdefault(place_of(task), collections.deque()).append(task)
    waiting = list(lines.values())
    while waiting:
        for line in waiting:
            yield line.popleft()
        waiting = [line for line in waiting if line]


class Placing:
    """Chooses workers for ranges of a source, which `parts` describe, and keeps account of the work that it has placed."""

    def __init__(self, parts: "Iterable[Part]" = ()) -> None:
        self._held = stretches(parts)
        self._known: dict[str, frozenset[str]] = {}
        self._threads: dict[str, int] = {}
        self._workers_at: dict[str, tuple[str, ...]] = {}
        self._worker_hosts = 0
        self._is_worth_it = False
        self._placed: collections.Counter[tuple[str, ...]] = collections.Counter()
        self.placement = Placement(0, 0)

    def workers_are(self, threads: Mapping[str, int]) -> None:
        """Takes the workers of now: their addresses, and the number of threads of each."""
        if not self._held or self._threads == threads:
            return
        self._threads = dict(threads)
        at = {worker: self._addresses(host) for worker in threads if (host := host_of(worker))}
        self._worker_hosts = len(set(at.values()))
        hosts = {host for one in self._held for host in one.hosts}
        self._workers_at = {
            host: tuple(sorted(worker for worker, found in at.items() if found & self._addresses(host)))
            for host in hosts
        }
        self._is_worth_it = any(
            2 * len(one.hosts) <= self._worker_hosts and any(self._workers_at[host] for host in one.hosts)
            for one in self._held
        )

    def workers_of(self, ranges: Iterable[Range]) -> tuple[str, ...]:
        """Returns the workers on the hosts that hold most of some ranges; none if there are none, if these are all the workers, or if
        it is not worth it."""
        if not self._is_worth_it:
            return ()
        found = {
            worker
            for host in hosts_with_most(ranges, self._held, self._worker_hosts)
            for worker in self._workers_at.get(host, ())
        }
        return tuple(sorted(found)) if len(found) < len(self._threads) else ()

    def take(self, ranges: Iterable[Range], tasks_a_thread: int) -> tuple[str, ...]:
        """Counts a task, and returns workers for it, where it is placed until it is given back. Returns none if they have
        `tasks_a_thread` for each of their threads: others do it sooner."""
        workers = self.workers_of(ranges)
        room = tasks_a_thread * sum(self._threads.get(worker, 0) for worker in workers)
        is_placed = self._placed[workers] < room
        self.placement = Placement(self.placement.tasks + 1, self.placement.placed + is_placed)
        if not is_placed:
            return ()
        self._placed[workers] += 1
        return workers

    def give_back(self, workers: tuple[str, ...]) -> None:
        """Notes that a task has ended that was placed at some workers."""
        if self._placed[workers] > 0:
            self._placed[workers] -= 1

    def _addresses(self, host: str) -> frozenset[str]:
        if host not in self._known:
            self._known[host] = addresses(host)
        return self._known[host]
