"""The evaluation of the probe's benchmark, without sending packets."""

from __future__ import annotations

import math
import struct

import pytest

from bench.probe import available, backends, clocks, rates, shapes, simulated, stages, txtime
from bench.probe.capture import HEADER, PACKETS, PCAP_NANOSECONDS, RECORD, read_pcap, whole
from bench.probe.gaps import errors
from bench.probe.paths import emulated_ms
from bench.probe.tables import Table
from bench.probe.trains import (
    Arrivals,
    SentTrain,
    TrainRequest,
    TrainResults,
    Which,
    gap_errors_us,
    gap_of_rate_ns,
    percentile,
    rates_bits,
    read_arrivals,
    read_trains,
    split,
    stamp_errors_us,
    three,
)
from bench.report.curves import Chart, distribution, histogram, render
from cheetah.bench.failure import BenchError


def test_a_percentile_is_one_of_the_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, share) for share in (0.0, 0.2, 0.5, 0.99, 1.0)] == [1.0, 1.0, 3.0, 5.0, 5.0]
    assert math.isnan(percentile([], 0.5))


def test_what_arrived_belongs_to_the_train_that_was_due() -> None:
    starts = [1_000_000, 2_000_000]
    arrived = [2_010_000, 900_000, 960_000, 1_500_000, 1_940_000, 1_960_000]
    assert split(arrived, starts) == [[960_000, 1_500_000, 1_940_000], [1_960_000, 2_010_000]]
    assert split(arrived, []) == []


def test_gaps_are_judged_up_and_down() -> None:
    sent = TrainResults([SentTrain([0, 10_100, 19_900], [0, 10_000, 20_000], accepted=True), SentTrain([5, 10_005])], 3)
    assert gap_errors_us(sent, 10_000) == pytest.approx([0.1, 0.2, 0.0])
    assert stamp_errors_us(sent) == pytest.approx([0.0, 0.1, -0.1])
    assert sent.share(Which.ACCEPTED) == pytest.approx(1 / 3)
    assert (sent + TrainResults([], 1)).trains == 4


def test_trains_disturbed_by_the_host_and_spoiled_ones_are_shown_apart() -> None:
    good, spoiled = SentTrain([0, 50_000], accepted=True, host_ns=0), SentTrain([0, 90_000], accepted=False, host_ns=0)
    disturbed, unknown = SentTrain([0, 70_000], accepted=False, host_ns=25_000), SentTrain([0, 50_000])
    sent = TrainResults([good, spoiled, disturbed, unknown], 4)
    assert [len(sent.only(which).sent) for which in Which] == [4, 3, 1]
    assert [sent.share(which) for which in Which] == [1.0, 0.75, 0.25]
    assert errors(sent, 50_000) == ["0 / 40.0 (4)", "0 / 40.0 (3)", "0 / 0 (1)"]
    assert errors(TrainResults([disturbed], 1), 50_000)[1:] == ["none", "none"]


def test_a_sender_without_self_check_has_a_dash_and_trains_in_part_are_counted() -> None:
    sent = TrainResults([SentTrain([0, 50_000], host_ns=0), SentTrain([0, 70_000], host_ns=25_000)], 3)
    assert errors(sent, 50_000) == ["0 / 20.0 (2 of 3)", "0 / 0 (1)", "–"]
    assert three(TrainResults([], 2), lambda _: "unused") == ["none", "none", "–"]


def test_a_burst_is_judged_in_blocks_unless_packets_are_missing() -> None:
    arrived = list(range(0, 2 * clocks.BLOCK * 3000, 3000))
    sent = clocks.blocks(arrived, [0, 25_000], len(arrived))
    assert [len(sent.only(which).sent) for which in Which] == [2, 1, 0]
    assert sent.sent[1].arrived[0] == clocks.BLOCK * 3000
    assert [train.host_ns for train in clocks.blocks(arrived, [], len(arrived)).sent] == [None, None]
    missing = clocks.blocks(arrived[1:], [0, 25_000], len(arrived))
    assert (len(missing.sent), missing.sent[0].host_ns) == (1, 25_000)
    assert clocks._smallest(sent) == "3.00 / 3.00 / 3.00 / 3.00 / 3.00"


