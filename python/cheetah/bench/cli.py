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

from cheetah.bench import checkout, compare, machine, results, verbs
from cheetah.bench.checkout import Checkout, Choice
from cheetah.bench.failure import BenchError, Misuse, Refused
from cheetah.bench.gather import FAILED, MISUSED, REFUSED, Gathered, render
from cheetah.bench.results import Part
from cheetah.bench.storage.settings import Settings
from cheetah.page.visible import plain

OUT = "cheetah-bench"
LINE_CHARS_MAX = 4000
ALL = "--all"
DEFAULT_TARGETS = (".", "ram:stripe:64KiB@local:3")
_USAGE = """cheetah bench storage TARGET… [OPTIONS]     which storage makes forensic work fast
       cheetah bench PART [OPTIONS]                a part of a checkout: node, drive, transfer, triage, probe, …
       cheetah bench --all [TARGET…] [OPTIONS]     storage and every part, in one report
       cheetah bench compare A.json B.json         two runs beside each other
       cheetah bench report DIR                    renders the report of a run again

`cheetah bench storage --help` and the like say more."""
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
        return _complain(str(error), FAILED, as_json)
    except KeyboardInterrupt:
        return _complain("interrupted; everything it had started is ended", FAILED, as_json)


def _do(words: list[str]) -> int:
    first = words[0] if words else ""
    if first in ("-h", "--help"):
        print(f"usage: {_USAGE}")
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
        raise Misuse(f"say what to measure\nusage: {_USAGE}")
    return _part(first, words[1:])


def _storage(words: list[str]) -> int:
    settings = _storage_settings(words)
    gathered = Gathered(settings.out, ["cheetah", "bench", "storage", *words], _machine())
    with _kept(gathered):
        _measure_storage(gathered, settings)
    return gathered.finish(settings.json)


def _part(name: str, words: list[str]) -> int:
    from cheetah.bench.storage import safety

    parser = _parser(f"cheetah bench {name}", "A part of the project's own benchmark, measured in a checkout of it.")
    _add_part_options(parser)
    parser.add_argument("--beside-evidence", action="store_true", help="put the results into a folder with evidence")
    options, rest = parser.parse_known_args(words)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}; targets are for `cheetah bench storage`")
    safety.check_out(Settings((), "", options.out, beside_evidence=options.beside_evidence))
    measuring = Checkout(checkout.find(options.sources))
    parts = measuring.parts()
    part = parts.get(checkout.NAMES.get(name, name))
    if part is None:
        known = ", ".join([*parts, *checkout.NAMES])
        raise Misuse(f"there is no part {name} in {measuring.root}; there are storage, {known}")
    gathered = Gathered(options.out, ["cheetah", "bench", name, *words], _machine())
    with _kept(gathered):
        _measure_part(gathered, measuring, part, _choice(options))
    return gathered.finish(options.json)


def _all(words: list[str]) -> int:
    from cheetah.bench.storage import safety

    parser = _parser("cheetah bench --all", "Storage and every part, in one report; options of storage go to storage.")
    _add_part_options(parser)
    options, rest = parser.parse_known_args(words)
    flags = [f"--{name}" for name in ("quick", "full", "json") if getattr(options, name)]
    if options.rounds and not any(word.startswith("--repetitions") for word in rest):
        flags += ["--repetitions", str(options.rounds)]
    settings = _storage_settings([*rest, "--out", str(options.out), *flags], DEFAULT_TARGETS)
    safety.check_out(settings)
    gathered = Gathered(options.out, ["cheetah", "bench", ALL, *words], _machine())
    with _kept(gathered):
        try:
            _measure_storage(gathered, settings)
        except (BenchError, OSError) as error:
            gathered.failed(_STORAGE, str(error), REFUSED if isinstance(error, Refused) else FAILED)
        _measure_parts(gathered, options)
    return gathered.finish(options.json)


def _storage_settings(words: list[str], default_targets: Sequence[str] = ()) -> Settings:
    """What storage is to be measured, and how; Misuse where that makes no sense, before anything is done."""
    from cheetah.bench.storage import command, journal

    settings = command.parse(words, default_targets)
    if not settings.resume and journal.remembered(settings.out):
        raise Misuse(
            f"{settings.out} has the samples of an earlier run: go on with it with --resume, or name another --out"
        )
    return settings


