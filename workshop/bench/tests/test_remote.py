"""The parts over delayed links and the transfers: their reads, links, rows and tables. No time is tested."""

from __future__ import annotations

import os
import shutil

import pytest

from bench.harness.figures import Metric
from bench.harness.patience import Patience
from bench.images import acquired
from bench.parts import aoe
from bench.remote import compressed, contents, disks, lines, readahead, receivers, triage, tuning
from bench.report import grid
from bench.scratch import Scratch
from bench.settings import Settings
from bench.tools import control_group, extend, transfer
from cheetah.bench.failure import BenchError
from cheetah.bench.figure import Figure
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
    workers = [column for column in columns if column.counts == triage.WORKERS]
    assert len({(one.kind.fs, one.kind.size_bytes, one.line.link) for one in workers}) == 2 * 2 * 2 * 3
    lossy = [column for column in columns if "by loss" in column.group]
    assert len({(one.kind.fs, one.line) for one in lossy}) == 2 * len(lines.DELAYS_MS) * len(lines.LOSSES_PERCENT)
    assert all(column.over_one for column in lossy)
    assert {column.line for column in columns if "in the field" in column.group} == set(lines.FIELD)
    assert [column.kind.fs for column in columns if column.has_the_bar] == list(triage.FILE_SYSTEMS)
    assert len({(column.group, column.line) for column in columns}) == len(columns)


def test_a_read_is_extended_in_each_direction_and_way() -> None:
    for iscsi in (False, True):
        ways = readahead.ways(iscsi, quick=False)
        assert len(ways) == 2 + 3 * 2 * 6
        found = grid.numbered(list(ways))
        assert found is not None and found.numbers == [4, 8, 16, 64, 256, 1024]
        assert set(found.others) == {"a cache alone", "cheetah mount"}


def test_peers_are_waited_for_by_our_longest_time_within_limits() -> None:
    patience = Patience(6, 30, 600)
    assert patience.limit_s == 600, "nothing is known"
    patience.saw(20)
    patience.saw(2)
    assert patience.limit_s == 120
    short = Patience(6, 30, 600)
    short.saw(1)
    assert short.limit_s == 30
    short.saw(1000)
    assert short.limit_s == 600


def of_columns(names: list[str], columns: tuple[str, ...] = ("0 ms", "10 ms")) -> list[Figure]:
    """The figures of these contenders under two conditions."""
    metrics = (Metric("seconds", "elapsed", "s", "lower"), Metric("rate", "rate", "MiB/s"))
    found = []
    for column in columns:
        results = {name: [{"seconds": 2.0, "rate": 3.0}, {"seconds": 1.0}] for name in names}
        found += grid.figures("x", "ntfs, 1 Gbit/s", column, results, metrics, "A note.")
    return found