def test_trains_that_a_tool_stamped_in_part_are_counted_only() -> None:
    seen = whole([list(range(PACKETS)), [1, 2]], [0, None])
    assert (len(seen.sent), seen.count(Which.ALL)) == (1, "1 of 2")


def test_the_stage_at_which_packets_were_delayed_is_told() -> None:
    late_sender = SentTrain([1_000, 91_000], [0, 90_000], [2_000, 92_000])
    cells = stages.row(TrainResults([late_sender], 1), 50_000)
    assert cells == ["40.0 / 40.0", "40.0 / 40.0", "40.0 / 40.0", "1.00 / 1.00", "1.00 / 1.00"]
    late_receiver = SentTrain([1_000, 51_000], [], [2_000, 92_000])
    cells = stages.row(TrainResults([late_receiver], 1), 50_000)
    assert (cells[0], cells[1].split(" / ")[1], cells[2].split(" / ")[1]) == ("not stamped", "0", "40.0")


def test_the_parts_of_a_delay_and_whether_arrivals_wait_are_said_by_the_figures() -> None:
    gap = stages.GAP_NS

    def sent(late_ns: int, wait_ns: int) -> TrainResults:
        left = [0, gap + late_ns]
        arrived = [1_000, gap + late_ns + 1_000]
        return TrainResults([SentTrain(arrived, left, [1_500, arrived[1] + 500 + wait_ns], host_ns=0)], 1)

    judged = {(stages.PLAIN, loops, "xdp"): sent(2_000, 0) for loops in stages.LOADS}
    said = stages.conclusion({**judged, (stages.RPS, 2, "xdp"): sent(3_000, 0)})
    assert "xdp: 2.00 µs the sender, 0 µs the veth pair, 0 µs the receiver" in said
    assert "is refuted: from arrival to processing p99 is at most 0.500 µs" in said
    assert "by xdp is then 3.00 µs, beside 2.00 µs" in said
    waiting = stages.conclusion({**judged, (stages.PLAIN, 2, "ring"): sent(0, 4_000_000)})
    assert "is not refuted" in waiting and "4 000 µs with 2 busy loops" in waiting
    assert stages.conclusion({}) == ""


def test_each_sender_has_a_row_for_all_trains_those_without_host_disturbance_and_those_accepted() -> None:
    rows = stages._rows({(stages.PLAIN, 0, "sequential"): TrainResults([SentTrain([0, stages.GAP_NS])], 1)})
    assert [row[3] for row in rows] == ["all (1)", "without host disturbance (1)", "accepted (0)"]
    assert rows[2][4:] == ["–"] * 5


def test_a_rate_and_its_gap_are_two_sides() -> None:
    gap_ns = gap_of_rate_ns(50e6)
    assert gap_ns == 242_240
    assert rates_bits([[0, gap_ns, 2 * gap_ns], [7], [7, 7]], 1500) == [pytest.approx(50e6)]
    assert TrainRequest(50, 242_000, 1).span_ns == 49 * 242_000


def test_what_programs_print_is_read() -> None:
    assert read_trains("10 11\n20 21\n\n30 32\n40 42\n\n") == (
        [[10, 20], [30, 40]],
        [[11, 21], [32, 42]],
        [None, None],
    )
    assert read_trains("10 11\nhost 7000\n\n")[2] == [7000]
    # A packet of another size belongs to no train.
    lines = ["7 1500", "8 32", "9 1500", "ingress 8 1500", "ingress 9 32", "dropped 2", "10 1500"]
    assert read_arrivals(lines, 1500) == Arrivals([7, 9], [8], 2)


def test_a_capture_is_read_up_to_where_it_is_cut_off() -> None:
    header = HEADER.pack(PCAP_NANOSECONDS, 2, 4, 0, 0, 64, 1)
    records = [RECORD.pack(2, number, 4, 1514) + b"\0" * 4 for number in (1, 2, 3)]
    assert read_pcap(header + b"".join(records)[:-1]) == [2_000_000_001, 2_000_000_002]
    with pytest.raises(BenchError):
        read_pcap(struct.pack("<I", 0xA1B2C3D4) + header[4:])
    with pytest.raises(BenchError):
        read_pcap(b"")


