#!/usr/bin/env python3
"""Brings a lab up and takes it down from the command line; see lab/README.md."""

import argparse
import json
import os
import sys

# The directory of this file would make `import lab` find this file.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
from lab.namespace import LabError
from lab.network import STATE_DIR, Lab


def state_path(name):
    """Where a lab that stays up is remembered."""
    return os.path.join(STATE_DIR, f"{name}.json")


def up(arguments):
    """`lab.py up`."""
    lab = Lab(arguments.nodes, arguments.rate, arguments.rtt, arguments.name, die_with_parent=False)
    lab.up()
    os.makedirs(STATE_DIR, exist_ok=True)
    with open(state_path(arguments.name), "w", encoding="utf-8") as file:
        json.dump({"nodes": arguments.nodes, "relay_pid": lab.relay_pid}, file)
    print(f"examiner  {lab.examiner_address:<12} nsenter --net={lab.examiner.path}")
    for node in lab.nodes:
        print(f"node {node.number:<4} {node.address:<12} nsenter --net={node.namespace.path}")


def down(arguments):
    """`lab.py down`."""
    try:
        with open(state_path(arguments.name), encoding="utf-8") as file:
            state = json.load(file)
    except FileNotFoundError:
        raise LabError(f"no lab named {arguments.name} is up") from None
    lab = Lab(state["nodes"], name=arguments.name)
    lab.relay_pid = state["relay_pid"]
    lab.down()
    os.remove(state_path(arguments.name))


def enter(arguments):
    """`lab.py enter examiner|N COMMAND…`."""
    lab = Lab(200, name=arguments.name)
    machine = lab.examiner if arguments.machine == "examiner" else lab.nodes[int(arguments.machine) - 1].namespace
    argv = machine.command(arguments.argv or [os.environ.get("SHELL", "sh")])
    os.execvp(argv[0], argv)


def parser():
    """The command line."""
    top = argparse.ArgumentParser(prog="lab.py", description="A network on one machine.")
    top.add_argument("--name", default="main", help="which lab, where several are up (default: main)")
    verbs = top.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("up", help="bring a lab up; it stays until `down`")
    verb.add_argument("--nodes", type=int, default=3, help="machines beside the examiner's (default: 3)")
    verb.add_argument("--rate", default="1gbit", help="of each node's link, each way, as tc has it (default: 1gbit)")
    verb.add_argument("--rtt", default="0us", help="round trip added to each node's link, such as 0.3ms (default: 0)")
    verb.set_defaults(run=up)
    verb = verbs.add_parser("down", help="take it down")
    verb.set_defaults(run=down)
    verb = verbs.add_parser("enter", help="run a command, or a shell, on one of its machines")
    verb.add_argument("machine", help="examiner, or a node's number")
    verb.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND")
    verb.set_defaults(run=enter)
    return top


def main():
    """Entry point; exit 1 with one sentence where it fails."""
    arguments = parser().parse_args()
    try:
        arguments.run(arguments)
    except LabError as error:
        print(f"lab.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
