"""Which workers get the work on a part of a drive, by the hosts that hold it."""

from __future__ import annotations

import random
import socket
import struct
from typing import Any

import pytest

from cheetah import placing
from cheetah.device import Part
from cheetah.placing import Placement, Placing, Stretch, addresses, host_of, hosts_with_most, in_turn, stretches

MIB = 1 << 20
LINEAR = [Part(at * MIB, MIB, ("10.0.0.1" if at < 4 else "10.0.0.2",)) for at in range(8)]
STRIPE = [Part(at * MIB, MIB, ("10.0.0.1", "10.0.0.2")) for at in range(8)]
WORKERS = {"tls://10.0.0.1:4001": 1, "tls://10.0.0.1:4002": 1, "tls://10.0.0.2:4001": 2}


def placed(parts: list[Part], threads: dict[str, int]) -> Placing:
    """Placing over these parts and workers."""
    made = Placing(parts)
    made.workers_are(threads)
    return made


def test_parts_are_joined_while_their_hosts_are_the_same_and_those_without_hosts_are_left_out() -> None:
    parts = [Part(0, 2, ("a", "b")), Part(2, 2, ("b", "a")), Part(4, 2, ()), Part(6, 2, ("a",)), Part(8, 1, ("b",))]
    assert stretches(parts) == [
        Stretch(0, 4, frozenset("ab")),
        Stretch(6, 8, frozenset("a")),
        Stretch(8, 9, frozenset("b")),
    ]
    assert stretches([]) == []


def test_hosts_have_most_if_they_hold_at_least_half_of_the_bytes() -> None:
    held = stretches([Part(0, 10, ("a",)), Part(10, 10, ("b",)), Part(30, 10, ("c",))])
    for ranges, hosts in (
        ([(0, 10)], ("a",)),
        ([(0, 10), (10, 9)], ("a",)),
        ([(0, 20)], ("a", "b")),
        ([(5, 10), (30, 100)], ()),
        ([(20, 10)], ()),
        ([(39, 1)], ("c",)),
        ([(100, 5)], ()),
        ([], ()),
    ):
        assert hosts_with_most(ranges, held, 2) == hosts, ranges
    assert hosts_with_most([(0, 10)], [], 2) == ()


def test_hosts_of_random_ranges_are_those_that_a_count_of_each_byte_gives() -> None:
    chance = random.Random(4)
    for _ in range(200):
        parts = [Part(at * 5, 5, tuple(chance.sample("abcd", chance.randrange(3)))) for at in range(8)]
        worker_hosts = chance.randrange(6)
        ranges = [(chance.randrange(45), chance.randrange(1, 12)) for _ in range(chance.randrange(1, 5))]
        places = [at for start, length in ranges for at in range(start, start + length)]
        holders = [
            parts[at // 5].hosts if at < 40 and 2 * len(parts[at // 5].hosts) <= worker_hosts else () for at in places
        ]
        expected = {host for host in "abcd" if 2 * sum(host in hosts for hosts in holders) >= len(places)}
        assert set(hosts_with_most(ranges, stretches(parts), worker_hosts)) == expected


def test_parts_on_more_than_half_of_the_hosts_with_workers_place_nothing() -> None:
    assert placed(LINEAR, WORKERS).workers_of([(0, MIB)]) == ("tls://10.0.0.1:4001", "tls://10.0.0.1:4002")
    assert placed(LINEAR, WORKERS).workers_of([(4 * MIB, 8 * MIB)]) == ("tls://10.0.0.2:4001",)
    assert placed(STRIPE, WORKERS).workers_of([(0, MIB)]) == ()
    others = {"tls://10.0.0.3:1": 1, "tls://10.0.0.4:1": 1}
    assert placed(STRIPE, WORKERS | others).workers_of([(0, MIB)]) == tuple(WORKERS)
    # With workers on one host alone there is nothing to choose.
    assert placed(LINEAR, {"tls://10.0.0.1:4001": 8}).workers_of([(0, MIB)]) == ()
    assert placed([Part(0, MIB, ())], WORKERS).workers_of([(0, MIB)]) == ()


def test_bytes_on_a_host_without_workers_place_nothing() -> None:
    elsewhere = {"tls://10.0.0.1:1": 1, "tls://10.0.0.3:1": 1}
    assert placed(LINEAR, elsewhere).workers_of([(0, MIB)]) == ("tls://10.0.0.1:1",)
    assert placed(LINEAR, elsewhere).workers_of([(4 * MIB, MIB)]) == ()


def test_bytes_that_are_as_near_to_all_workers_place_nothing() -> None:
    assert placed(LINEAR, WORKERS).workers_of([(3 * MIB, 2 * MIB)]) == ()
    third = {"tls://10.0.0.3:1": 1}
    assert placed(LINEAR, WORKERS | third).workers_of([(3 * MIB, 2 * MIB)]) == tuple(WORKERS)


def test_a_host_has_one_set_of_addresses_however_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"lab1": ["10.0.0.1", "fe80::1%eth0"], "lab1.example": ["10.0.0.1"]}

    def known(name: str, *_: Any, **__: Any) -> list[Any]:
        if name not in names:
            raise socket.gaierror(f"no {name}")
        return [(0, 0, 0, "", (address, 0)) for address in names[name]]

    monkeypatch.setattr(socket, "getaddrinfo", known)
    assert addresses("[::ffff:10.0.0.1]") == addresses("10.0.0.1") == {"10.0.0.1"}
    assert addresses("FE80::0:1%eth1") == addresses("[fe80::1]") == {"fe80::1"}
    assert addresses("Lab1.") == {"lab1", "10.0.0.1", "fe80::1"}
    assert addresses("lab9") == {"lab9"}
    assert [
        host_of(one) for one in ("tls://[fe80::1]:8", "tcp://LAB2:8", "inproc://10.0.0.1/2/3", "x", "tcp://[x")
    ] == [
        "fe80::1",
        "lab2",
        "10.0.0.1",
        "",
        "",
    ]
    # A drive file and a scheduler may name one host in two ways, and a name that nobody knows is still a name.
    parts = [Part(0, MIB, ("lab1",)), Part(MIB, MIB, ("lab9",)), Part(2 * MIB, MIB, ("10.0.0.1",))]
    made = placed(parts, {"tcp://10.0.0.1:7": 1, "tcp://lab9:7": 1})
    assert [made.workers_of([(at * MIB, MIB)]) for at in range(3)] == [
        ("tcp://10.0.0.1:7",),
        ("tcp://lab9:7",),
        ("tcp://10.0.0.1:7",),
    ]
    assert placed(parts, {"tcp://lab1.example:7": 1, "tcp://x:7": 1}).workers_of([(0, 1)]) == ("tcp://lab1.example:7",)


