"""The results of a run: results.json, which is complete, and results.csv, with one row per sample.

A results file may come from someone else. So its size, its structure and its types are checked before it is used.
"""

import csv
import dataclasses
import datetime
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.storage.sample import Sample
from cheetah.bench.units import MIB, iec
from cheetah.durable import replace
from cheetah.page.visible import plain
from cheetah.path_text import texts

FORMAT = "cheetah-bench-1"
JSON, CSV = "results.json", "results.csv"
SIZE_MAX_BYTES = 128 * MIB
PARTS_MAX = 200
ROUNDS_MAX = 1000
CELLS_MAX = 200_000
"""In a part: targets × steps × states, as in its tables, empty cells included."""
NUMBER_MAX = 1e18
"""Above any time, size or rate of a machine, and low enough that sums and ratios stay finite."""

Part = dict[str, Any]
"""One part of a run. All parts have `part`, `title`, `finished`, `quick`, `rounds` and `figures`; `problem` if it was
not measured. Storage also has `targets`, `steps`, `samples` and `warnings`."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""The first characters of formulas. Some spreadsheets skip leading white space."""
_SAMPLE_TEXTS = {"target", "step", "state", "outcome", "problem", "bottleneck", "busy", "warnings"}
_SAMPLE_NUMBERS = [field.name for field in dataclasses.fields(Sample) if field.name not in _SAMPLE_TEXTS]
_COLUMNS = ["part", "figure", "what", "contender", "round", "outcome", "value", "unit", "step", "state"]
_COLUMNS += [name for name in _SAMPLE_NUMBERS if name != "repetition"]
_COLUMNS += ["bottleneck", "problem", "warnings"]


@dataclasses.dataclass
class Results:
    """The measurements of one or several runs in the same directory."""

    machine: dict[str, str]
    command: list[str]
    parts: list[Part] = dataclasses.field(default_factory=list)
    finished: str = ""
    """When it was last written, ISO 8601."""

    def part(self, key: str) -> Part | None:
        """Returns the part of that name."""
        return next((part for part in self.parts if part["part"] == key), None)

    def put(self, part: Part) -> None:
        """Adds a part, replacing an earlier one of its name."""
        for index, earlier in enumerate(self.parts):
            if earlier["part"] == part["part"]:
                self.parts[index] = part
                return
        self.parts.append(part)

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {"format": FORMAT, **dataclasses.asdict(self)}


def now() -> str:
    """Returns the current time, as in results."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def figures(part: Part) -> list[Figure]:
    """Returns the figures of a part."""
    return [Figure.from_json(figure) for figure in part.get("figures", ())]


def samples(part: Part) -> list[Sample]:
    """Returns the samples of storage; none of other parts."""
    return [Sample.from_json(sample) for sample in part.get("samples", ())]


def write(out: Path, results: Results) -> None:
    """Writes both files into `out`, which is created if missing. Raises OSError if that fails."""
    out.mkdir(parents=True, exist_ok=True)
    results.finished = now()
    text = json.dumps(texts(results.to_json()), indent=1, allow_nan=False, ensure_ascii=False)
    replace(out / JSON, text.encode("utf-8", "backslashreplace") + b"\n")
    write_csv(out, results)


def write_csv(out: Path, results: Results) -> None:
    """Writes results.csv alone. Raises OSError if that fails."""
    table = io.StringIO()
    writer = csv.DictWriter(table, _COLUMNS)
    writer.writeheader()
    for part in results.parts:
        writer.writerows({name: _inert(value) for name, value in row.items()} for row in _rows(part))
    replace(out / CSV, table.getvalue().encode("utf-8", "backslashreplace"))


def _inert(value: Any) -> Any:
    """Returns a value that no spreadsheet takes for a formula: target names and messages of tools may come from
    others. Numbers are unchanged."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _rows(part: Part) -> Iterator[dict[str, Any]]:
    """Yields the rows of a part: one per sample, or per value of a figure."""
    if "samples" not in part:
        for figure in figures(part):
            for contender, values in figure.samples.items():
                row = {"part": part["part"], "figure": figure.id, "what": figure.what, "unit": figure.unit}
                for number, value in enumerate(values, start=1):
                    yield {**row, "contender": contender, "round": number, "outcome": "done", "value": value}
        if part.get("problem"):
            yield {"part": part["part"], "outcome": "failed", "problem": part["problem"]}
        return
    titles = {step["key"]: step.get("title", step["key"]) for step in part.get("steps", ())}
    for sample in samples(part):
        row = {name: getattr(sample, name) for name in _SAMPLE_NUMBERS if name != "repetition"}
        has_rate = sample.bytes_per_s is not None
        yield {
            **row,
            "part": part["part"],
            "figure": f"{part['part']}/{sample.step}/{sample.state}",
            "what": titles.get(sample.step, sample.step),
            "contender": sample.target,
            "round": sample.repetition,
            "outcome": str(sample.outcome),
            "value": sample.bytes_per_s if has_rate else sample.seconds,
            "unit": "bytes/s" if has_rate else "s",
            "step": sample.step,
            "state": sample.state,
            "bottleneck": sample.bottleneck,
            "problem": sample.problem,
            "warnings": "; ".join(sample.warnings),
        }


