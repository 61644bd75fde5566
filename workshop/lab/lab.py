#!/usr/bin/env python3
"""Brings a lab up and takes it down from the command line; see workshop/lab/README.md."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

# The directory of this file would make `import lab` find this file.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from lab import check as accuracy
from lab import network
from lab.link import Link, bits_per_s, microseconds, parts_per_million, size_bytes
from lab.namespace import LabError, Namespace
from lab.network import Lab
from lab.state import StateFile


def link_of(arguments: argparse.Namespace) -> Link:
    """Returns the link of all nodes without their own."""
    if arguments.rtt is not None and arguments.delay is not None:
        raise LabError("--rtt and --delay set the same property; give one of them")
    delay_us = microseconds(arguments.delay) if arguments.delay else microseconds(arguments.rtt or "0us") // 2
    return Link(
        None if arguments.rate == "none" else bits_per_s(arguments.rate),
        delay_us,
        size_bytes(arguments.queue) if arguments.queue else None,
        parts_per_million(arguments.loss),
    )


def links_of(arguments: argparse.Namespace, base: Link) -> dict[int, Link]:
    """Returns the links of nodes that have their own."""
    links = {}
    for text in arguments.link:
        number, colon, said = text.partition(":")
        if not colon or not number.isdigit():
            raise LabError(f"'{text}' is not a link; write NODE:delay=20ms,loss=1%")
        links[int(number)] = Link.parse(said, base)
    return links


def up(arguments: argparse.Namespace) -> int:
    """`lab.py up`."""
    link = link_of(arguments)
    links = links_of(arguments, link)
    own = Link.parse(arguments.examiner, Link(rate_bits=None)) if arguments.examiner else None
    lab = Lab(arguments.nodes, name=arguments.name, die_with_parent=False, link=link, links=links, examiner_link=own)
    lab.up()
    lab.leave_up()
    print(f"examiner  {lab.examiner_address:<12} nsenter --net={lab.examiner.path}")
    for node in lab.nodes:
        print(f"node {node.number:<4} {node.address:<12} nsenter --net={node.namespace.path}")
    return 0


def down(arguments: argparse.Namespace) -> int:
    """`lab.py down`."""
    name = network.full_name(arguments.name)
    state = StateFile(name)
    if not state.claim(create=False):
        if network.namespaces_of(name):
            raise LabError(f"{name} belongs to a running process; it is removed when that process ends")
        raise LabError(f"no lab named {arguments.name} is up")
    network.remove_all_of(name)
    state.remove()
    return 0


def sweep(_: argparse.Namespace) -> int:
    """`lab.py sweep`."""
    for name in network.sweep():
        print(f"removed the remains of {name}")
    return 0


def enter(arguments: argparse.Namespace) -> int:
    """`lab.py enter examiner|N COMMAND…`."""
    machine = arguments.machine if arguments.machine == "examiner" else f"n{arguments.machine}"
    namespace = Namespace(f"{network.full_name(arguments.name)}-{machine}")
    if not namespace.exists():
        raise LabError(f"there is no {arguments.machine} in a lab named {arguments.name}; is it up?")
    argv = namespace.command(arguments.argv or [os.environ.get("SHELL", "sh")])
    os.execvp(argv[0], argv)


def check(arguments: argparse.Namespace) -> int:
    """`lab.py check`."""
    return 0 if accuracy.report(arguments.seconds) else 1


class Parser(argparse.ArgumentParser):
    """Reports an error in one sentence."""

    def error(self, message: str) -> NoReturn:
        print(f"lab.py: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(2)


def parser() -> Parser:
    """Returns the parser of the command line."""
    top = Parser(prog="lab.py", description="A network on one machine.")
    top.add_argument("--name", default="main", help="the name of the lab, if several are up (default: main)")
    verbs = top.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("up", help="bring a lab up; it stays until `down`")
    verb.add_argument("--nodes", type=int, default=3, help="machines beside the examiner's (default: 3)")
    verb.add_argument("--rate", default="1gbit", help="rate of each node's link, each way, or none (default: 1gbit)")
    verb.add_argument("--rtt", help="round trip added to each node's link, such as 0.3ms (default: 0)")
    verb.add_argument("--delay", help="the same, one way")
    verb.add_argument("--queue", help="bytes queued when the rate is exceeded (default: 20ms of the rate)")
    verb.add_argument("--loss", default="0%", help="share of frames lost at random, such as 0.1%% (default: 0%%)")
    verb.add_argument(
        "--link",
        action="append",
        default=[],
        metavar="N:WHAT",
        help="the link of node N, if it differs: rate=…,delay=…,queue=…,loss=… (delay is one way), "
        "spaced=yes, cross=…%%, cross-burst=…, batch=… (or batch-to=…, batch-from=…), late=…",
    )
    verb.add_argument(
        "--examiner",
        metavar="WHAT",
        help="the examiner's own link, which all nodes share: rate=1gbit,queue=256KiB (default: unlimited)",
    )
    verb.set_defaults(run=up)
    verb = verbs.add_parser("down", help="take a lab down, and end the processes in it")
    verb.set_defaults(run=down)
    verb = verbs.add_parser("sweep", help="remove the remains of labs whose process was killed")
    verb.set_defaults(run=sweep)
    verb = verbs.add_parser("enter", help="run a command, or a shell, on one of the lab's machines")
    verb.add_argument("machine", help="examiner, or a node's number")
    verb.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND")
    verb.set_defaults(run=enter)
    verb = verbs.add_parser("check", help="measure round trips and rates, and compare them with the request")
    verb.add_argument("--seconds", type=float, default=3.0, help="seconds for each rate (default: 3)")
    verb.set_defaults(run=check)
    return top


def main() -> int:
    """Entry point; exits with 1 and one sentence on failure."""
    arguments = parser().parse_args()
    try:
        return int(arguments.run(arguments))
    except LabError as error:
        print(f"lab.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
