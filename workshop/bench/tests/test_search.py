"""The part that searches: its words and images, the checks of hits, and its figures. No time is tested."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
from typing import Any

import pytest

from bench.harness import rounds
from bench.scratch import Scratch
from bench.search import engine, engines, evidence, foreground, lazy, links, measure, model, sealed
from bench.search.runs import Task
from bench.settings import Settings
from bench.tools import control_group
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
from cheetah.bench.process import run
from cheetah.bench.units import MIB
from lab.link import Link


def test_no_keyword_is_part_of_another_and_a_short_list_begins_a_long_one() -> None:
    words = evidence.keywords(evidence.MANY)
    assert words[: evidence.FEW] == evidence.keywords(evidence.FEW)
    known = set(words)
    assert len(known) == evidence.MANY
    shortest = min(map(len, words))
    for word in words:
        parts = {word[begin:end] for begin in range(len(word)) for end in range(begin + shortest, len(word) + 1)}
        assert parts & known == {word}


def test_planted_words_do_not_overlap_and_some_cross_the_end_of_a_mib() -> None:
    places = sorted(evidence.places(64 * MIB, ("utf-8", "utf-16le")))
    ends = [(offset, offset + len(encoded)) for offset, _, encoded in places]
    assert all(end <= begin for (_, end), (begin, _) in zip(ends, ends[1:], strict=False))
    assert sum(begin // MIB != (end - 1) // MIB for begin, end in ends) == 63
    assert ends[0][0] >= 0 and ends[-1][1] <= 64 * MIB
    assert {encoded == word.encode() for _, word, encoded in places} == {True, False}


@pytest.mark.parametrize("with_text", [False, True])
def test_an_image_has_each_planted_word_once_for_each_time_it_was_planted(with_text: bool) -> None:
    with Scratch() as scratch:
        made = evidence.make(scratch, 6 * MIB, with_text, ("utf-8",))
        with open(made.path, "rb") as file:
            content = file.read()
        with open(made.few, encoding="utf-8") as file:
            few = file.read().split()
    assert len(content) == 6 * MIB and len(made.planted) == 11
    for word in set(made.planted):
        assert content.count(word.encode()) == made.planted.count(word), word
    assert made.hits_of_few() == sum(content.count(word.encode()) for word in few) >= 5


def test_text_has_every_kind_of_data_and_no_word_as_long_as_a_keyword() -> None:
    text = evidence.text(random.Random(1))
    assert len(text) == MIB
    rest = text.decode()
    for kind in evidence.KINDS:
        assert kind in rest
        rest = rest.replace(kind, "")
    assert max(map(len, re.findall("[a-z]+", rest[:-100]))) < min(evidence.LETTERS)


def answer(**changed: Any) -> dict[str, Any]:
    """An answer of a search."""
    done = {"node_bytes": {"a": 60, "b": 39}, "here_bytes": {"node c is lost": 1}}
    return {"complete": True, "hits": 2, "searched_bytes": 100, "at_nodes": done, **changed}


def test_a_search_that_misses_or_adds_hits_or_bytes_fails(tmp_path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text("offset\n1\n2\n")
    other.write_text("offset\n1\n3\n")
    task = Task("few", "two words", ("words",), 100, 2)
    task.check("a.drive", answer(), str(one), 0.98)
    task.check("a.drive", answer(at_nodes=None), str(one))
    for problem, said, table, share_min in (
        ("not those of the first", answer(), other, 0.0),
        ("3 hits instead of 2", answer(hits=3), one, 0.0),
        ("only 99 of 100", answer(complete=False, searched_bytes=99), one, 0.0),
        ("99 of 100 bytes only: node c is lost", answer(), one, 1.0),
        ("none was asked", answer(at_nodes=None), one, 0.5),
    ):
        with pytest.raises(BenchError, match=problem):
            task.check("a.drive", said, str(table), share_min)


def test_what_arrives_at_the_examiner_is_beside_a_share_of_the_drive_and_the_hits() -> None:
    def of(received: float) -> Figure:
        results = {links.NEAR: [{"received": received, "table_bytes": MIB}], links.HERE: [{"received": 100.0 * MIB}]}
        return links.received_figure("search/x", "x", results, 100 * MIB, 0.02)

    assert of(2.9 * MIB).met() is True and of(3.1 * MIB).met() is False
    assert of(MIB).peer() == "2 % of the drive, and the hits"
    without = links.received_figure("search/x", "x", {links.NEAR: [{"received": 1.0}]}, MIB, 0.001)
    assert without.peer() == "0.1 % of the drive"


def test_the_nodes_share_one_link_that_the_examiner_has() -> None:
    lab = links.shared_lab()
    assert lab.examiner_link == Link(10**9) and {node.link for node in lab.nodes} == {Link(None)}


def test_four_nodes_are_beside_four_times_one(monkeypatch) -> None:
    task = Task("few", "x", (), MIB)
    monkeypatch.setattr(Task, "run", lambda *_: {"rate": 25.0})
    four, one = (model.searched(task, "a.drive", list, times) for times in (1, 4))
    found = model.figure("few", "x", {model.FOUR: [four], model.ONE: [one]})
    assert found.samples == {model.FOUR: [25.0], model.ONE: [100.0]}
    assert found.met() is False and "model" in found.note


def test_without_the_cpu_controller_the_model_is_left_out_and_the_results_say_so(monkeypatch) -> None:
    def refused(*_: object) -> None:
        raise BenchError("a control group for cpu: no such file")

    monkeypatch.setattr(model.control_group, "with_processor_share", refused)
    figures = model.measure(Settings.of(quick=True))
    assert len({figure.id for figure in figures}) == 2
    assert all(figure.met() is None and "no such file" in figure.note for figure in figures)


def test_a_command_in_a_control_group_has_its_share_of_a_processor() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with Scratch() as scratch:
        try:
            with (
                control_group.with_processor_share(scratch, 0.4) as one,
                control_group.with_processor_share(scratch, 0.4) as other,
            ):
                groups = {run([*enter(["cat", "/proc/self/cgroup"])]) for enter in (one, other)}
        except BenchError as error:
            pytest.skip(str(error))
    assert len(groups) == 2 and all(os.path.basename(scratch.dir) in group for group in groups)


def test_each_kind_of_data_in_the_text_matches_an_expression_of_the_other_programs() -> None:
    expressions = [re.compile(kind) for kind in engines.KINDS]
    assert [kind for kind in evidence.KINDS if not any(one.search(kind) for one in expressions)] == []


def test_other_programs_count_the_planted_words() -> None:
    if not shutil.which("taskset"):
        pytest.skip("needs taskset")
    with Scratch() as scratch:
        made = evidence.make(scratch, 4 * MIB, True, ("utf-8",))
        for words, hits in ((made.few, made.hits_of_few()), (made.many, len(made.planted))):
            found = engines.for_words(scratch, words)
            assert {engines.GREP, engines.YARA} <= {one.name for one in found}
            for one in found:
                if one.name != engines.BULK:
                    assert one.run(made.path, engine.pinned)["hits"] == hits, one.name
        for one in engines.for_kinds(scratch):
            assert one.run(made.path, engine.pinned)["hits"] > len(evidence.KINDS), one.name


def test_every_program_counts_the_same_addresses_by_one_expression(tmp_path) -> None:
    if not shutil.which("taskset"):
        pytest.skip("needs taskset")
    pytest.importorskip("yara_x")
    # Names and domains that go on, that are too long, that are cut by a line, or that hold bytes of no word.
    hard = (
        b"anna.koch@example.com\nx@y.de,b@c.info;d@e.toolongtop f@g.a1 h@"
        + b"i" * 64
        + b".com "
        + b"j" * 65
        + b"@k.com\n",
        b"\xffl@m.org\xe4 n@\no.net p@q.eu\0_r@s.io_ t@u-v.de w@x.y.com Ab_9@EXAMPLE.ORG.",
    )
    with Scratch() as scratch:
        made = evidence.make(scratch, 2 * MIB, True, ("utf-8",))
        with open(made.path, "ab") as file:
            file.write(b"".join(hard))
        with open(made.path, "rb") as file:
            expected = len(re.findall(engines.EMAIL.encode(), file.read()))
        found = engines.for_email(scratch)
        assert {engines.GREP_EXPRESSION, engines.YARA} <= {one.name for one in found}
        for one in found:
            if one.name != engines.BULK:
                assert one.run(made.path, engine.pinned)["hits"] == expected > len(hard), one.name


def test_only_programs_with_definitions_of_their_own_may_count_other_hits(monkeypatch) -> None:
    with Scratch() as scratch:
        every = engine.searches(scratch, evidence.make(scratch, MIB))
    assert [search.task.key for search in every if not search.is_same] == ["kinds"]
    monkeypatch.setattr(Task, "run", lambda *_: {"seconds": 1.0, "hits": 3.0})
    monkeypatch.setattr(engines, "memory_rate", lambda *_: 1e9)
    other = engines.Engine(engines.YARA, (), int)
    monkeypatch.setattr(engines.Engine, "run", lambda *_: {"seconds": 1.0, "hits": 4.0})
    for search in every:
        asked = engine.Search(search.task, [other], search.is_same, search.note)
        if search.is_same:
            with pytest.raises(BenchError, match="YARA-X has 4 hits instead of 3"):
                engine.measure_one(Settings.of(True, 1), asked, "image")
        else:
            [*_, hits] = engine.measure_one(Settings.of(True, 1), asked, "image")
            assert "its own definitions" in hits.note


def test_the_engine_has_as_many_rounds_as_were_asked_for(monkeypatch) -> None:
    monkeypatch.setattr(Task, "run", lambda *_: {"seconds": 1.0, "hits": 3.0})
    monkeypatch.setattr(engines, "memory_rate", lambda *_: 1e9)
    beside, *_ = engine.measure_one(Settings.of(True, 5), engine.Search(Task("few", "x", (), MIB), []), "image")
    assert rounds.fewest([beside]) == 5


def test_features_are_counted_without_comments_and_histograms(tmp_path) -> None:
    (tmp_path / "email.txt").write_text("# BANNER\n1\ta@b.de\tx\n2\tc@d.de\ty\n")
    (tmp_path / "email_histogram.txt").write_text("n=2\ta@b.de\n")
    (tmp_path / "report.xml").write_text("<x/>\n")
    assert engines.features(str(tmp_path)) == 2


def test_another_program_with_other_hits_of_words_fails_and_one_that_was_cut_off_does_not() -> None:
    def results(**hits: float | None) -> dict[str, Any]:
        return {engine.OURS: [{"hits": 3.0}]} | {name: [{"hits": count}] for name, count in hits.items()}

    engine.check_hits("x", results(ripgrep=3.0, grep=None, bulk_extractor=9.0))
    for wrong in (4.0, 0.0):
        with pytest.raises(BenchError, match=f"ripgrep has {wrong:.0f} hits instead of 3"):
            engine.check_hits("x", results(ripgrep=wrong))
    # Two rounds, of images with other noise.
    resumed = {name: [{"hits": 3.0}, {"hits": 5.0}] for name in (engine.OURS, "ripgrep")}
    engine.check_hits("x", resumed)
    resumed["ripgrep"].reverse()
    with pytest.raises(BenchError, match="ripgrep has 5 hits instead of 3"):
        engine.check_hits("x", resumed)


def test_the_engine_is_compared_with_programs_and_memory_apart() -> None:
    rounds = {engine.OURS: {"rate": 3.0, "hits": 5.0}, engines.GREP: {"rate": 1.5, "hits": 5.0}}
    results = {name: [one] for name, one in rounds.items()} | {engines.MEMORY: [{"rate": 10.0}]}
    results[engines.YARA] = [{"rate": 0.1, "hits": None}]
    beside, memory, hits = engine.figures_of(Task("few", "10 words", (), 1), results)
    assert beside.peer() == engines.GREP and beside.met() is True
    assert memory.peer() == engines.MEMORY and memory.met() is None
    assert hits.ours is None and hits.samples == {engine.OURS: [5.0], engines.GREP: [5.0]}


def test_memory_has_a_bandwidth() -> None:
    if not shutil.which("taskset"):
        pytest.skip("needs taskset")
    assert engines.memory_rate(MIB, engine.pinned) > 0


def test_hits_are_told_from_progress_and_from_lines_that_are_not_whole() -> None:
    hit = {"event": "hit", "offset": 7}
    assert lazy.hits(f"searching x: 1 %\n7\n{json.dumps(hit)}\n" + '{"event": "hit", "off') == [7]
    assert lazy.hits("") == []


def test_a_foreground_job_ends() -> None:
    if not all(map(shutil.which, ("taskset", "setpriv"))):
        pytest.skip("needs taskset and setpriv")
    with Scratch() as scratch:
        assert foreground.hash_on(scratch, sorted(os.sched_getaffinity(0)), 1) > 0


def test_each_measurement_of_the_part_is_called_once(monkeypatch) -> None:
    called = []
    monkeypatch.setattr(measure.evidence, "make", lambda *_: "evidence")
    for module, name in (
        *((links, name) for name in ("measure_shared", "measure_own")),
        *((module, "measure") for module in (model, engine, sealed, lazy, foreground)),
    ):
        key = f"{module.__name__}.{name}"
        monkeypatch.setattr(module, name, lambda *_, key=key: called.append(key) or [key])
    assert measure.measure(Settings.of(quick=True)) == called and len(set(called)) == 7


def test_one_case_is_measured_alone(monkeypatch) -> None:
    monkeypatch.setattr(lazy, "measure", lambda _: ["lazy"])
    assert measure.measure(Settings.of(True, only="lazy")) == ["lazy"]
    with pytest.raises(BenchError, match="nodes behind one shared link; nodes with own links; scaled model"):
        measure.measure(Settings.of(True, only="nowhere"))


def test_searches_that_have_a_round_are_published_if_the_time_is_over(monkeypatch) -> None:
    measured = []
    monkeypatch.setattr(Task, "run", lambda *_: measured.append(1) or {"rate": 1.0})
    monkeypatch.setattr(rounds.Kept, "is_over", classmethod(lambda _: len(measured) >= 2))
    tasks = [Task(key, key, (), MIB) for key in ("few", "many")]
    drives = {sealed.SEALED: "a.drive", sealed.PLAIN: "b.drive"}
    compare = functools.partial(sealed.compare_searches, Settings.of(True), drives, list, ("shared", "x"))
    found = rounds.while_time_lasts(functools.partial(compare, task) for task in tasks)
    assert [figure.id for figure in found] == ["search/sealed-shared-few/rate"] and rounds.fewest(found) == 1
