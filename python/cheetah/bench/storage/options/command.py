"""The command line of `cheetah bench storage`."""

import os
from collections.abc import Sequence
from pathlib import Path

from cheetah import options
from cheetah.bench.failure import BenchError, Misuse
from cheetah.bench.storage.options import sweep, syntax
from cheetah.bench.storage.sample import COLD
from cheetah.bench.storage.settings import REPETITIONS, STATES, STEP_LIMIT_S, Scope, Settings
from cheetah.bench.storage.steps import steps

OUT = "cheetah-bench"
REPETITIONS_MAX = 100


def parse(command_line: Sequence[str]) -> Settings:
    """Returns the settings of a command line. Raises Misuse if they make no sense; an unknown option ends the process
    with exit code 2, `--help` with 0."""
    given = _parser().parse(command_line, intermixed=True)
    texts = [*given.targets, *given.name]
    if not texts:
        raise Misuse("name a directory to measure, or a drive to create, such as ram:stripe:64KiB@node1,node2")
    for text in given.name:
        if not syntax.target(text)[1]:
            raise Misuse(f"--name {text}: say NAME=TARGET")
    targets, first = sweep.expand([syntax.target(text) for text in texts], sweep.parse(given.sweep))
    settings = Settings(
        targets=targets,
        baseline=_baseline(given.baseline, [target.name for target in targets], first),
        out=Path(os.path.abspath(given.out)),
        image=_image(given.image),
        steps=tuple(_listed("--steps", given.steps)),
        repetitions=_repetitions(given.repetitions or str(1 if given.quick else REPETITIONS)),
        states=_states(given.states),
        extent=Scope.QUICK if given.quick else Scope.FULL if given.full else Scope.NORMAL,
        step_limit_s=syntax.duration(given.step_limit),
        resume=given.resume,
        beside_evidence=given.beside_evidence,
        json=given.json,
    )
    try:
        steps(settings)
    except BenchError as error:
        raise Misuse(f"--steps: {error}") from error
    return settings


def _parser() -> options.Parser:
    parser = options.Parser("cheetah.bench", "cheetah bench storage")
    add = parser.add_argument
    add("targets", metavar="TARGET", nargs="*")
    add("--name", metavar="NAME=TARGET", action="append", default=[])
    add("--image", metavar="IMAGE")
    add("--baseline", metavar="NAME")
    add("--steps", metavar="LIST")
    add("--repetitions", metavar="N")
    add("--states", metavar="LIST", default=COLD)
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true")
    extent.add_argument("--full", action="store_true")
    add("--sweep", metavar="KEY=A,B,…", action="append", default=[])
    add("--step-limit", metavar="TIME", default=f"{STEP_LIMIT_S / 3600:g}h")
    add("--out", metavar="DIR", default=OUT)
    add("--resume", action="store_true")
    add("--beside-evidence", action="store_true")
    add("--json", action="store_true")
    return parser


def _baseline(given: str | None, names: Sequence[str], first: dict[str, str]) -> str:
    if given is None:
        return names[0]
    if given in names:
        return given
    # The target as given, if a sweep made several of it; or a directory under another path.
    for word in (given, str(Path(given).resolve())):
        if word in first:
            return first[word]
    raise Misuse(f"--baseline {given}: there is no such target; there are {', '.join(names)}")


def _image(given: str | None) -> Path | None:
    if given is None:
        return None
    path = Path(given)
    if not path.is_file():
        why = "is not a file" if path.exists() else "there is no such file"
        raise Misuse(f"--image {given}: {why}; name a raw image (`cheetah mount` presents other formats as one)")
    if path.stat().st_size == 0:
        raise Misuse(f"--image {given}: it is empty")
    if not os.access(path, os.R_OK):
        raise Misuse(f"--image {given} cannot be read by this user")
    return path.resolve()


def _listed(option: str, text: str | None) -> list[str]:
    if text is None:
        return []
    found = [one.strip() for one in text.split(",")]
    if not all(found):
        raise Misuse(f"{option} {text}: separate values by commas")
    return list(dict.fromkeys(found))


def _states(text: str) -> tuple[str, ...]:
    found = _listed("--states", text)
    for one in found:
        if one not in STATES:
            raise Misuse(f"--states {text}: write {', '.join(STATES)}, or both")
    return tuple(one for one in STATES if one in found)


def _repetitions(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= REPETITIONS_MAX:
        raise Misuse(f"--repetitions {text}: say 1 to {REPETITIONS_MAX}")
    return int(text)
