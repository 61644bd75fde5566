"""The lab: an examiner and nodes around one switch, each node behind a link of its own.

    examiner ── switch ─┬─ link ─ node 1
       10.77.0.1        ├─ link ─ node 2      link: rate limited at both ends, optionally delayed
                        └─ link ─ node N      node i: 10.77.0.(10+i)

Each is a network namespace, and the switch, a bridge, is one too, so nothing of the machine's own network is
touched and any number of labs can be up at once.
"""

import os
import re

from lab import relay
from lab.namespace import NETNS_DIR, LabError, Namespace

PREFIX = "cheetah-lab"
STATE_DIR = "/run/cheetah-lab"
EXAMINER_ADDRESS = "10.77.0.1"
BURST = "256k"
QUEUE_LATENCY = "20ms"


def microseconds(text):
    """Reads `300us`, `0.3ms` or `1s` as whole microseconds."""
    found = re.fullmatch(r"([0-9.]+)(us|ms|s)", text)
    if not found:
        raise LabError(f"'{text}' is not a time; write a number and a unit, such as 300us, 0.3ms, 1s")
    return round(float(found.group(1)) * {"us": 1, "ms": 1_000, "s": 1_000_000}[found.group(2)])


def sweep():
    """Removes what labs left behind whose process was killed: they are named after it."""
    if not os.path.isdir(NETNS_DIR):
        return
    for name in os.listdir(NETNS_DIR):
        found = re.fullmatch(rf"{PREFIX}-(\d+)-\w+", name)
        if found and not os.path.exists(f"/proc/{found.group(1)}"):
            Namespace(name).remove()


class Node:
    """A machine at the far end of a link: a namespace and its address in the lab."""

    def __init__(self, lab, number):
        self.namespace = Namespace(f"{lab}-n{number}")
        self.address = f"10.77.0.{10 + number}"
        self.number = number

    def command(self, argv):
        """`argv` so that it runs on this machine."""
        return self.namespace.command(argv)


class Lab:
    """A lab, up between `with` and its end. `rate` is as `tc` has it (`1gbit`) or None; `rtt` such as `0.3ms`."""

    def __init__(self, nodes, rate="1gbit", rtt="0us", name=None, die_with_parent=True):
        if not 1 <= nodes <= 200:
            raise LabError(f"{nodes} nodes: a lab has 1 to 200")
        self.name = f"{PREFIX}-{name or os.getpid()}"
        self.rate = rate
        self.delay_us = microseconds(rtt) // 2
        self.switch = Namespace(f"{self.name}-switch")
        self.examiner = Namespace(f"{self.name}-examiner")
        self.examiner_address = EXAMINER_ADDRESS
        self.nodes = [Node(self.name, number + 1) for number in range(nodes)]
        self.relay_pid = None
        self._die_with_parent = die_with_parent

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        """Builds it; half a lab is taken down again."""
        if os.geteuid() != 0:
            raise LabError("the lab makes network namespaces, which needs root")
        if os.path.exists(self.switch.path):
            raise LabError(f"a lab named {self.name} is up already; take it down first")
        sweep()
        try:
            for namespace in self._namespaces():
                namespace.create()
            self._wire()
        except BaseException:
            self.down()
            raise

    def down(self):
        """Takes down what there is of it; safe to call twice."""
        if self.relay_pid is not None:
            relay.stop(self.relay_pid)
            self.relay_pid = None
        if os.path.exists(self._log_path()):
            os.remove(self._log_path())
        for namespace in self._namespaces():
            namespace.remove()

    def _log_path(self):
        return os.path.join(STATE_DIR, f"{self.name}.relay.log")

    def _namespaces(self):
        return [self.switch, self.examiner, *(node.namespace for node in self.nodes)]

    def _wire(self):
        self.switch.run(["ip", "link", "add", "br0", "type", "bridge"])
        self.switch.run(["ip", "link", "set", "br0", "up"])
        self._veth(self.examiner, "eth0", self.switch, "examiner")
        self._join_bridge("examiner")
        self._address(self.examiner, EXAMINER_ADDRESS)
        use_relay = self.delay_us > 0 and not self._has_netem()
        for node in self.nodes:
            self._link(node, use_relay)
        if use_relay:
            pairs = [(f"line{node.number}", f"far{node.number}") for node in self.nodes]
            os.makedirs(STATE_DIR, exist_ok=True)
            self.relay_pid = relay.start(self.switch, pairs, self.delay_us, self._log_path(), self._die_with_parent)

    def _link(self, node, use_relay):
        """One node's link. Where a relay delays it, it consists of two veth pairs with the relay between."""
        port = f"port{node.number}"
        if use_relay:
            line, far = f"line{node.number}", f"far{node.number}"
            self._veth(node.namespace, "eth0", self.switch, line)
            self._veth(self.switch, port, self.switch, far)
        else:
            self._veth(node.namespace, "eth0", self.switch, port)
        self._join_bridge(port)
        self._address(node.namespace, node.address)
        netem_us = 0 if use_relay else self.delay_us
        self._shape(node.namespace, "eth0", netem_us)
        self._shape(self.switch, port, netem_us)

    def _shape(self, namespace, interface, netem_us):
        """Limits what leaves `interface`, and delays it where netem is to do that."""
        qdisc = ["tc", "qdisc", "add", "dev", interface]
        parent = ["root", "handle", "1:"]
        if self.rate:
            namespace.run([*qdisc, *parent, "tbf", "rate", self.rate, "burst", BURST, "latency", QUEUE_LATENCY])
            parent = ["parent", "1:1"]
        if netem_us:
            namespace.run([*qdisc, *parent, "netem", "delay", f"{netem_us}us", "limit", "100000"])

    def _has_netem(self):
        try:
            self.switch.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1us"])
        except LabError:
            return False
        self.switch.run(["tc", "qdisc", "del", "dev", "lo", "root"])
        return True

    @staticmethod
    def _veth(here, name, there, peer):
        argv = ["ip", "link", "add", "name", name, "netns", here.name, "type", "veth"]
        here.run([*argv, "peer", "name", peer, "netns", there.name])
        here.run(["ip", "link", "set", name, "up"])
        there.run(["ip", "link", "set", peer, "up"])

    def _join_bridge(self, port):
        self.switch.run(["ip", "link", "set", port, "master", "br0"])

    @staticmethod
    def _address(namespace, address):
        namespace.run(["ip", "address", "add", f"{address}/24", "dev", "eth0"])
        # Multicast (mDNS) needs a route to leave by.
        namespace.run(["ip", "route", "add", "default", "dev", "eth0"])
