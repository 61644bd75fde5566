"""The command line of `cheetah run`."""

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import cheetah
from cheetah import options, path_text, placing
from cheetah.error import Error
from cheetah.open_options import absolute_source
from cheetah.run.hub import Hub, Misuse, Outcome
from cheetah.run.parts import PARTS_MAX
from cheetah.run.source import Source
from cheetah.run.unpack import LEFT_OUT
from cheetah.run.workers import Cluster, Here, Workers

FAILED, MISUSED = 1, 2
PACKAGE = "cheetah.run"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a program on all parts; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # A --json of the program is not ours.
    own, command = divided(words)
    given = _parser().parse(own)
    if not command:
        return options.fail("say which program to run, after --", MISUSED, given.json)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(given, tuple(command))
    except Misuse as error:
        return options.fail(str(error), MISUSED, given.json)
    except KeyboardInterrupt:
        return options.fail("interrupted; the same command runs what is missing", FAILED, given.json)
    except OSError as error:
        code = error.exit_code if isinstance(error, Error) else FAILED
        return options.fail(options.sentence(error), code, given.json, error)


def divided(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the words of this verb, and the program with its arguments: those after the first --."""
    if "--" not in words:
        return list(words), []
    at = words.index("--")
    return list(words[:at]), list(words[at + 1 :])


def _run(given: argparse.Namespace, command: tuple[str, ...]) -> int:
    name = absolute_source(given.source)
    with cheetah.open(name) as device:
        source = Source.of(name, device.size, device.pread)
        doubts = [*device.lost, *device.doubts]
        held = placing.parts_of(device) if given.scheduler else []
    # A program may go on where it cannot read, and end well.
    for doubt in doubts:
        options.warn(doubt)
    workers: Workers = Cluster(given.scheduler, held) if given.scheduler else Here(given.workers)
    out = os.path.abspath(path_text.to_path(given.out))
    hub = Hub(source, command, out, given.parts, workers.count, doubts=doubts)
    for doubt in hub.doubts:
        if doubt not in doubts:
            options.warn(f"when parts that are done were run, {doubt}")

    def tell(outcome: Outcome) -> None:
        if given.json:
            print(json.dumps({"event": "part", **_shown(outcome)}), flush=True)
        else:
            how = outcome.problem or "done"
            if outcome.left_out:
                how += f"; {outcome.left_out} links or special files left out ({LEFT_OUT})"
            where = f" at {outcome.host}" if outcome.host else ""
            print(f"part {outcome.number}{where}: {how} ({outcome.seconds:.1f} s)", flush=True)

    outcomes = hub.go(workers, tell)
    failed = [outcome.number for outcome in outcomes if not outcome.is_done]
    if given.json:
        placed = {"placement": dataclasses.asdict(workers.placement)} if workers.placement is not None else {}
        print(json.dumps({"out": path_text.to_text(out), "parts": len(outcomes), "failed": failed, **placed}))
    else:
        print(path_text.to_text(out))
    if not failed:
        return 0
    numbers = ", ".join(map(str, failed))
    sentence = f"{len(failed)} of {len(outcomes)} parts failed ({numbers}); the same command runs them again"
    return options.fail(sentence, FAILED, given.json)


def _shown(outcome: Outcome) -> dict[str, object]:
    return {
        "number": outcome.number,
        "begin": outcome.begin,
        "end": outcome.end,
        "host": outcome.host,
        "exit_code": outcome.exit_code,
        "seconds": outcome.seconds,
        "problem": outcome.problem,
        "left_out": outcome.left_out,
    }


def _parser() -> options.Parser:
    parser = options.Parser(PACKAGE, "cheetah run")
    add = parser.add_argument
    add("source", metavar="SOURCE")
    add("--out", metavar="DIR", required=True)
    add("--scheduler", metavar="URI")
    add("--parts", metavar="N", type=_count(PARTS_MAX), default=0)
    add("--workers", metavar="N", type=_count(1024), default=0)
    add("--json", action="store_true")
    return parser


def _count(most: int) -> Callable[[str], int]:
    """Returns the parser of a number from 1 on."""

    def parse(text: str) -> int:
        if not text.isdigit() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no such number: write 1 to {most}")
        return int(text)

    return parse


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
