"""The benchmark's report: its numbers are those of results.json, and text from others is harmless."""

import html
import html.parser
import json
import re
import statistics
from pathlib import Path
from typing import Any

import bench_data
import pytest
from browser import rendered

from cheetah.bench import report, results

Json = dict[str, Any]

HOSTILE = "/</td><script>document.title='owned'</script>\u202egpj\x1b[31m\x00\n<img src=x onerror=alert(1)>&amp;|`*"


def written(folder: Path, given: Json) -> str:
    """Returns the report of these results, read back from the file."""
    (folder / results.JSON).write_text(json.dumps(given), encoding="utf-8")
    return report.write(results.read(folder), folder).read_text(encoding="utf-8")


class Shown(html.parser.HTMLParser):
    """The text of a page, its elements by name, its figures, and the dots of its repetitions."""

    def __init__(self, page: str):
        super().__init__()
        self.text: list[str] = []
        self.elements: list[str] = []
        self.figures: list[tuple[dict[str, str | None], str]] = []
        self.dots: dict[tuple[str, str], list[float]] = {}
        self._strip = ("", "")
        self._open = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        given = dict(attrs)
        if tag == "svg":
            self._strip = (str(given.get("data-figure")), str(given.get("data-target")))
        elif tag == "circle" and "data-value" in given:
            self.dots.setdefault(self._strip, []).append(float(str(given["data-value"])))
        elif "data-figure" in given:
            self.figures.append((given, ""))
            self._open = tag == "data"

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "data"

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self._open:
            given, text = self.figures[-1]
            self.figures[-1] = given, text + data


class Meant:
    """The figures of results.json, recomputed."""

    def __init__(self, given: Json):
        self.samples: dict[tuple[str, str], list[Json]] = {}
        self.others: dict[str, Json] = {}
        for part in given["parts"]:
            for one in part.get("samples", ()):
                figure = f"{part['part']}/{one['step']}/{one['state']}"
                self.samples.setdefault((figure, one["target"]), []).append(one)
            if "samples" not in part:
                self.others.update({figure["id"]: figure for figure in part["figures"]})
        self.baseline = given["parts"][0]["targets"][0]["name"]

    def values(self, figure: str, target: str, name: str = "") -> list[float]:
        """Returns the measurements in the order of the repetitions."""
        if figure in self.others:
            return list(self.others[figure]["samples"][target])
        done = [one for one in self.samples.get((figure, target), ()) if one["outcome"] == "done"]
        if name.startswith(("busy.", "held.")):
            return [one["busy"][name[5:]] for one in done]
        rate = "/fio/" in figure
        return [one[name or ("bytes_per_s" if rate else "seconds")] for one in done]

    def __call__(self, figure: str, target: str, stat: str) -> float:
        if stat == "sum":
            return self._sum(figure, target)
        values = self.values(figure, target, stat if "_" in stat or "." in stat else "")
        if stat == "spread":
            return 50 * (max(values) - min(values)) / statistics.median(values)
        if stat.startswith("ratio"):
            return self._ratio(figure, target, stat)
        return {"min": min, "max": max}.get(stat, statistics.median)(values)

    def _ratio(self, figure: str, target: str, stat: str) -> float:
        values = self.values(figure, target)
        if figure in self.others:
            other = self.others[figure]
            better = max if other["better"] == "higher" else min
            peers = [statistics.median(self.values(figure, name)) for name in other["samples"] if name != target]
            if other["ours"]:
                return statistics.median(values) / better(peers)
            return statistics.median(self.values(figure, other["baseline"])) / statistics.median(values)
        above, below = self.values(figure, self.baseline), values
        if "/fio/" in figure:
            above, below = below, above
        if stat == "ratio":
            return statistics.median(above) / statistics.median(below)
        return min(above) / max(below) if stat == "ratio-min" else max(above) / min(below)

    def _sum(self, figure: str, target: str) -> float:
        part, state = figure.split("/")
        every = [place for place, of in self.samples if of == self.baseline and place.endswith(f"/{state}")]
        shared = [
            place for place in every
            if "/fio/" not in place and all(self.values(place, name) for name in (self.baseline, bench_data.TARGETS[2]))
        ]  # fmt: skip
        assert part == "storage"
        return sum(statistics.median(self.values(place, target)) for place in shared)


