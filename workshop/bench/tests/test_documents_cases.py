"""The documents' experiments that are measured case by case, in guests, and with much memory."""

from __future__ import annotations

import dataclasses
import inspect
import sys

import pytest

from bench import results_md
from bench.documents import guest_filesystems, guest_table, large, md, models, places
from bench.documents.filesystems import STEPS
from bench.harness import writeback
from bench.harness.cases import chosen
from bench.parts import thesis
from bench.settings import Settings
from cheetah.bench import verbs
from cheetah.bench.failure import BenchError
from cheetah.bench.units import GIB, MIB
from lab import disk

QUICK = Settings.of(True)
FAST, SLOW = {"rate": 400.0}, {"rate": 100.0}


def only(words: str) -> Settings:
    """The settings of a measurement of the cases with these words."""
    return Settings.of(False, only=words)


def test_cases_are_chosen_by_words_of_their_names_and_all_without_words() -> None:
    cases = ["2 nodes, read", "2 nodes, write", "4 nodes, read"]
    assert chosen(cases, only("")) == cases
    assert chosen(cases, only("2 nodes")) == cases[:2]
    assert chosen(cases, only("4 nodes, read")) == cases[2:]
    with pytest.raises(BenchError, match="there are: 2 nodes, read; 2 nodes, write; 4 nodes, read"):
        chosen(cases, only("8 nodes"))


@pytest.mark.parametrize("key", results_md.with_cases())
def test_a_part_with_cases_measures_those_that_are_chosen(key: str) -> None:
    __import__(results_md.module_of(key))
    assert "chosen(" in inspect.getsource(sys.modules[results_md.module_of(key)])


@pytest.mark.parametrize(("in_bytes", "ratio"), [("0", "20"), ("4096", "0")])
def test_the_kernel_writes_back_as_before_once_a_measurement_has_ended(tmp_path, in_bytes: str, ratio: str) -> None:
    files = {writeback.BYTES: in_bytes, writeback.RATIO: ratio}
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    with pytest.raises(KeyboardInterrupt), writeback.unwritten_at_most(MIB, tmp_path):
        assert (tmp_path / writeback.BYTES).read_text() == str(MIB)
        raise KeyboardInterrupt
    in_force = writeback.RATIO if in_bytes == "0" else writeback.BYTES
    assert (tmp_path / in_force).read_text().strip() == files[in_force]


def test_an_array_is_a_multiple_of_one_disk_on_the_same_way() -> None:
    results = {
        f"{array}, {side}": [FAST, FAST] if array != md.ONE else [SLOW, SLOW if side == md.OURS else FAST]
        for array in (md.ONE, *md.ARRAYS)
        for side in (md.OURS, md.MD)
    }
    times, rate = md.speed_ups(md.RAID_0, "read", results)
    assert times.samples == {md.OURS: [4.0, 4.0], md.MD: [4.0, 1.0]}
    assert rate.ours == md.OURS and rate.samples[md.MD] == [400.0, 400.0]
    assert all("model" in name for name in times.samples)


@pytest.mark.parametrize("disk_bytes", [md.DISK_BYTES, md.QUICK_DISK_BYTES])
def test_arrays_hold_what_is_written_to_them(disk_bytes: int) -> None:
    contents = [md.content_bytes(array, disk_bytes) for array in (md.ONE, md.RAID_5, md.RAID_0)]
    assert contents == sorted(contents) and contents[0] > 0
    assert contents[-1] < md.DISKS * disk_bytes


def test_disks_of_a_guest_are_files_that_no_cache_is_in_front_of() -> None:
    options = md.drives_of(["/a", "/b"])
    assert options[::2] == ["-drive"] * 2 and all("cache=none" in option for option in options[1::2])


def test_every_model_says_so_where_it_stands_in_a_row() -> None:
    names = (*places.MODELS, md.OURS, md.MD, models.MEASURED, models.OFF, models.NOTHING)
    assert [name for name in names if "(model)" not in name] == []


def stated() -> dict[str, disk.Allowed]:
    """What is allowed, as for a data sheet that states 100 of everything."""
    return {what: disk.Allowed("MB/s", 95.0, 105.0) for what in disk.JOBS}


def test_a_model_meets_its_data_sheet_within_what_is_allowed() -> None:
    rounds = [dict.fromkeys(disk.JOBS, value) for value in (101.0, 103.0, 104.0)]
    off, rate = list(models.figures_of("desktop", rounds, stated()))[:2]
    assert off.samples[models.OFF] == pytest.approx([0.2, 0.6, 0.8]) and off.met() is True
    assert rate.samples == {models.MEASURED: [101.0, 103.0, 104.0], models.STATED: [100.0]}
    (worse, *_) = models.figures_of("desktop", [dict.fromkeys(disk.JOBS, 94.0)], stated())
    assert worse.met() is False
    assert all("(model)" in figure.what for figure in (off, rate, worse))


def test_what_the_program_takes_is_compared_with_the_fastest_model() -> None:
    results = {
        name: [dict.fromkeys(disk.JOBS, per_s)]
        for name, per_s in (("ide", 75.0), ("velociraptor", 140.0), ("zero", 10_000.0))
    }
    *rates, overhead = models.overhead(results)
    assert len(rates) == len(disk.JOBS)
    assert overhead.samples[models.NOTHING] == [100.0]
    assert overhead.samples[models.FASTEST] == pytest.approx([1e6 / 140])
    assert len(models.overhead({"zero": results["zero"]})) == len(disk.JOBS), "nothing to compare with"


@pytest.mark.parametrize("count", [large.NODES, large.QUICK_NODES])
def test_no_fewer_nodes_hold_a_drive_that_gathers_them(count: int) -> None:
    assert (count - 1) * verbs.lent(large.SHARE_BYTES) < count * large.SHARE_BYTES


def test_the_largest_drive_leaves_memory_for_everything_else() -> None:
    available = 20 * GIB
    size = large.largest_bytes(available)
    lent = large.LARGEST_NODES * verbs.lent(size // large.LARGEST_NODES)
    assert size % (large.LARGEST_NODES * MIB) == 0
    assert available - large.KEPT_BYTES - GIB < lent <= available - large.KEPT_BYTES


@pytest.mark.parametrize("direct", [False, True])
def test_fio_has_a_job_for_each_row_of_the_table(direct: bool) -> None:
    jobs = guest_table.jobs(32 * MIB, 0.3, direct)
    assert list(jobs) == [key for key, _, _ in thesis.TABLE]
    for key, job in jobs.items():
        words = job.arguments()
        assert f"--direct={int(direct)}" in words and "--time_based" not in words
        assert ("--end_fsync=1" in words) == ("write" in key)
    assert "--rw=read:-8192" in jobs["backward"].arguments()


def test_a_guest_does_the_steps_of_the_other_file_systems(monkeypatch) -> None:
    programs = {name: f"/usr/bin/{name}" for name in guest_filesystems.PROGRAMS}
    assert tuple(guest_filesystems.commands(programs)) == STEPS

    @dataclasses.dataclass
    class Kernel:
        release: str = "6.12"

    monkeypatch.setattr(guest_filesystems, "kernel", Kernel)
    results = {"ext4 (model)": [dict.fromkeys(STEPS, 1.0)], "jfs (model)": [dict.fromkeys(STEPS, 2.0)]}
    figures = guest_filesystems.figures_of(results, ["reiserfs"])
    assert [figure.id for figure in figures] == [f"filesystems-guest/{step}" for step in STEPS]
    assert {figure.note for figure in figures} == {"The guest's kernel 6.12 has no reiserfs."}