def test_a_slow_wire_is_part_of_the_round_trip() -> None:
    assert emulated_ms(10) == pytest.approx(2 + 2 * 0.0784)
    assert emulated_ms(1000) == pytest.approx(2, abs=0.002)


def test_a_distribution_ends_with_all_and_a_histogram_counts_all() -> None:
    curve = distribution("some", [3.0, 1.0, 2.0])
    assert (list(curve.values), list(curve.shares)) == ([1.0, 2.0, 3.0], pytest.approx([1 / 3, 2 / 3, 1.0]))
    assert distribution("none", []).values == []
    bars = histogram("some", [0.5, 1.5, 1.6, 9.0], 0.0, 2.0, 2)
    assert (bars.values, bars.shares) == ([0.0, 1.0, 1.0, 2.0], [0.25, 0.25, 0.5, 0.5])
    drawn = render([Chart("a & b", "µs", [curve]), Chart("empty", "µs", [], False), Chart("bars", "µs", [bars], False)])
    assert drawn.startswith("<svg") and "a &amp; b" in drawn and "nan" not in drawn


def test_a_table_is_a_table() -> None:
    lines = Table("T", ["a", "b"], [["1", "2"]], "why").lines()
    assert lines == ["**T**", "", "| a | b |", "|---|---|", "| 1 | 2 |", "", "why", ""]


def _console(backend: str, late_ns: int, held: int) -> str:
    due = [number * 200_000_000 for number in range(1, txtime.PACKETS + 1)]
    lines = [
        '@fq sent {"event":"train","due_ns":' + str(due) + "}",
        f'@fq sent {{"event":"done","backend":"{backend}"}}',
    ]
    lines += [f"@fq arrived {time + late_ns} {txtime.IP_BYTES}" for time in due]
    return "\r\n".join(
        ["some kernel's word", *lines, "@fq arrived dropped 0", f"@fq queue  backlog 9000b {held}p requeues 0"]
    )


def test_packets_that_waited_in_the_kernel_and_left_when_due_pass() -> None:
    turn = txtime.read(_console("txtime-fq", 1_000_000, 11))["fq"]
    assert turn.problems("fq") == []
    assert (turn.on_time(), turn.held_max) == (txtime.PACKETS, 11)


@pytest.mark.parametrize(
    ("backend", "late_ns", "held"), [("ring", 0, 11), ("txtime-fq", 900_000_000, 11), ("txtime-fq", 0, 1)]
)
def test_another_backend_a_late_packet_and_an_empty_queue_fail(backend: str, late_ns: int, held: int) -> None:
    assert len(txtime.read(_console(backend, late_ns, held))["fq"].problems("fq")) == 1


def test_an_emulated_machine_that_said_nothing_fails() -> None:
    assert len(txtime.problems_of(txtime.read(""))) == 6


def test_an_estimate_is_right_not_known_or_wrong() -> None:
    assert available.error_percent(45.0, 100, 50) == pytest.approx(10.0)
    assert available.verdict([50.0, 57.0, None, 60.0], 100, 50) == "2 right, 1 not known, 1 wrong"
    judged = [shapes.judge(found, 100) for found in (101.9, 98.1, 97.9, None)]
    assert judged == [shapes.RIGHT, shapes.RIGHT, shapes.WRONG, shapes.NOT_KNOWN]


def test_every_shape_of_a_quick_run_exists() -> None:
    assert set(shapes.QUICK) <= {shape.what for shape in shapes.SHAPES}


def test_backends_that_are_equal_are_both_the_best() -> None:
    assert backends.best({"xdp": 1.0, "ring": 1.04, "slow": 1.2, "other": None}) == {"xdp", "ring"}
    assert backends.best({"xdp": None}) == set()
    disturbed = SentTrain([0, 90_000], host_ns=30_000)
    assert backends.value(TrainResults([disturbed], 1), 50) is None
    assert backends.value(TrainResults([SentTrain([0, 2_000])], 1), 0) == 2.0
    accepted = TrainResults([disturbed, SentTrain([0, 52_000], accepted=True)], 2)
    assert backends._cells(accepted, 50, True) == ["40.0 (2)", "**2.00 (1)**", "2.00 (1)"]


