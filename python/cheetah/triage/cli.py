"""The command line of `cheetah triage`."""

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from cheetah import sizes
from cheetah.triage.settings import HASHES, MAX_FILE_BYTES, Settings

if TYPE_CHECKING:
    from cheetah.triage.hub import Hub

_LISTS = (
    ("known", "hash list of files to set aside: one hash a line, NSRL, or sorted binary"),
    ("wanted", "hash list of files to look for"),
    ("keywords", "words to look for in contents and names, one a line"),
    ("yara", "YARA rules"),
)
FAILED, MISUSED = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a triage; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    settings = parse(words)
    signal.signal(signal.SIGTERM, _interrupt)
    # What is imported takes a while, most of all when it is not in memory yet. Meanwhile workers import theirs, and
    # the source is opened.
    if settings.scheduler is None:
        from cheetah.triage import pool

        pool.prepare()
    from cheetah.triage import hub

    with hub.opening(settings) as opened:
        return _triage(settings, words, opened)


def _triage(settings: Settings, words: Sequence[str], opened: "Callable[[], Hub]") -> int:
    """The triage of a source that is being opened."""
    from cheetah.triage import content, progress
    from cheetah.triage.folder import Misuse
    from cheetah.triage.run import Run

    try:
        with progress.shown(json_lines=settings.json) as tell:
            try:
                content.prepare(settings, progress.of_lists(tell))
            except ValueError as error:
                raise Misuse(str(error)) from error
            code, summary = Run(settings, tell, ["cheetah", "triage", *words], opened).go()
    except Misuse as error:
        return _complain(str(error), MISUSED, settings.json)
    except KeyboardInterrupt:
        return _complain("interrupted; the same command goes on where it stopped", FAILED, settings.json)
    except OSError as error:
        return _complain(str(error), FAILED, settings.json)
    if settings.json:
        print(json.dumps(summary))
    else:
        print(os.path.join(settings.out, "report.html"))
    if not summary["complete"]:
        why = "interrupted" if code == FAILED else f"stopped: {summary['problems'][0]['sentence']}"
        return _complain(f"{why}; the same command goes on, and {settings.out} holds what there is", code, False)
    return code


def parse(words: Sequence[str]) -> Settings:
    """The settings that a command line asks for; one that makes no sense ends the process with exit code 2."""
    parser = _parser()
    options = parser.parse_args(words)
    for kind, _ in _LISTS:
        for path in getattr(options, kind):
            if not os.path.isfile(path):
                _misuse(f"--{kind} {path}: there is no such file", options.json)
    return Settings(
        source=options.source if re.match(r"[a-z+]+://", options.source) else os.path.abspath(options.source),
        out=os.path.abspath(options.out),
        quick=options.quick,
        workers=options.workers,
        scheduler=options.scheduler,
        **{kind: tuple(os.path.abspath(path) for path in getattr(options, kind)) for kind, _ in _LISTS},
        hashes=options.hash,
        max_file=options.max_file,
        unallocated=not options.no_unallocated,
        fresh=options.fresh,
        json=options.json,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cheetah triage", description="What is on a source, what to look at first, and why.",
        epilog="The same command goes on where an earlier one was interrupted.",
    )  # fmt: skip
    parser.add_argument("source", metavar="SOURCE", help="a drive, an image, a disk, or an nbd:// or iscsi:// URI")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the result")
    parser.add_argument("--quick", action="store_true", help="list everything, but read only the files ranked highest")
    parser.add_argument(
        "--workers", metavar="N", type=_count, default=0, help="worker processes (one for each processor)"
    )
    parser.add_argument("--scheduler", metavar="tcp://…", help="a Dask scheduler, whose workers do the work instead")
    for kind, help_text in _LISTS:
        parser.add_argument(
            f"--{kind}", metavar="FILE", action="append", default=[], help=f"{help_text}; may be repeated"
        )
    parser.add_argument("--hash", metavar="LIST", type=_hashes, default=HASHES, help="md5,sha1,sha256 (all of them)")
    parser.add_argument(
        "--max-file",
        metavar="SIZE",
        type=_size,
        default=MAX_FILE_BYTES,
        help="of a larger file only so much is read (1GiB)",
    )
    parser.add_argument("--no-unallocated", action="store_true", help="do not search what belongs to no file")
    parser.add_argument(
        "--fresh", action="store_true", help="start over, and throw away what DIR holds of an earlier run"
    )
    parser.add_argument("--json", action="store_true", help="progress and summary as JSON, a line each")
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text} is no number of workers")
    return int(text)


def _hashes(text: str) -> tuple[str, ...]:
    asked = text.split(",")
    if not asked or any(one not in HASHES for one in asked):
        raise argparse.ArgumentTypeError(f"{text}: what there is is {', '.join(HASHES)}")
    return tuple(one for one in HASHES if one in asked)


def _size(text: str) -> int:
    try:
        size = sizes.parse(text)
    except ValueError:
        size = 0
    if size == 0:
        raise argparse.ArgumentTypeError(f"{text} is no size; say 100MiB, or 4GiB")
    return size


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _misuse(sentence: str, as_json: bool) -> NoReturn:
    sys.exit(_complain(sentence, MISUSED, as_json))


def _complain(sentence: str, code: int, as_json: bool) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": sentence, "exit_code": code}))
    return code