def test_every_contender_has_a_row_and_numbered_ones_a_plot_of_lines(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(grid, "PLOTS_DIR", str(tmp_path))
    found = of_columns(["NBD, 1 worker", "NBD, 4 workers", "NBD, 8 workers", "nc | cat"])
    assert [len(figure.id.split("/")) for figure in found] == [4] * 4
    text = grid.report("x")(found)
    rows = [line for line in text if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) == 4 and rows[3].startswith("| nc \\| cat | ")
    assert "elapsed, 0 ms (s)" in "".join(text) and "rate, 10 ms (MiB/s)" in "".join(text)
    assert rows[0].count(" – ") == 4
    assert os.listdir(tmp_path) == ["x-1.svg"] and any("](../plots/x-1.svg)" in line for line in text)
    drawing = (tmp_path / "x-1.svg").read_text()
    assert "elapsed by worker (s)" in drawing and ">nc | cat, 10 ms<" in drawing and ">8<" in drawing


def test_many_lines_have_a_panel_for_each_condition(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(grid, "PLOTS_DIR", str(tmp_path))
    ways = [f"read-{side} by {how}" for side in ("ahead", "behind") for how in ("one larger read", "a second read")]
    names = [f"{way}, {size} KiB" for way in ways for size in (4, 64, 1024)] + ["cheetah mount"]
    text = grid.report("x")(of_columns(names))
    assert sorted(os.listdir(tmp_path)) == ["x-1-rate.svg", "x-1-seconds.svg"]
    assert sum(line.startswith("![") for line in text) == 2
    drawing = (tmp_path / "x-1-seconds.svg").read_text()
    assert "elapsed by KiB, 0 ms (s)" in drawing and "elapsed by KiB, 10 ms (s)" in drawing
    assert drawing.count(">cheetah mount<") == 1, "once in the legend"


def test_contenders_without_numbers_have_bars_with_a_chart_for_each_condition_and_unit(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(grid, "PLOTS_DIR", str(tmp_path))
    grid.report("x")(of_columns(["nc | dd", "nc | cat", "zeros by gzip, 1043683 bytes"]))
    drawing = (tmp_path / "x-1.svg").read_text()
    assert [f"{column} ({unit})" in drawing for column in ("0 ms", "10 ms") for unit in ("s", "MiB/s")] == [True] * 4
    assert drawing.count(">nc | dd<") == 4


def test_keys_with_numbers_have_lines_and_those_with_words_bars() -> None:
    assert grid.numbered(["commands=1", "commands=4", "commands=16"]) is not None
    assert grid.numbered(["ImmediateData=No", "ImmediateData=Yes"]) is None
    found = grid.numbered(["a drive, 4 clients, 1 in flight", "a drive, 4 clients, 4 in flight"])
    assert found is None, "two numbers make no curve"


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


def test_mixed_content_that_is_too_small_for_a_file_system_is_a_piece_of_one(tmp_path, monkeypatch) -> None:
    if not shutil.which("mkfs.ext4"):
        pytest.skip("needs mkfs.ext4")
    with Scratch(str(tmp_path)) as scratch:
        images = acquired.Images(scratch)
        piece, whole = images.get("mixed", MIB), images.get("mixed", acquired.PIECE_OF_BYTES)
        with open(piece.path, "rb") as cut, open(whole.path, "rb") as file:
            content = cut.read()
            assert len(content) == MIB and content in file.read()


def test_every_image_is_made_on_both_disks_if_it_fits_into_memory() -> None:
    found = contents.images(Settings.of(quick=False))
    assert len(found) == len(set(found)) == 3 * (2 * 2 + 1)
    assert {(disk, size) for disk, _, size in found if size > contents.SLOW_DISK_BYTES_MAX} == {
        (disks.FAST, contents.SIZES_BYTES[-1])
    }


def test_tune_is_judged_beside_every_setting_and_beside_those_of_the_same_kernel() -> None:
    kernels = tuning.kernels("1gbit", quick=False)
    assert len(kernels) == 4 and kernels[0] == tuning.USUAL
    assert [kernel.control for kernel in tuning.kernels("100mbit", quick=False)] == ["cubic", "bbr"]
    hand = {tuning.by_hand(connections, kernel): 100.0 for kernel in kernels for connections in tuning.PORTS}
    hand[tuning.by_hand(8, kernels[-1])] = 110.0
    mine = {tuning.tuned(how, kernel): 101.0 for kernel in kernels for how in tuning.TUNINGS}
    results = {name: [{"rate": rate}] for name, rate in (mine | hand).items()}
    figures = tuning.judged(lines.line("1gbit", 10), results, "")
    assert [figure.met() for figure in figures] == [False, True, False, True]
    assert len({figure.id for figure in figures}) == len(figures) == 4
    assert [len(figure.samples) for figure in figures[:2]] == [1 + 4 * 3, 1 + 3]


def test_auto_is_compared_with_every_fixed_method_and_nothing_else() -> None:
    results = {f"cheetah acquire ({method})": [{"rate": 1.0}] for method in contents.METHODS} | {
        "cat | nc": [{"rate": 9.0}]
    }
    figure = contents.automatic("group", "random, 1GiB", results, "")
    assert figure.met() is True and figure.bar == contents.BAR and "cat | nc" not in figure.samples


def test_each_target_of_aoe_has_a_device_of_its_own() -> None:
    devices = [disk.device(target) for disk in (aoe.NOISE, aoe.EXAMINED) for target in aoe.TARGETS]
    assert len(set(devices)) == len(devices) == 6 and devices[0] == "/dev/etherd/e7.1"
    assert {target.interface for target in aoe.TARGETS} == {there for _, there, _ in aoe.LINKS}


def test_a_command_in_a_control_group_has_its_memory() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with Scratch() as scratch:
        try:
            with control_group.limited(scratch, 64 * MIB) as enter:
                assert os.path.basename(scratch.dir) in run([*enter(["cat", "/proc/self/cgroup"])])
        except BenchError as error:
            pytest.skip(str(error))