def _measure_storage(gathered: Gathered, settings: Settings) -> None:
    from cheetah.bench.storage import prepare, progress, run
    from cheetah.bench.storage.steps import steps

    with progress.shown(settings.json) as tell:
        prepared = prepare.prepare(settings, lambda sentence: tell(progress.Event("note", said=sentence)))
        # Asked now: whatever becomes of the image meanwhile, there are results.
        image = {"image": str(prepared.image), "image_bytes": prepared.image.stat().st_size}
        code, part = run.run(settings, tell, prepared.targets, steps(settings), prepared.image, prepared.need_bytes)
    interrupted = run.GO_ON in part["warnings"]
    part["warnings"] = [*prepared.warnings, *part["warnings"]]
    part["settings"] = {**settings.binding(), **image}
    gathered.add({**part, "problem": run.GO_ON} if interrupted else part, code=code)
    if interrupted:
        raise KeyboardInterrupt


def _measure_parts(gathered: Gathered, options: argparse.Namespace) -> None:
    """Every part but storage, which has been measured; one that fails does not keep the others from being."""
    try:
        measuring = Checkout(checkout.find(options.sources))
        parts = [part for part in measuring.parts().values() if part["part"] != _STORAGE["part"]]
    except BenchError as error:
        gathered.failed(_SOURCES, str(error))
        return
    gathered.forget(_SOURCES["part"])
    for index, part in enumerate(parts):
        try:
            _measure_part(gathered, measuring, part, _choice(options))
        except KeyboardInterrupt:
            for later in parts[index + 1 :]:
                gathered.failed(later, "interrupted before it was its turn")
            raise


def _measure_part(gathered: Gathered, measuring: Checkout, part: Part, choice: Choice) -> None:
    """Measures a part, or notes why it was not."""
    print(f"{part['part']}: {part['title']}, as {measuring.root / checkout.RUN} measures it", file=sys.stderr)
    try:
        measured, described = measuring.measure(part, choice, sys.stderr)
        gathered.add(measured, described)
    except BenchError as error:
        gathered.failed(part, str(error))
    except KeyboardInterrupt:
        gathered.failed(part, "interrupted")
        raise


@contextlib.contextmanager
def _kept(gathered: Gathered) -> Iterator[None]:
    """An interrupted run ends here: what it has is shown as that of others is."""
    try:
        yield
    except KeyboardInterrupt:
        gathered.interrupted()


def _compare(words: list[str]) -> int:
    parser = _parser("cheetah bench compare", "Two runs beside each other: what became faster, what slower.")
    parser.add_argument("a", metavar="A.json", type=Path, help="a results.json, or the folder of a run")
    parser.add_argument("b", metavar="B.json", type=Path, help="the one that is held against it")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(words)
    found = compare.compare(results.read(options.a), results.read(options.b))
    if options.json:
        print(json.dumps({"a": str(options.a), "b": str(options.b), **found.to_json()}))
    else:
        from cheetah.bench import table

        print(f"A  {options.a}\nB  {options.b}\n")
        table.draw([found.sheet()])
    return 0


def _report(words: list[str]) -> int:
    parser = _parser("cheetah bench report", "Renders report.html and results.csv of a run again.")
    parser.add_argument("out", metavar="DIR", type=Path, help="the folder of the run")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(words)
    found = results.read(options.out)
    out = options.out if options.out.is_dir() else options.out.parent
    results.write_csv(out, found)
    path = render(found, out)
    print(json.dumps({"report": str(path)}) if options.json else path)
    return 0


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=name, description=about, allow_abbrev=False)


def _add_part_options(parser: argparse.ArgumentParser) -> None:
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="short and small: shows that it works, not how fast")
    extent.add_argument("--full", action="store_true", help="every cell of what is otherwise a selection: hours")
    parser.add_argument("--rounds", metavar="N", type=_count, help="times each is measured (5; quick 3)")
    parser.add_argument("--sources", metavar="DIR", type=Path, help="the checkout of Cheetah to measure with")
    parser.add_argument(
        "--out", metavar="DIR", type=_folder, default=_folder(OUT), help=f"folder for the results ({OUT})"
    )
    parser.add_argument("--json", action="store_true", help="the end as JSON")


def _choice(options: argparse.Namespace) -> Choice:
    return Choice(quick=options.quick, full=options.full, rounds=options.rounds)


def _folder(text: str) -> Path:
    return Path(os.path.abspath(text))


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is no number of rounds")
    return int(text)


def _machine() -> dict[str, str]:
    """The description of this machine, and of the program that makes drives here, where there is one."""
    try:
        return machine.describe([("cheetah", [verbs.binary(), "--version"])])
    except BenchError:
        return machine.describe()


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _complain(sentence: str, code: int, as_json: bool) -> int:
    for line in f"error: {sentence}".splitlines():
        text = line.strip(" ")
        print(" " * line.index(text) + plain(text, LINE_CHARS_MAX), file=sys.stderr)
    if as_json:
        print(json.dumps({"error": sentence, "exit_code": code}))
    return code