def test_workers_that_leave_are_not_chosen_and_those_that_join_are() -> None:
    made = placed(LINEAR, WORKERS)
    left = {worker: count for worker, count in WORKERS.items() if not worker.endswith("1:4001")}
    made.workers_are(left)
    assert made.workers_of([(0, MIB)]) == ("tls://10.0.0.1:4002",)
    made.workers_are({})
    assert made.workers_of([(0, MIB)]) == ()
    made.workers_are(WORKERS | {"tls://10.0.0.1:4003": 1})
    assert len(made.workers_of([(0, MIB)])) == 3


def test_workers_get_as_many_tasks_as_they_do_at_once_and_others_the_rest() -> None:
    made = placed(LINEAR, WORKERS)
    here = ("tls://10.0.0.1:4001", "tls://10.0.0.1:4002")
    taken = [made.take([(0, MIB)], 2) for _ in range(6)]
    assert taken == [here] * 4 + [()] * 2
    assert made.take([(4 * MIB, MIB)], 2) == ("tls://10.0.0.2:4001",)
    assert made.placement == Placement(tasks=7, placed=5)
    made.give_back(here)
    assert (made.take([(0, MIB)], 2), made.take([(0, MIB)], 2)) == (here, ())
    # What is nowhere known is placed nowhere.
    assert made.take([], 2) == ()
    assert made.placement == Placement(tasks=10, placed=6)


def test_places_take_turns_and_each_keeps_its_order() -> None:
    assert "".join(in_turn("aaabbc", lambda one: one)) == "abcaba"
    assert list(in_turn([3, 1, 2], lambda one: ())) == [3, 1, 2]
    assert list(in_turn([], lambda one: ())) == []


def test_a_drive_is_looked_at_in_whole_mebibytes_and_not_too_many() -> None:
    for size in (0, 1, MIB, 10**9, 10**12, 10**14):
        found = placing.part_bytes(size)
        assert found % MIB == 0 and found >= MIB
        assert size <= found * placing.PARTS_MAX


def test_a_source_whose_parts_cannot_be_had_places_nothing() -> None:
    class Lost:
        size = MIB

        def parts(self, part_bytes: int) -> list[Part]:
            raise OSError("no node answers")

    lost: Any = Lost()
    assert placing.parts_of(lost) == []


def test_the_first_block_of_an_inode_is_read_from_its_map_or_its_extents() -> None:
    from cheetah.triage.filesystem.ext_inodes import first_block

    def inode(flags: int, blocks: bytes) -> bytes:
        return struct.pack("<32xI4x", flags) + blocks.ljust(60, b"\0") + bytes(60)

    extents, leaf, index = 0x80000, struct.pack("<IHHI", 0, 1, 2, 7), struct.pack("<IIHH", 0, 9, 3, 0)
    assert first_block(inode(0, struct.pack("<I", 77))) == 77
    assert first_block(inode(0, b"")) is None
    assert first_block(inode(extents, struct.pack("<4HI", 0xF30A, 1, 4, 0, 0) + leaf)) == (2 << 32) + 7
    assert first_block(inode(extents, struct.pack("<4HI", 0xF30A, 1, 4, 1, 0) + index)) == (3 << 32) + 9
    assert first_block(inode(extents, struct.pack("<4HI", 0xF30A, 0, 4, 0, 0))) is None
    assert first_block(inode(extents, struct.pack("<4HI", 0x1234, 1, 4, 0, 0) + leaf)) is None
    assert first_block(inode(0x10000000, b"text in the inode")) is None
