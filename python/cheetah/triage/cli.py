"""The command line of `cheetah triage`."""

import argparse
import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from cheetah import options, path_text, sizes
from cheetah.error import Error
from cheetah.open_options import absolute_source
from cheetah.triage.settings import CASE, HASHES, LISTS, MAX_FILE_BYTES, Settings

if TYPE_CHECKING:
    from cheetah.triage.reading.shared_source import SharedSource

FAILED, MISUSED = 1, 2
SECTOR_SIZES = (512, 1024, 2048, 4096)
NO_HASH = "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a triage; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    settings = parse(words)
    signal.signal(signal.SIGTERM, _interrupt)
    # Imports take a while, above all with cold caches. Meanwhile the workers import theirs, and the source is opened.
    if settings.scheduler is None:
        from cheetah.triage.workers import pool

        pool.prepare()
    from cheetah.triage.reading import shared_source

    with shared_source.opening(settings) as opened:
        return _triage(settings, words, opened)


def _triage(settings: Settings, words: Sequence[str], opened: "Callable[[], SharedSource]") -> int:
    """Runs the triage of a source that is being opened."""
    from cheetah.triage.content import analysis
    from cheetah.triage.hub import progress, space
    from cheetah.triage.hub.folder import Misuse
    from cheetah.triage.hub.run import Run

    try:
        with progress.shown(json_lines=settings.json) as tell:
            try:
                analysis.prepare(settings, progress.of_lists(tell))
            except ValueError as error:
                raise Misuse(str(error)) from error
            command = ["cheetah", "triage", *map(path_text.typed_to_text, words)]
            code, summary = Run(settings, tell, command, opened).go()
    except Misuse as error:
        return options.fail(str(error), MISUSED, settings.json)
    except KeyboardInterrupt:
        return options.fail("interrupted; the same command resumes the run", FAILED, settings.json)
    except OSError as error:
        code = error.exit_code if isinstance(error, Error) else FAILED
        again = f"; {space.AGAIN}" if error.errno == errno.ENOSPC else ""
        return options.fail(f"{options.sentence(error)}{again}", code, settings.json, error)
    if settings.json:
        print(json.dumps(summary))
    else:
        print(path_text.to_text(os.path.join(settings.out, "report.html")))
    if not summary["complete"]:
        why = "interrupted" if code == FAILED else f"stopped: {summary['problems'][0]['sentence']}"
        again = f"{why}; the same command resumes the run, and {settings.out} holds what was found so far"
        return options.fail(again, code, settings.json)
    if code and settings.json:
        # The report says so to people.
        options.answer("not all could be read; the summary names the problems and the gaps", code)
    return code


def parse(words: Sequence[str]) -> Settings:
    """Returns the settings of a command line; ends the process with exit code 2 where it makes no sense."""
    given = _parser().parse(words)
    lists = {kind: tuple(map(_absolute, getattr(given, kind))) for kind in LISTS}
    for kind, paths in lists.items():
        for typed, path in zip(getattr(given, kind), paths, strict=True):
            if not os.path.isfile(path):
                _misuse(f"--{kind} {typed}: there is no such file", given.json)
    for typed in given.unlock:
        if not os.path.exists(_absolute(typed)):
            _misuse(f"--unlock {typed}: there is no such file", given.json)
    if given.at_nodes and not given.yara:
        _misuse("--at-nodes: it is for YARA rules; give some with --yara", given.json)
    if given.lend_key and not given.at_nodes:
        _misuse("--lend-key: nodes are lent the key to search; give --at-nodes", given.json)
    if given.lend_key and given.unlock:
        _misuse("--lend-key and --unlock: nodes do not search opened volumes; leave one out", given.json)
    if given.unlock and given.scheduler:
        _misuse(
            "--unlock and --scheduler: keys stay on this machine, whose workers do the work; leave one out", given.json
        )
    if given.beside and given.scheduler:
        _misuse(
            "--with and --scheduler: volumes over several sources are put together on this machine; leave one out",
            given.json,
        )
    if given.shadow_copy and given.scheduler:
        _misuse("--shadow-copy and --scheduler: shadow copies are read on this machine; leave one out", given.json)
    return Settings(
        source=absolute_source(given.source),
        out=_absolute(given.out),
        quick=given.quick,
        workers=given.workers,
        scheduler=given.scheduler,
        **lists,
        hashes=given.hash,
        max_file=given.max_file,
        unallocated=not given.no_unallocated,
        unlock=tuple(map(_absolute, given.unlock)),
        beside=tuple(map(absolute_source, given.beside)),
        shadow_copies=tuple(given.shadow_copy),
        sector_size=given.sector_size,
        case=tuple((name, path_text.typed_to_text(text)) for name in CASE if (text := getattr(given, name))),
        at_nodes=given.at_nodes,
        lend_key=tuple(given.lend_key),
        fresh=given.fresh,
        json=given.json,
    )


def _absolute(typed: str) -> str:
    return os.path.abspath(path_text.to_path(typed))


def _parser() -> options.Parser:
    parser = options.Parser("cheetah.triage", "cheetah triage")
    add = parser.add_argument
    add("source", metavar="SOURCE")
    add("--out", metavar="DIR", required=True)
    add("--quick", action="store_true")
    add("--workers", metavar="N", type=_count, default=0)
    add("--scheduler", metavar="URI")
    for kind in LISTS:
        add(f"--{kind}", metavar="FILE", action="append", default=[])
    add("--at-nodes", action="store_true")
    add("--lend-key", metavar="NODE,…|all", type=lambda text: text.split(","), default=[])
    add("--hash", metavar="LIST", type=_hashes, default=HASHES)
    add("--max-file", metavar="SIZE", type=_size, default=MAX_FILE_BYTES)
    add("--no-unallocated", action="store_true")
    add("--unlock", metavar="KEY-FILE", action="append", default=[])
    add("--with", metavar="SOURCE", action="append", default=[], dest="beside")
    add("--shadow-copy", metavar="NAME|all", action="append", default=[])
    add("--sector-size", metavar="BYTES", type=_sector_size)
    for name in CASE:
        add(f"--{name.replace('_', '-')}", metavar="TEXT")
    add("--fresh", action="store_true")
    add("--json", action="store_true")
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers: write 1 to 1024")
    return int(text)


def _hashes(text: str) -> tuple[str, ...]:
    if text == NO_HASH:
        return ()
    requested = text.split(",")
    if not requested or any(one not in HASHES for one in requested):
        raise argparse.ArgumentTypeError(f"{text!r}: write some of {','.join(HASHES)}, or {NO_HASH}")
    return tuple(one for one in HASHES if one in requested)


def _size(text: str) -> int:
    try:
        size = sizes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if size == 0:
        raise argparse.ArgumentTypeError(f"{text!r} would read nothing: write 100MiB or 4GiB")
    return size


def _sector_size(text: str) -> int:
    if text not in map(str, SECTOR_SIZES):
        raise argparse.ArgumentTypeError(f"{text!r} is not the size of a sector: write 512, 1024, 2048 or 4096")
    return int(text)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _misuse(sentence: str, as_json: bool) -> NoReturn:
    sys.exit(options.fail(sentence, MISUSED, as_json))
