"""The lab: an examiner and nodes around one switch, each node behind a link of its own.

    examiner ── switch ─┬─ link ─ node 1
       10.77.0.1        ├─ link ─ node 2      link: rate limited at both ends, optionally delayed and lossy
                        └─ link ─ node N      node i: 10.77.0.(10+i)

The examiner's own link, which all nodes share, is unlimited unless it is given a rate.

Each is a network namespace, and the switch, a bridge, is one too, so nothing of the machine's own network is
touched and any number of labs can be up at once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from lab import relay, state
from lab.link import Link, bits_per_s, microseconds
from lab.namespace import NETNS_DIR, LabError, Namespace
from lab.state import STATE_DIR, LabState, StateFile

PREFIX = "cheetah-lab"
EXAMINER_ADDRESS = "10.77.0.1"
NODES_MAX = 200

_counter = itertools.count(1)


def full_name(name: str) -> str:
    """Returns the prefix of the namespaces and files of the lab `name`."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", name):
        raise LabError(f"'{name}' is not a name for a lab; use up to 60 letters, digits, '_', '.' and '-'")
    return f"{PREFIX}-{name}"


def namespaces_of(name: str) -> list[Namespace]:
    """Returns the namespaces of a lab: first the switch, where its relay runs."""
    found = [entry for entry in _netns_names() if re.fullmatch(rf"{re.escape(name)}-(switch|examiner|n\d+)", entry)]
    return [Namespace(entry) for entry in sorted(found, key=lambda entry: (not entry.endswith("switch"), entry))]


def _netns_names() -> list[str]:
    try:
        return os.listdir(NETNS_DIR)
    except FileNotFoundError:
        return []


def remove_all_of(name: str) -> None:
    """Takes down everything of a lab, except its state file."""
    for namespace in namespaces_of(name):
        namespace.remove()
    with contextlib.suppress(FileNotFoundError):
        os.remove(_log_path(name))


def _log_path(name: str) -> str:
    return os.path.join(STATE_DIR, f"{name}.relay.log")


def sweep() -> list[str]:
    """Removes the remains of labs whose process was killed; returns their full names."""
    orphans = {found[1] for entry in _netns_names() if (found := re.fullmatch(rf"({PREFIX}-.+)-\w+", entry))}
    known = set(state.names())
    swept = [name for name in sorted(known) if sweep_one(name)]
    return swept + [name for name in sorted(orphans - known) if remove_stray(name)]


def sweep_one(name: str) -> bool:
    """Removes the remains of a lab, unless its owner is alive or it is to stay; returns whether it did."""
    file = StateFile(name)
    # A lab that is to stay is not even claimed: `down` would find it claimed.
    if file.read().stays or not file.claim(create=False):
        return False
    if file.read().stays:
        file.release()
        return False
    remove_all_of(name)
    file.remove()
    return True


def remove_stray(name: str) -> bool:
    """Removes namespaces of a lab without a state file; returns whether there were any."""
    # A lab that came up meanwhile already has a state file.
    if name in state.names() or not namespaces_of(name):
        return False
    remove_all_of(name)
    return True


class Node:
    """A machine at the far end of a link: a namespace and its address in the lab."""

    def __init__(self, lab: str, number: int, link: Link) -> None:
        self.namespace = Namespace(f"{lab}-n{number}")
        self.address = f"10.77.0.{10 + number}"
        self.number = number
        self.link = link

    def command(self, argv: Sequence[str]) -> list[str]:
        """Returns `argv` to run on this machine."""
        return self.namespace.command(argv)