def test_a_browser_shows_the_figures_of_the_results(tmp_path: Path) -> None:
    given = bench_data.results()
    written(tmp_path, given)
    meant = Meant(given)
    shown = Shown(rendered(tmp_path))
    assert len(shown.figures) > 1000
    stats = set()
    for attributes, text in shown.figures:
        figure, target, stat = (str(attributes[f"data-{name}"]) for name in ("figure", "target", "stat"))
        stats.add(stat)
        value = float(str(attributes["data-value"]))
        assert value == pytest.approx(meant(figure, target, stat), rel=1e-12), (figure, target, stat)
        assert_reads_as(text, value, figure, stat)
    assert {"median", "min", "max", "ratio", "ratio-min", "ratio-max", "sum", "cpu_s", "device_read_bytes"} <= stats
    medians = {(one["data-figure"], one["data-target"]) for one, _ in shown.figures if one["data-stat"] == "median"}
    assert {key for key in meant.samples if meant.values(*key)} <= medians, "each cell has its figure"
    for (figure, target), values in shown.dots.items():
        assert values == meant.values(figure, target), "each repetition is a dot"
    assert len(shown.dots) == 2 * len(bench_data.TARGETS) * len(bench_data.STEPS) - 4 - 8, (
        "none for what was not measured"
    )


def assert_reads_as(text: str, value: float, figure: str, stat: str) -> None:
    """The text beside a value agrees with it."""
    if match := re.fullmatch(r"(?:(\d+):)?(\d+):(\d\d\.\d\d)", text):
        hours, minutes, seconds = (float(group or 0) for group in match.groups())
        assert hours * 3600 + minutes * 60 + seconds == pytest.approx(value, abs=0.00501), text
    elif stat.startswith("ratio") and text:
        assert float(text.removeprefix("≈")) == pytest.approx(value, abs=0.00501), text
    elif "/fio/" in figure and stat in ("median", "min", "max"):
        assert float(text.replace(" ", "")) == pytest.approx(value / 2**20, rel=0.01), text


def test_the_page_names_the_fastest_and_what_is_missing(tmp_path: Path) -> None:
    page = written(tmp_path, bench_data.results())
    text = " ".join("".join(Shown(page).text).split())
    assert "ram:stripe:64KiB@3 was the fastest in 7 of 8 steps, caches cold." in text
    assert "Slower than disk beyond the spread: ram:stripe:64KiB:ext4@node1:10809,node2:10809 in strings (0.88)" in text
    assert "8 cells have no figure" in text
    assert "nps-2009.raw, 38 GiB" in text and "rw,relatime" in text and "strings 1.0" in text
    assert text.index("scalpel was not done after 3600 s") < text.index("Time until all output"), "warnings come first"
    assert "1 of 3 repetitions: tar: exit code 2" in text
    assert "not cold: 13 % of the image was in memory" in text
    assert "1 of 2 bars met" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quick": True}, "not to be quoted"),
        ({"repetitions": 1}, "each measured once: no spread is known"),
        ({"rounds": 4}, "The run was not completed"),
        ({"targets": bench_data.TARGETS[:1]}, "there is nothing to compare it with"),
        ({"problem": "interrupted"}, "The run was not completed"),
    ],
)
def test_a_verdict_never_says_more_than_was_measured(tmp_path: Path, changes: Json, words: str) -> None:
    page = written(tmp_path, bench_data.results(spoil=False, **changes))
    assert words in " ".join("".join(Shown(page).text).split())


def test_a_baseline_may_be_the_fastest(tmp_path: Path) -> None:
    fastest = bench_data.TARGETS[2]
    page = written(tmp_path, bench_data.results(spoil=False, baseline=fastest))
    text = " ".join("".join(Shown(page).text).split())
    assert f"{fastest} itself was the fastest in copy, md5sum" in text
    assert "The fastest, and how many times" not in text
    assert re.search(f"Slower than {fastest} beyond the spread: disk in copy \\(0\\.5", text)


