"""The parts over delayed links and the transfers: their reads, links, rows and tables. No time is tested."""

from __future__ import annotations

import os
import shutil

import pytest

from bench.harness.figures import Metric
from bench.images import acquired
from bench.remote import compressed, contents, lines, receivers, triage
from bench.report import grid
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import control_group, extend, transfer
from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.units import MIB
from lab.link import Link

KIB = 1024


@pytest.mark.parametrize(
    "offset, length, ahead, behind", [(0, 4096, 8192, 0), (65536, 100, 4096, 0), (65537, 7, 0, 9000)]
)
def test_a_second_read_follows_that_of_the_client_and_both_make_one_larger_read(
    tmp_path, offset: int, length: int, ahead: int, behind: int
) -> None:
    span = extend.PageStore(MIB).missing(offset, length, ahead, behind)
    assert span is not None
    assert extend.reads_of(span, offset, length, second=False) == [span]
    first, *more = extend.reads_of(span, offset, length, second=True)
    assert first[0] <= offset and offset + length <= first[1]
    assert len(more) == 1
    assert sorted([first, *more])[0][0] == span[0] and sorted([first, *more])[-1][1] == span[1]
    assert sum(end - begin for begin, end in [first, *more]) == span[1] - span[0]


def test_a_read_beside_resident_pages_is_never_empty() -> None:
    store = extend.PageStore(MIB)
    store.put(0, bytes(64 * KIB))
    span = store.missing(60 * KIB, 8 * KIB, 4 * KIB, 0)
    assert span is not None and span[0] == 64 * KIB
    parts = extend.reads_of(span, 60 * KIB, 8 * KIB, second=True)
    assert parts == [(64 * KIB, 68 * KIB), (68 * KIB, 72 * KIB)]


def test_links_have_the_named_rate_delay_and_loss() -> None:
    assert Link.parse(lines.line("1gbit", 20, 0.5).link) == Link(10**9, 20_000, loss_ppm=5_000)
    assert lines.line("100mbit", 0).name == "0 ms"
    satellite, mobile = (Link.parse(line.link) for line in lines.FIELD)
    assert 2 * satellite.delay_us == 500_000
    assert mobile.delay_us == 50_000 and mobile.loss_ppm == 10_000 and mobile.late_us > 0


def test_the_matrix_of_triage_is_complete() -> None:
    columns = triage.columns(Settings.of(quick=False))
    workers = [column for column in columns if column[3] == triage.WORKERS]
    assert len({(kind.fs, kind.size_bytes, line.link) for kind, _, line, _ in workers}) == 2 * 2 * 2 * 3
    losses = {line.link for _, group, line, _ in columns if "by loss" in group}
    assert len(losses) == len(lines.DELAYS_MS) * len(lines.LOSSES_PERCENT)
    assert {line for _, group, line, _ in columns if "in the field" in group} == set(lines.FIELD)


def test_every_contender_has_a_row_and_numbered_ones_a_plot(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(grid, "PLOTS_DIR", str(tmp_path))
    metrics = (Metric("seconds", "elapsed", "s", "lower"), Metric("rate", "rate", "MiB/s"))
    names = ["NBD, 1 workers", "NBD, 8 workers", "cat | nc"]
    found = []
    for column in ("0 ms", "10 ms"):
        results = {name: [{"seconds": 2.0, "rate": 3.0}, {"seconds": 1.0}] for name in names}
        found += grid.figures("x", "ntfs, 1 Gbit/s", column, results, metrics, "A note.")
    assert [len(figure.id.split("/")) for figure in found] == [4] * 4
    text = grid.report("x")(found)
    rows = [line for line in text if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) == 3 and rows[2].startswith("| cat \\| nc | ")
    assert "elapsed, 0 ms (s)" in "".join(text) and "rate, 10 ms (MiB/s)" in "".join(text)
    assert rows[0].count(" – ") == 4
    assert os.listdir(tmp_path) == ["x-1.svg"] and any("](../plots/x-1.svg)" in line for line in text)


def test_a_receiver_writes_and_flushes_and_only_pipes_hash_on_the_way() -> None:
    assert transfer.Pipe("a", "cat {image}").receives("t") == "cat | tee t | md5sum && sync t"
    written = [pipe.receives("t") for pipe in receivers.RECEIVERS]
    assert written[0] == "dd of=t status=none && sync t"
    assert sum("md5sum" in line for line in written) == 1


def test_two_runs_of_gzip_differ_by_the_time_and_those_of_others_are_equal(tmp_path, monkeypatch) -> None:
    if not all(shutil.which(one.name) for one in compressed.COMPRESSORS):
        pytest.skip("needs gzip, bzip2, xz and zstd")
    monkeypatch.setattr(acquired, "drop_caches", lambda: None)
    (tmp_path / "image.raw").write_bytes(bytes(3 * MIB))
    image = acquired.AcquiredImage(str(tmp_path / "image.raw"), 3 * MIB, "")
    found = {one.name: compressed.compressed(one, image, str(tmp_path)) for one in compressed.COMPRESSORS}
    assert {name: one["equal"] for name, one in found.items()} == {"gzip": 0, "bzip2": 1, "xz": 1, "zstd": 1}
    same = compressed.Compressor("gzip", "gz", ("-n",))
    assert compressed.compressed(same, image, str(tmp_path))["equal"] == 1
    assert found["bzip2"]["bytes"] < found["gzip"]["bytes"] < 1 << 16
    assert os.listdir(tmp_path) == ["image.raw"]


def test_auto_is_compared_with_every_fixed_method_and_nothing_else() -> None:
    results = {f"cheetah acquire ({method})": [{"rate": 1.0}] for method in contents.METHODS} | {
        "cat | nc": [{"rate": 9.0}]
    }
    figure = contents.automatic("group", "random, 1GiB", results, "")
    assert figure.met() is True and figure.bar == contents.BAR and "cat | nc" not in figure.samples


def test_a_command_in_a_control_group_has_its_memory() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with Scratch() as scratch:
        try:
            with control_group.limited(scratch, 64 * MIB) as enter:
                assert os.path.basename(scratch.dir) in run([*enter(["cat", "/proc/self/cgroup"])])
        except BenchError as error:
            pytest.skip(str(error))
