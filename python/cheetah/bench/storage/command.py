"""The words of `cheetah bench storage`."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from cheetah.bench.failure import BenchError, Misuse
from cheetah.bench.storage import sweep, words
from cheetah.bench.storage.sample import COLD
from cheetah.bench.storage.settings import REPETITIONS, STATES, STEP_LIMIT_S, Extent, Settings
from cheetah.bench.storage.steps import steps

OUT = "cheetah-bench"
REPETITIONS_MAX = 100
_ABOUT = """Which storage makes forensic work fast: an examiner's steps with the real tools on each TARGET, timed, with the
caches under control. A TARGET is a directory on the disk, array, share or mounted drive in question, or a drive of
nodes' memory that is made for the run and destroyed after it. All that is written goes into a new directory in the
target, which is removed at the end."""
_EXAMPLES = """targets:
  /mnt/array                          a directory
  ram:stripe:64KiB@node1,node2        a drive over these nodes; LAYOUT is linear or stripe
  ram:linear:xfs@local:2              two nodes started on this machine, xfs on the drive (ext4 unless told)
  array=/mnt/array                    a target with the name it is to have in tables

examples:
  cheetah bench storage /mnt/disk /mnt/array --image case42.raw
  cheetah bench storage disk=. ram:stripe@local:3 --sweep unit=16KiB,64KiB,256KiB --sweep nodes=1,2,3
  cheetah bench storage /mnt/array --sweep fs=ext4,xfs --states cold,warm --repetitions 5

Drives, file systems and dropping all caches need root. The exit code is 0 if all was measured, 1 if something was not,
2 if the command makes no sense, 3 if a target holds evidence."""


def parse(given: Sequence[str], default_targets: Sequence[str] = ()) -> Settings:
    """The settings that a command line asks for. Misuse for what makes no sense; words that are no options of ours end
    the process with exit code 2, as does `--help` with 0."""
    options = _parser().parse_intermixed_args(list(given))
    texts = [*options.targets, *options.name] or list(default_targets)
    if not texts:
        raise Misuse("say where to measure: a directory, or a drive to make, as in ram:stripe:64KiB@node1,node2")
    for text in options.name:
        if not words.target(text)[1]:
            raise Misuse(f"--name {text}: say NAME=TARGET")
    targets, first = sweep.expand([words.target(text) for text in texts], sweep.parse(options.sweep))
    settings = Settings(
        targets=targets,
        baseline=_baseline(options.baseline, [target.name for target in targets], first),
        out=Path(os.path.abspath(options.out)),
        image=_image(options.image),
        steps=tuple(_listed("--steps", options.steps)),
        repetitions=_repetitions(options.repetitions),
        states=_states(options.states),
        extent=Extent.QUICK if options.quick else Extent.FULL if options.full else Extent.NORMAL,
        step_limit_s=words.duration(options.step_limit),
        resume=options.resume,
        beside_evidence=options.beside_evidence,
        json=options.json,
    )
    try:
        steps(settings)
    except BenchError as error:
        raise Misuse(f"--steps: {error}") from error
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cheetah bench storage", description=_ABOUT, epilog=_EXAMPLES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("targets", metavar="TARGET", nargs="*", help="a directory, or a drive to make: ram:LAYOUT[:UNIT][:FS]@NODES")
    add("--name", metavar="NAME=TARGET", action="append", default=[], help="one more target, with that name")
    add("--image", metavar="IMAGE", help="the raw image to work on, elsewhere (one is made of this machine's programs)")
    add("--baseline", metavar="NAME", help="the target that speed-ups are against (the first)")
    add("--steps", metavar="A,B,…", help="only these: copy,md5sum,strings,…; fio for the whole matrix (all)")
    add("--repetitions", metavar="N", default=str(REPETITIONS), help=f"how often each is measured ({REPETITIONS})")
    add("--states", metavar="A,B", default=COLD, help=f"what is in memory before a step: cold, warm or both ({COLD})")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="small and short: shows that it works, not how fast")
    extent.add_argument(
        "--full", action="store_true", help="the whole matrix, and a larger image if one is made: hours"
    )
    add(
        "--sweep", metavar="KEY=A,B,…", action="append", default=[],
        help="each target with each of these; KEY is unit, layout, nodes (the first so many), fs or readahead",
    )  # fmt: skip
    add(
        "--step-limit", metavar="TIME", default=f"{STEP_LIMIT_S / 3600:g}h",
        help="a step that takes longer is ended, and counts as hung (1h)",
    )  # fmt: skip
    add("--out", metavar="DIR", default=OUT, help=f"folder for the results (./{OUT})")
    add(
        "--resume",
        action="store_true",
        help="go on with the interrupted run in DIR; the rest of the command is the same",
    )
    add("--beside-evidence", action="store_true", help="measure although there is evidence, which is not touched")
    add("--json", action="store_true", help="progress and the end as JSON")
    return parser


def _baseline(asked: str | None, names: Sequence[str], first: dict[str, str]) -> str:
    if asked is None:
        return names[0]
    if asked in names:
        return asked
    # The target as it was given, where a sweep made several of it, or a directory in other words.
    for word in (asked, str(Path(asked).resolve())):
        if word in first:
            return first[word]
    raise Misuse(f"--baseline {asked}: there is no such target; there are {', '.join(names)}")


def _image(asked: str | None) -> Path | None:
    if asked is None:
        return None
    path = Path(asked)
    if not path.is_file():
        why = "is no file" if path.exists() else "there is no such file"
        raise Misuse(f"--image {asked}: {why}; name a raw image (`cheetah mount` shows others as one)")
    if path.stat().st_size == 0:
        raise Misuse(f"--image {asked}: it is empty")
    if not os.access(path, os.R_OK):
        raise Misuse(f"--image {asked} cannot be read by this user")
    return path.resolve()


def _listed(option: str, text: str | None) -> list[str]:
    if text is None:
        return []
    found = [one.strip() for one in text.split(",")]
    if not all(found):
        raise Misuse(f"{option} {text}: say them with commas between")
    return list(dict.fromkeys(found))


def _states(text: str) -> tuple[str, ...]:
    found = _listed("--states", text)
    for one in found:
        if one not in STATES:
            raise Misuse(f"--states {text}: there are {' and '.join(STATES)}")
    return tuple(one for one in STATES if one in found)


def _repetitions(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= REPETITIONS_MAX:
        raise Misuse(f"--repetitions {text}: say 1 to {REPETITIONS_MAX}")
    return int(text)