def test_one_skipped_sample_stands_for_all_remaining_repetitions(tmp_path: Path) -> None:
    given = bench_data.results(spoil=False)
    part = given["parts"][0]
    gone = {"outcome": "not reached", "problem": "it was left out", "seconds": None}
    lost = [one for one in part["samples"] if (one["target"], one["step"]) == ("ram:linear@2", "tar")]
    for one in lost:
        one.update(gone if one["repetition"] > 1 else {})
    part["samples"] = [one for one in part["samples"] if one not in lost or one["repetition"] < 3]
    text = " ".join("".join(Shown(written(tmp_path, given)).text).split())
    assert "2 of 3 repetitions: it was left out" in text and "ram:linear@2: tar (cold and warm)" in text
    assert "was not completed" not in text


def test_equal_targets_have_no_winner(tmp_path: Path) -> None:
    given = bench_data.results(spoil=False)
    part = given["parts"][0]
    chance = iter(range(10**6))
    for one in part["samples"]:
        one["seconds"] = 10 + next(chance) * 7919 % 97 / 100
    page = " ".join("".join(Shown(written(tmp_path, given)).text).split())
    assert "No clear winner in any of 9 steps." in page
    assert "No clear winner in 9 steps (copy, md5sum" in page and "≈" in page


def test_text_from_others_is_escaped(tmp_path: Path) -> None:
    targets = ("disk", HOSTILE, "x" * 5000, "\u202eksid")
    given = bench_data.results(targets=targets)
    given["machine"][HOSTILE] = given["machine"]["kernel"] = HOSTILE
    given["command"].append(HOSTILE)
    part = given["parts"][0]
    part["about"] = part["warnings"] = None or [HOSTILE, "y" * 10_000]
    part["about"] = {HOSTILE: HOSTILE}
    part["targets"][1]["about"] = {HOSTILE: HOSTILE}
    part["steps"][0].update(title=HOSTILE, tool=HOSTILE, version=HOSTILE)
    for one in part["samples"][::5]:
        one.update(outcome="failed", problem=HOSTILE, seconds=None)
    for one in part["samples"][1::5]:
        one.update(warnings=[HOSTILE], bottleneck=HOSTILE, busy={HOSTILE: 1.0})
    given["parts"].append(
        {**bench_data.other(), "part": HOSTILE, "title": HOSTILE, "about": HOSTILE, "problem": HOSTILE}
    )
    for figure in given["parts"][-1]["figures"]:
        figure.update(what=HOSTILE, unit=HOSTILE, note=HOSTILE, samples={HOSTILE: [1.0], **figure["samples"]})
    page = written(tmp_path, given)

    shown = Shown(rendered(tmp_path))
    assert not {"img", "script", "iframe", "link"} & set(shown.elements)
    text = "".join(shown.text)
    assert "<script>document.title='owned'</script>" in text, "it is shown"
    assert not re.search("[\u202e\x1b\x00]", page) and "U+202E" in text and "U+001B" in text
    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r"<[^>]*\s(src|href)=[\"']?(https?:)?//", page)
    assert not re.search(r"<[^>]*\sstyle=", page), "the page's policy forbids inline styles"


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [bench_data.other()],
        [{"part": "drive", "problem": "needs root", "figures": []}],
        [bench_data.storage(targets=())],
    ],
)
def test_an_almost_empty_run_has_a_report(tmp_path: Path, parts: list[Json]) -> None:
    assert "How to do it again" in written(tmp_path, {**bench_data.results(), "parts": parts})


def test_a_target_without_measurements_is_not_fast(tmp_path: Path) -> None:
    given = bench_data.results()
    for one in given["parts"][0]["samples"]:
        one.update(outcome="failed", problem="the disk is gone", seconds=None, bytes_per_s=None)
    assert "Nothing was measured." in written(tmp_path, given)


def test_thousands_of_samples_make_a_small_page(tmp_path: Path) -> None:
    names = tuple(
        f"ram:stripe:{unit}KiB:{fs}@{nodes}" for unit in (16, 64, 256) for fs in ("ext4", "xfs") for nodes in (2, 3)
    )
    files = ("64KiB", "1MiB", "16MiB", "256MiB", "4GiB")
    given = bench_data.results(targets=names, repetitions=10, files=files, records=("4KiB", "64KiB", "1MiB", "16MiB"))
    assert len(given["parts"][0]["samples"]) > 20_000
    assert len(written(tmp_path, given)) < 5 << 20


def test_the_same_results_make_the_same_page(tmp_path: Path) -> None:
    given = bench_data.results()
    assert written(tmp_path, given) == written(tmp_path, json.loads(json.dumps(given)))
