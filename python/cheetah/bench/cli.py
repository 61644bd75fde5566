"""The command line of `cheetah bench`."""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from cheetah import options
from cheetah.bench import compare, machine, results, verbs
from cheetah.bench.failure import BenchError, Misuse, Refused
from cheetah.bench.gather import FAILED, MISUSED, REFUSED, ResultCollector, render
from cheetah.bench.storage.settings import Settings
from cheetah.error import Error
from cheetah.page.visible import plain
from cheetah.path_text import to_text

PACKAGE = "cheetah.bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, compares or renders; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _do(words)
    except Misuse as error:
        return options.fail(str(error), MISUSED, as_json)
    except Refused as error:
        return options.fail(str(error), REFUSED, as_json)
    except (BenchError, OSError) as error:
        code = error.exit_code if isinstance(error, Error) else FAILED
        return options.fail(options.sentence(error), code, as_json, error)
    except KeyboardInterrupt:
        return options.fail("interrupted; all that the run had started has been stopped", FAILED, as_json)


def _do(words: list[str]) -> int:
    first = words[0] if words else ""
    if first in ("-h", "--help"):
        print(options.page(PACKAGE), end="")
        return 0
    if not first or first.startswith("-"):
        raise Misuse(f"name what to measure, for instance storage and a target\n\n{options.usage(PACKAGE)}")
    if first not in _VERBS:
        tip = options.similar("part", first, _VERBS) or f"there are {', '.join(_VERBS)}"
        raise Misuse(f"there is no part '{first}'; {tip}; a checkout of the sources has more, for make bench")
    return _VERBS[first](words[1:])


def _storage(words: list[str]) -> int:
    settings = _storage_settings(words)
    gathered = ResultCollector(settings.out, ["cheetah", "bench", "storage", *words], _machine())
    with _kept(gathered):
        _measure_storage(gathered, settings)
    return gathered.finish(settings.json)


def _storage_settings(words: list[str]) -> Settings:
    """Returns the settings for storage. Raises Misuse if they make no sense, before anything is done."""
    from cheetah.bench.storage.options import command
    from cheetah.bench.storage.run import journal

    settings = command.parse(words)
    if not settings.resume and journal.remembered(settings.out):
        raise Misuse(
            f"{settings.out} has the samples of an earlier run: add --resume to continue it, or name another --out"
        )
    return settings


def _measure_storage(gathered: ResultCollector, settings: Settings) -> None:
    from cheetah.bench.storage.run import prepare, progress, runner
    from cheetah.bench.storage.steps import steps

    with progress.shown(settings.json) as tell:
        prepared = prepare.prepare(settings, lambda sentence: tell(progress.Event("note", said=sentence)))
        # Asked now: if the image vanishes later, there are results nevertheless.
        image = {"image": str(prepared.image), "image_bytes": prepared.image.stat().st_size}
        code, part = runner.run(settings, tell, prepared.targets, steps(settings), prepared.image, prepared.need_bytes)
    interrupted = runner.GO_ON in part["warnings"]
    part["warnings"] = [*prepared.warnings, *part["warnings"]]
    part["settings"] = {**settings.binding(), **image}
    gathered.add({**part, "problem": runner.GO_ON} if interrupted else part, code=code)
    if interrupted:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _kept(gathered: ResultCollector) -> Iterator[None]:
    """Ends an interrupted run here; its results are shown like those of others."""
    try:
        yield
    except KeyboardInterrupt:
        gathered.interrupted()


def _compare(words: list[str]) -> int:
    parser = _parser("cheetah bench compare")
    parser.add_argument("a", metavar="A.json", type=Path)
    parser.add_argument("b", metavar="B.json", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse(words)
    found = compare.compare(results.read(given.a), results.read(given.b))
    if given.json:
        print(json.dumps({"a": to_text(given.a), "b": to_text(given.b), **found.to_json()}))
    else:
        from cheetah.bench import table

        print(f"A  {plain(str(given.a))}\nB  {plain(str(given.b))}\n")
        table.draw([found.sheet()])
    return 0


def _report(words: list[str]) -> int:
    parser = _parser("cheetah bench report")
    parser.add_argument("out", metavar="DIR", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse(words)
    found = results.read(given.out)
    out = given.out if given.out.is_dir() else given.out.parent
    results.write_csv(out, found)
    path = render(found, out)
    print(json.dumps({"report": to_text(path)}) if given.json else to_text(path))
    return 0


def _parser(name: str) -> options.Parser:
    return options.Parser(PACKAGE, name)


_VERBS = {"storage": _storage, "compare": _compare, "report": _report}


def _machine() -> dict[str, str]:
    """Returns the description of this machine, and of the program that creates drives, if there is one."""
    try:
        return machine.describe([("cheetah", [verbs.binary(), "--version"])])
    except BenchError:
        return machine.describe()


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
