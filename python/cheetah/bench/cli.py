"""The command line of `cheetah bench`."""

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from cheetah import options
from cheetah.bench import checkout, compare, machine, results, verbs
from cheetah.bench.checkout import Checkout, Choice
from cheetah.bench.failure import BenchError, Misuse, Refused
from cheetah.bench.gather import FAILED, MISUSED, REFUSED, ResultCollector, render
from cheetah.bench.results import Part
from cheetah.bench.storage.settings import Settings
from cheetah.page.visible import plain
from cheetah.path_text import to_text

OUT = "cheetah-bench"
ALL = "--all"
DEFAULT_TARGETS = (".", "ram:stripe:64KiB@local:3")
PACKAGE = "cheetah.bench"
VERBS = ("storage", "compare", "report")
_STORAGE: Part = {"part": "storage", "title": "Storage"}
_SOURCES: Part = {"part": "sources", "title": "What is measured with a checkout"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, compares or renders; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _do(words)
    except Misuse as error:
        return _complain(str(error), MISUSED, as_json)
    except Refused as error:
        return _complain(str(error), REFUSED, as_json)
    except (BenchError, OSError) as error:
        return _complain(options.sentence(error), FAILED, as_json)
    except KeyboardInterrupt:
        return _complain("interrupted; all that the run had started has been stopped", FAILED, as_json)


def _do(words: list[str]) -> int:
    first = words[0] if words else ""
    if first in ("-h", "--help"):
        print(options.page(PACKAGE), end="")
        return 0
    if ALL in words:
        return _all([word for word in words if word != ALL])
    if first == "storage":
        return _storage(words[1:])
    if first == "compare":
        return _compare(words[1:])
    if first == "report":
        return _report(words[1:])
    if not first or first.startswith("-"):
        raise Misuse(f"name what to measure, for instance storage and a target\n\n{options.usage(PACKAGE)}")
    return _part(first, words[1:])


def _storage(words: list[str]) -> int:
    settings = _storage_settings(words)
    gathered = ResultCollector(settings.out, ["cheetah", "bench", "storage", *words], _machine())
    with _kept(gathered):
        _measure_storage(gathered, settings)
    return gathered.finish(settings.json)


def _part(name: str, words: list[str]) -> int:
    from cheetah.bench.storage.run import safety

    parser = _parser(f"cheetah bench {name}")
    _add_part_options(parser)
    parser.add_argument("--beside-evidence", action="store_true")
    given, unknown = parser.parse_known(words)
    measuring = Checkout(checkout.find(given.sources))
    part = _known(name, measuring)
    if unknown:
        parser.unexpected(unknown[0])
    safety.check_out(Settings((), "", given.out, beside_evidence=given.beside_evidence))
    gathered = ResultCollector(given.out, ["cheetah", "bench", name, *words], _machine())
    with _kept(gathered):
        _measure_part(gathered, measuring, part, _choice(given))
    return gathered.finish(given.json)


def _known(name: str, measuring: Checkout) -> Part:
    """Returns the part of that name. Misuse where there is none."""
    parts = measuring.parts()
    part = parts.get(checkout.NAMES.get(name, name))
    if part is None:
        known = [*VERBS, *parts, *checkout.NAMES]
        tip = options.similar("part", name, known) or f"there are {', '.join(dict.fromkeys(known))}"
        raise Misuse(f"there is no part '{name}'; {tip}")
    return part


def _all(words: list[str]) -> int:
    from cheetah.bench.storage.run import safety

    parser = _parser("cheetah bench --all")
    _add_part_options(parser)
    given, rest = parser.parse_known(words)
    flags = [f"--{name}" for name in ("quick", "full", "json") if getattr(given, name)]
    if given.rounds and not any(word.startswith("--repetitions") for word in rest):
        flags += ["--repetitions", str(given.rounds)]
    settings = _storage_settings([*rest, "--out", str(given.out), *flags], DEFAULT_TARGETS)
    safety.check_out(settings)
    gathered = ResultCollector(given.out, ["cheetah", "bench", ALL, *words], _machine())
    with _kept(gathered):
        try:
            _measure_storage(gathered, settings)
        except (BenchError, OSError) as error:
            gathered.failed(_STORAGE, str(error), REFUSED if isinstance(error, Refused) else FAILED)
        _measure_parts(gathered, given)
    return gathered.finish(given.json)


def _storage_settings(words: list[str], default_targets: Sequence[str] = ()) -> Settings:
    """Returns the settings for storage. Raises Misuse if they make no sense, before anything is done."""
    from cheetah.bench.storage.options import command
    from cheetah.bench.storage.run import journal

    settings = command.parse(words, default_targets)
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


def _measure_parts(gathered: ResultCollector, given: argparse.Namespace) -> None:
    """Measures every part but storage, which has been measured; a failing part does not stop the others."""
    try:
        measuring = Checkout(checkout.find(given.sources))
        parts = [part for part in measuring.parts().values() if part["part"] != _STORAGE["part"]]
    except BenchError as error:
        gathered.failed(_SOURCES, str(error))
        return
    gathered.forget(_SOURCES["part"])
    for index, part in enumerate(parts):
        try:
            _measure_part(gathered, measuring, part, _choice(given))
        except KeyboardInterrupt:
            for later in parts[index + 1 :]:
                gathered.failed(later, "interrupted before its turn")
            raise


def _measure_part(gathered: ResultCollector, measuring: Checkout, part: Part, choice: Choice) -> None:
    """Measures a part, or records why it was not measured."""
    print(f"{part['part']}: {part['title']}, measured by {measuring.root / checkout.RUN}", file=sys.stderr)
    try:
        measured, described = measuring.measure(part, choice, sys.stderr)
        gathered.add(measured, described)
    except BenchError as error:
        gathered.failed(part, str(error))
    except KeyboardInterrupt:
        gathered.failed(part, "interrupted")
        raise


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


def _add_part_options(parser: options.Parser) -> None:
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true")
    extent.add_argument("--full", action="store_true")
    parser.add_argument("--rounds", metavar="N", type=_count)
    parser.add_argument("--sources", metavar="DIR", type=Path)
    parser.add_argument("--out", metavar="DIR", type=_folder, default=_folder(OUT))
    parser.add_argument("--json", action="store_true")


def _choice(given: argparse.Namespace) -> Choice:
    return Choice(quick=given.quick, full=given.full, rounds=given.rounds)


def _folder(text: str) -> Path:
    return Path(os.path.abspath(text))


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds: write 1 to 1000")
    return int(text)


def _machine() -> dict[str, str]:
    """Returns the description of this machine, and of the program that creates drives, if there is one."""
    try:
        return machine.describe([("cheetah", [verbs.binary(), "--version"])])
    except BenchError:
        return machine.describe()


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _complain(sentence: str, code: int, as_json: bool) -> int:
    options.complain(sentence)
    if as_json:
        options.answer(sentence, code)
    return code