def read(path: Path) -> Results:
    """Reads the results in a file, or in the results.json of a directory.

    Raises BenchError if it cannot be read, has no results, or is of another version.
    """
    path = path / JSON if path.is_dir() else path
    try:
        with open(path, "rb") as file:
            content = file.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}; name a results.json, or the directory of a run") from None
    if len(content) > SIZE_MAX_BYTES:
        raise BenchError(f"{path} is larger than {iec(SIZE_MAX_BYTES)}, the limit for results of cheetah bench")
    try:
        value = json.loads(content, parse_constant=_no_number)
        if not isinstance(value, dict) or "format" not in value:
            raise ValueError("it has no format")
        if value["format"] != FORMAT:
            raise BenchError(f"{path} has the format {value['format']!r:.60}, and this cheetah reads {FORMAT}")
        return _checked(value)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BenchError(
            f"{path} does not hold results of cheetah bench: {plain(str(error), 300) or 'it is nested too deeply'}"
        ) from None


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a figure")


def _checked(value: dict[str, Any]) -> Results:
    machine = _dict(value["machine"], "machine")
    parts = [checked(_dict(part, "part")) for part in _list(value["parts"], "parts", PARTS_MAX)]
    return Results(
        machine={str(name): str(text) for name, text in machine.items()},
        command=[str(word) for word in _list(value["command"], "command")],
        parts=parts,
        finished=_text(value["finished"], "finished"),
    )


def checked(part: Part) -> Part:
    """Returns the part if it is valid; otherwise raises ValueError, TypeError or KeyError with the reason."""
    name = _text(part["part"], "part")
    for key in ("title", "finished", "problem"):
        _text(part.get(key, ""), f"{name}: {key}")
    rounds = part.get("rounds")
    if rounds is not None and (type(rounds) is not int or not 0 <= rounds <= ROUNDS_MAX):
        raise ValueError(f"{name}: rounds is not a number of rounds")
    for figure in _list(part.get("figures", []), f"{name}: figures"):
        _check_figure(_dict(figure, f"{name}: figure"))
    for sample in _list(part.get("samples", []), f"{name}: samples"):
        _check_sample(_dict(sample, f"{name}: sample"), name)
    _check_extent(part, name)
    for key, label in (("targets", "name"), ("steps", "key")):
        for one in _list(part.get(key, []), f"{name}: {key}"):
            _text(_dict(one, f"{name}: {key}")[label], f"{name}: {key}")
    for warning in _list(part.get("warnings", []), f"{name}: warnings"):
        _text(warning, f"{name}: warning")
    return part


def _check_figure(value: dict[str, Any]) -> None:
    figure = Figure.from_json(value)
    name = _text(figure.id, "a figure's id")
    for text in (figure.what, figure.unit, figure.note, figure.ours or "", figure.baseline or ""):
        _text(text, f"{name}: what it says")
    if figure.better not in ("higher", "lower"):
        raise ValueError(f"{name}: better is neither higher nor lower")
    for values in _dict(figure.samples, f"{name}: samples").values():
        if not _list(values, f"{name}: samples"):
            raise ValueError(f"{name}: a contender has no samples")
        for one in values:
            _number(one, f"{name}: a sample")
    if figure.bar is not None:
        _number(figure.bar, f"{name}: the bar")


def _check_extent(part: Part, name: str) -> None:
    """Refuses a few samples that would make a table too large for memory, each with its own target, step and size."""
    samples = part.get("samples", [])
    targets, steps, states = ({sample[key] for sample in samples} for key in ("target", "step", "state"))
    targets |= {str(_dict(target, f"{name}: targets").get("name")) for target in part.get("targets", [])}
    sizes = [step.split("/") for step in steps if step.count("/") > 2]
    matrix = len({words[2] for words in sizes}) * len({words[3] for words in sizes})
    if len(targets) * max(len(steps), matrix) * len(states) > CELLS_MAX:
        raise ValueError(f"{name}: its tables would have more than {CELLS_MAX:,} cells")


def _check_sample(value: dict[str, Any], name: str) -> None:
    sample = Sample.from_json(value)
    for key in ("target", "step", "state", "problem", "bottleneck"):
        _text(getattr(sample, key), f"{name}: a sample's {key}")
    for key in _SAMPLE_NUMBERS:
        if getattr(sample, key) is not None:
            _number(getattr(sample, key), f"{name}: a sample's {key}")
    for share in _dict(sample.busy, f"{name}: a sample's shares").values():
        _number(share, f"{name}: a sample's share")
    for warning in sample.warnings:
        _text(warning, f"{name}: a sample's warning")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} is not text")
    return value


def _number(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= NUMBER_MAX:
        raise ValueError(f"{what} is not a measurable number")


def _dict(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def _list(value: object, what: str, entries_max: int | None = None) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is not a list")
    if entries_max is not None and len(value) > entries_max:
        raise ValueError(f"{what} are more than {entries_max}")
    return value