def test_a_rate_has_a_bound_and_a_peer_and_cross_traffic_a_peer() -> None:
    exact, spoiled = SentTrain([0, 12_112], host_ns=0), SentTrain([0, 90_000], host_ns=30_000)
    assert rates.rate_error_percent(TrainResults([exact, spoiled], 2), 1000) == rates.ERROR_PERCENT_MIN
    assert rates.rate_error_percent(TrainResults([spoiled], 1), 1000) is None
    assert rates.p99_us(TrainResults([SentTrain([0, 53_000])], 1)) == pytest.approx(3.0)
    by_id = {figure.id: figure for figure in rates.rate_figures(1000, {rates.OURS: [0.3], rates.SPIN: [0.4]})}
    assert (by_id["probe-rates/1000mbit/error"].met(), by_id["probe-rates/1000mbit/peer"].met()) == (False, True)
    assert [figure.met() for figure in rates.rate_figures(5, {rates.SPIN: [0.4]})] == [None, None]
    figure = rates.cross_figure(rates.CROSS[-1], {rates.OURS: [4.0], rates.SPIN: [9.0]})
    assert (figure.id, figure.met()) == ("probe-rates/cross/as-fast-as-tcp-goes", True)
    assert [rates.trains_at(gap_ns, quick=False) for gap_ns in (12_112, 2_422_400)] == [40, 3]


def _frame(port: int) -> bytes:
    return bytes(12) + b"\x08\x00" + bytes(9) + bytes([simulated.UDP]) + bytes(12) + port.to_bytes(2, "big")


def test_departures_of_a_simulated_machine_are_told_apart_by_their_ports() -> None:
    header = simulated.PCAP.pack(simulated.MICROSECONDS, 2, 4, 0, 0, 64, 1)
    stamps = [(41_000, 0), (41_001, 5), (41_000, 245)]
    records = [simulated.RECORD.pack(0, at, 38, 1042) + _frame(port) for port, at in stamps]
    # A packet of another protocol, and a record that is cut off.
    other = simulated.RECORD.pack(0, 1, 38, 60) + bytes(38)
    left = simulated.read_departures(header + other + b"".join(records) + records[0][:-1])
    assert left == {41_000: [0, 245_000], 41_001: [5_000]}
    with pytest.raises(BenchError):
        simulated.read_departures(b"")


def _simulated(trains: int, late_us: int = 0) -> list[int]:
    """Returns when packets left in nanoseconds; the third of each train is late."""
    return [
        1000 * (train * 30_000 + number * simulated.GAP_US + (late_us if number == 2 else 0))
        for train in range(trains)
        for number in range(simulated.PACKETS)
    ]


def test_simulated_departures_are_split_into_trains_however_long_a_gap_is() -> None:
    left = _simulated(2)
    late = [at + 20_000_000 * (at > left[40]) for at in left]
    assert list(map(len, simulated.in_trains(late, 2))) == [simulated.PACKETS] * 2
    # Without one packet, by the pauses.
    assert list(map(len, simulated.in_trains(left[1:], 2))) == [simulated.PACKETS - 1, simulated.PACKETS]
    assert simulated.in_trains([], 2) == []


def test_what_senders_of_the_simulated_machine_say_belongs_to_their_trains() -> None:
    console = '@41000 train "host":0\n@41000 train "verdict":"accepted"\n@41001 train host 25000\n@41000 problem no\n'
    assert simulated.read_checks(console) == {
        (41_000, "host"): ["0"],
        (41_000, "verdict"): ["accepted"],
        (41_001, "host"): ["25000"],
    }
    assert simulated.read_processor_ms("x\n@41000 processor 0.12 0.03\n@41001 problem no\n") == {
        41_000: pytest.approx(150.0)
    }
    sent = simulated.results(_simulated(2), 2, ["0", "25000"], ["accepted", "spoiled"])
    assert [sent.count(which) for which in Which] == ["2", "1", "1"]
    # Fewer words than trains.
    assert [simulated.results(_simulated(2), 2, ["25000"], []).count(which) for which in Which] == ["2", "2", "0"]