class Lab:
    """A lab, up between `with` and its end.

    `rate` is in the notation of `tc` (`1gbit`), or None for no limit; `rtt` such as `0.3ms`, half of it each way.
    `link` sets these and further properties, and `links` sets them for single nodes, by their number from 1.
    `examiner_link` is the examiner's own link, which all nodes share: unlimited, or with a rate and a queue.
    """

    def __init__(
        self,
        nodes: int,
        rate: str | None = "1gbit",
        rtt: str = "0us",
        name: str | None = None,
        die_with_parent: bool = True,
        link: Link | None = None,
        links: Mapping[int, Link] | None = None,
        examiner_link: Link | None = None,
    ) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise LabError(f"{nodes} nodes: a lab has 1 to {NODES_MAX}")
        if link is None:
            link = Link(bits_per_s(rate) if rate else None, microseconds(rtt) // 2)
        links = links or {}
        for number in links:
            if not 1 <= number <= nodes:
                raise LabError(f"a link for node {number}: the lab has nodes 1 to {nodes}")
        examiner_link = examiner_link or Link(rate_bits=None)
        if examiner_link.needs_delay_line() or examiner_link.needs_relay():
            raise LabError(
                "the examiner's link has a rate and a queue only; give other properties to the links of nodes"
            )
        self.name = full_name(name or f"{os.getpid()}-{next(_counter)}")
        self.switch = Namespace(f"{self.name}-switch")
        self.examiner = Namespace(f"{self.name}-examiner")
        self.examiner_address = EXAMINER_ADDRESS
        self.examiner_link = examiner_link
        self.nodes = [Node(self.name, number, links.get(number, link)) for number in range(1, nodes + 1)]
        self._die_with_parent = die_with_parent
        self._state = StateFile(self.name)
        self._relay: subprocess.Popen[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        """Builds it; a partial lab is taken down again."""
        if os.geteuid() != 0:
            raise LabError("the lab creates network namespaces, which needs root")
        sweep()
        if not self._state.claim(create=True):
            raise LabError(f"a lab named {self.name} is up already; take it down first")
        if self._state.read().stays:
            self._state.release()
            raise LabError(f"a lab named {self.name} is up already; take it down first")
        try:
            self._state.write(LabState(stays=False))
            if self._die_with_parent:
                self._guard = self._start_guard()
            for namespace in (self.switch, self.examiner, *(node.namespace for node in self.nodes)):
                namespace.create()
            self._wire()
        except BaseException:
            self.down()
            raise

    def leave_up(self) -> None:
        """Lets it stay up after this process ends, until it is taken down."""
        self._state.write(LabState(stays=True))
        self._state.release()

    def down(self) -> None:
        """Takes it down, ending the processes in it; safe to call twice."""
        remove_all_of(self.name)
        if self._relay is not None:
            self._relay.wait()
            self._relay = None
        self._state.remove()
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            self._guard = None

    def part(self, numbers: Sequence[int]) -> None:
        """Moves the nodes of these numbers to a switch of their own: nothing passes between them and the others."""
        self.switch.run(["ip", "link", "add", "br1", "type", "bridge"])
        self.switch.run(["ip", "link", "set", "br1", "up"])
        for number in numbers:
            self._join_bridge(f"port{number}", "br1")

    def rejoin(self) -> None:
        """Moves all nodes back to one switch."""
        for node in self.nodes:
            self._join_bridge(f"port{node.number}")
        self.switch.run(["ip", "link", "delete", "br1"])

    def _start_guard(self) -> subprocess.Popen[bytes]:
        """Starts a process that takes the lab down if this one is killed."""
        argv = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard.py")]
        nothing = subprocess.DEVNULL
        return subprocess.Popen(
            [*argv, self.name, str(os.getpid())], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )

    def _wire(self) -> None:
        self.switch.run(["ip", "link", "add", "br0", "type", "bridge"])
        self.switch.run(["ip", "link", "set", "br0", "up"])
        self._veth(self.examiner, "eth0", self.switch, "examiner")
        self._join_bridge("examiner")
        self._address(self.examiner, EXAMINER_ADDRESS)
        self._shape(self.examiner, "eth0", self.examiner_link, netem=False)
        self._shape(self.switch, "examiner", self.examiner_link, netem=False)
        relayed = self._relayed()
        for node in self.nodes:
            self._link(node, node in relayed)
        if any(node.link.is_packetwise() for node in self.nodes):
            self._one_packet_a_frame(self.examiner)
        if relayed:
            pairs = [(node.link, f"line{node.number}", f"far{node.number}") for node in relayed]
            self._relay = relay.start(self.switch, pairs, _log_path(self.name), self._die_with_parent)

    def _relayed(self) -> list[Node]:
        """Returns the nodes whose link needs the relay: netem cannot space or batch frames, and may be missing."""
        late = [node for node in self.nodes if node.link.needs_delay_line() and not node.link.needs_relay()]
        has_netem = bool(late) and self._has_netem()
        return [node for node in self.nodes if node.link.needs_relay() or (node in late and not has_netem)]

    def _link(self, node: Node, use_relay: bool) -> None:
        """Makes one node's link. With a relay, it consists of two veth pairs and the relay between them."""
        port = f"port{node.number}"
        if use_relay:
            line, far = f"line{node.number}", f"far{node.number}"
            self._veth(node.namespace, "eth0", self.switch, line)
            self._veth(self.switch, port, self.switch, far)
        else:
            self._veth(node.namespace, "eth0", self.switch, port)
        self._join_bridge(port)
        self._address(node.namespace, node.address)
        netem = node.link.needs_delay_line() and not use_relay
        if not node.link.spaced:
            self._shape(node.namespace, "eth0", node.link, netem)
            self._shape(self.switch, port, node.link, netem)
        if node.link.is_packetwise():
            self._one_packet_a_frame(node.namespace)

    @staticmethod
    def _shape(namespace: Namespace, interface: str, link: Link, netem: bool) -> None:
        """Limits the rate of packets that leave `interface`; netem, if used, delays and drops them before that."""
        qdisc = ["tc", "qdisc", "add", "dev", interface]
        parent = ["root", "handle", "1:"]
        if netem:
            namespace.run([*qdisc, *parent, *link.netem()])
            parent = ["parent", "1:1"]
        if link.rate_bits:
            namespace.run([*qdisc, *parent, *link.token_bucket()])

    @staticmethod
    def _one_packet_a_frame(namespace: Namespace) -> None:
        """Makes senders segment their own packets: otherwise loss would take a whole super-frame or none of it."""
        namespace.run(["ip", "link", "set", "eth0", "gso_max_segs", "1"])

    def _has_netem(self) -> bool:
        try:
            self.switch.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1us"])
        except LabError:
            return False
        self.switch.run(["tc", "qdisc", "del", "dev", "lo", "root"])
        return True

    @staticmethod
    def _veth(here: Namespace, name: str, there: Namespace, peer: str) -> None:
        argv = ["ip", "link", "add", "name", name, "netns", here.name, "type", "veth"]
        here.run([*argv, "peer", "name", peer, "netns", there.name])
        here.run(["ip", "link", "set", name, "up"])
        there.run(["ip", "link", "set", peer, "up"])

    def _join_bridge(self, port: str, bridge: str = "br0") -> None:
        self.switch.run(["ip", "link", "set", port, "master", bridge])

    @staticmethod
    def _address(namespace: Namespace, address: str) -> None:
        namespace.run(["ip", "address", "add", f"{address}/24", "dev", "eth0"])
        # Multicast (mDNS) needs a route.
        namespace.run(["ip", "route", "add", "default", "dev", "eth0"])
