"""report.html: a self-contained page without network access; see `cheetah.page`."""

import collections.abc
import datetime
import hashlib
import json
import os
import pathlib
import shlex
from typing import Any

from markupsafe import Markup

from cheetah.page import document, units
from cheetah.triage.outputs import TABLES
from cheetah.triage.report import charts, kinds, verdict
from cheetah.triage.report import summary as figures
from cheetah.triage.report.bins import main_span
from cheetah.triage.report.statistics import OTHERS, STATES

# Rows in the table of findings; findings.parquet has all of them.
ROWS_MAX = 500
CARDS_MAX = 25
TYPES_MAX = 16

_STATE_WORDS = {
    "whole": ("Read whole", "hashed, identified and searched as requested"),
    "partial": ("Read in part", "the rest is unknown"),
    "unreadable": ("Unreadable", "reading it failed, in whole or in part"),
    "unread": ("Not read", "not tried"),
    "skipped": ("Left out", "on purpose, by a setting or a rule"),
}
_SEARCHED_WORDS = ("Whole", "read as requested, or searched where it lies, with only its beginning read")

Json = dict[str, Any]


def write(out: str | os.PathLike[str]) -> pathlib.Path:
    """Writes report.html from summary.json and findings.parquet in the directory `out`."""
    folder = pathlib.Path(out)
    summary = json.loads((folder / "summary.json").read_text(encoding="ascii"))
    rows = figures.first_findings(folder / "findings.parquet", ROWS_MAX)
    page = render(summary, rows, _outputs(folder))
    target = folder / "report.html"
    document.write(target, page)
    return target


def render(summary: Json, findings: list[Json], outputs: collections.abc.Sequence[Json] = ()) -> str:
    """Returns the page. The same arguments give the same text."""
    templates = document.environment("cheetah.triage.report")
    style = document.style(document.text(templates, "style.css"))
    script = document.text(templates, "page.js")
    result = verdict.of(summary)
    activity = _activity(summary)
    return templates.get_template("report.html").render(
        policy=document.policy(style, [script]),
        style=Markup(style),
        script=Markup(script),
        data=_data(summary, activity.get("grid")),
        s=summary,
        verdict=result,
        cards=[_card(one) for one in summary["top"][:CARDS_MAX]],
        findings=[{**row, "label": kinds.of(row["kind"]).label} for row in findings],
        kinds=[(kinds.of(kind), number) for kind, number in summary["findings"].items()],
        states=_states(summary),
        activity=activity,
        types=_types(summary),
        sizes=_sizes(summary),
        command=shlex.join(summary["command"]),
        outputs=outputs,
        settings=_settings(summary["settings"]),
        took=_took(summary),
    )


def _data(summary: Json, grid: Json | None) -> Markup:
    """Returns the figures for the page's script and for programs: JSON that cannot close its element."""
    names = (
        "complete",
        "verdict",
        "counts",
        "bytes",
        "coverage",
        "types",
        "activity",
        "undated",
        "hours",
        "sizes",
        "findings",
    )
    text = json.dumps(
        {**{name: summary[name] for name in names}, "grid": grid}, ensure_ascii=True, separators=(",", ":")
    )
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _card(one: Json) -> Json:
    why = [{**reason, "label": kinds.of(reason["kind"]).label} for reason in one["why"]]
    return {"file": None, **one, "why": why, "more": one["findings"] - len(why)}


def _states(summary: Json) -> list[Json]:
    states = summary["coverage"]["files"]
    words = _STATE_WORDS
    if verdict.is_searched_in_part(summary):
        words = {**words, "whole": _SEARCHED_WORDS}
    return [{"name": name, "label": words[name][0], "note": words[name][1], **states[name]} for name in STATES]


def _activity(summary: Json) -> Json:
    days = {datetime.date.fromisoformat(day): number for day, number in summary["activity"].items()}
    span = main_span(days)
    if span is None:
        return {"total": 0, "span": None, "outside": 0}
    whole, logarithmic = charts.overview(days, span)
    recent, recent_logarithmic = charts.detail(days, span)
    inside = sum(number for day, number in days.items() if span[0] <= day <= span[1])
    total = sum(days.values())
    return {
        "total": total,
        "span": span,
        "outside": total - inside,
        "first": min(days),
        "last": max(days),
        "overview": whole,
        "grid": charts.overview_grid(span),
        "logarithmic": logarithmic,
        "recent": recent,
        "recent_logarithmic": recent_logarithmic,
        "recent_days": min(charts.DETAIL_DAYS, (span[1] - span[0]).days + 1),
        "hours": charts.hours(summary["hours"]),
        "timed": sum(map(sum, summary["hours"])),
        "busiest": sorted(days.items(), key=lambda pair: (-pair[1], pair[0]))[:5],
    }


def _types(summary: Json) -> Json:
    types, mismatches = dict(summary["types"]), summary["mismatches"]
    rest = types.pop(OTHERS, 0)
    shown_types = list(types.items())[:TYPES_MAX]
    rest += sum(types.values()) - sum(number for _, number in shown_types)
    rows = [
        {"name": name, "files": number, "bytes": summary["type_bytes"].get(name), "odd": mismatches.get(name, 0)}
        for name, number in shown_types
    ]
    if rest:
        rows.append({"name": "all others", "files": rest, "bytes": None, "odd": 0})
    return {
        "rows": rows,
        "most": max((row["files"] for row in rows), default=0),
        "total": sum(row["files"] for row in rows),
    }


def _sizes(summary: Json) -> Json:
    sizes = summary["sizes"]
    rows = []
    for number, one in enumerate(sizes):
        above = sizes[number + 1]["from"] if number + 1 < len(sizes) else None
        if one["from"] == 0:
            label = "empty"
        elif one["from"] == 1:
            label = f"up to {units.size(above)}" if above else "more"
        else:
            label = f"from {units.size(one['from'])}"
        rows.append({**one, "label": label, "kept": one["files"] - one["deleted"]})
    return {"rows": rows, "most": max((row["files"] for row in rows), default=0)}


def _settings(settings: Json) -> list[tuple[str, Json | str]]:
    rows: list[tuple[str, Any]] = []
    for name, value in settings.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows += [(name, one) for one in value]
        elif isinstance(value, list):
            rows.append((name, ", ".join(map(str, value)) or "none"))
        elif isinstance(value, bool):
            rows.append((name, "yes" if value else "no"))
        else:
            rows.append((name, f"{units.size(value)} ({value} bytes)" if name == "max_file" else str(value)))
    return [(name.replace("_", " "), value) for name, value in rows]


def _took(summary: Json) -> str:
    started, ended = (datetime.datetime.fromisoformat(summary[name]) for name in ("started", "ended"))
    return units.duration((ended - started).total_seconds())


def _outputs(folder: pathlib.Path) -> list[Json]:
    """Returns the files that belong to the report, with sizes and digests."""
    found = []
    for name in TABLES:
        path = folder / name
        if path.exists():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found.append({"name": name, "size_bytes": path.stat().st_size, "sha256": digest})
    return found