def test_simulated_errors_are_no_smaller_than_stamps_resolve_and_lost_packets_give_none() -> None:
    assert simulated.p99_us(simulated.results(_simulated(2), 2, [], [])) == simulated.STAMP_US
    assert simulated.p99_us(simulated.results(_simulated(2, late_us=7), 2, [], [])) == pytest.approx(7.0)
    lost = simulated.results(_simulated(2)[1:], 2, [], [])
    assert (simulated.p99_us(lost), lost.count(Which.ALL)) == (None, "1 of 2")
    assert simulated.p99_us(simulated.results([], 2, [], [])) is None


def _measured(late_us: dict[tuple[str, str], list[int]]) -> dict[simulated.Turn, list[TrainResults]]:
    """Returns results of rounds in which the third packet of each train was late."""
    return {
        turn: [simulated.results(_simulated(2, late), 2, [], []) for late in late_us[turn.load, turn.sender]]
        for turn in simulated.turns()
        if (turn.load, turn.sender) in late_us
    }


def test_the_best_backends_of_the_simulated_machine_are_bold_and_counted() -> None:
    measured = _measured(
        {("idle", "xdp"): [1, 30, 30], ("idle", "ring"): [1, 1, 9], ("idle", "spin + sendto"): [0, 0, 0]}
    )
    used = {turn: [200.0, 300.0] if turn.sender == "ring" else [40.0, 90.0] for turn in measured}
    rows = {(row[0], row[1]): row[2] for row in simulated.rows(measured, used)}
    assert rows["idle", "ring"].startswith("**") and rows["idle", "xdp"] == "0 / 30.0 / 30.0 (6)"
    assert not rows["idle", "spin + sendto"].startswith("**")
    assert [rows["loads under which it is the best", name] for name in ("ring", "xdp")] == ["1", "0"]
    assert [
        rows["loads under which it is the one with the least processor time", name] for name in ("ring", "xdp")
    ] == ["0", "1"]
    assert {row[1]: row[5] for row in simulated.rows(measured, used) if row[0] == "idle"} == {
        "xdp": "**65.0**",
        "ring": "250",
        "spin + sendto": "65.0",
    }
    assert simulated.cross_traffic([0, 1_000_000, 2_000_000]).startswith("Cross traffic is 1,000 packets")
    assert "failed" in simulated.cross_traffic([])


def test_each_sender_of_the_simulated_machine_has_a_port_and_a_bar() -> None:
    turns = simulated.turns()
    assert len({turn.port for turn in turns}) == len(turns)
    assert all(f"turn {turn.port} " in simulated.script(2) for turn in turns)
    late_us = {("idle", "xdp"): [2, 2], ("idle", "ring"): [9, 9], ("idle", "sequential"): [8, 8]}
    measured = _measured({**late_us, ("one busy loop", "ring"): [1, 1], ("one busy loop", "spin + sendto"): [0, 0]})
    by_id = {figure.id: figure for figure in simulated.figures(measured)}
    assert by_id["probe-simulated/idle/p99"].met() and by_id["probe-simulated/idle/peers"].met()
    assert by_id["probe-simulated/idle/peers"].samples[simulated.OURS] == pytest.approx([2.0, 2.0])
    # Errors below the resolution of stamps are equal.
    assert by_id["probe-simulated/one-busy-loop/peers"].ratio() == 1.0
    assert by_id["probe-simulated/cross-traffic/peers"].samples == {}


def test_a_backend_that_loses_packets_in_the_simulated_machine_does_not_compete() -> None:
    measured = _measured({("idle", "ring"): [1, 1], ("idle", "xdp"): [3, 3]})
    ring = next(turn for turn in measured if turn.sender == "ring")
    measured[ring][1] = simulated.results(_simulated(2)[1:], 2, [], [])
    by_id = {figure.id: figure for figure in simulated.figures(measured)}
    assert by_id["probe-simulated/idle/p99"].samples[simulated.OURS] == pytest.approx([3.0, 3.0])
    assert dict((row[1], row[2]) for row in simulated.rows(measured, {}) if row[0] == "idle")["xdp"].startswith("**")
