"""Benchmarks `cheetah probe`: gaps of trains beside other tools, capacity and round trips of emulated paths, SO_TXTIME
in a kernel that has it, and the tables of the paper that it follows. See bench/README.md."""

from __future__ import annotations

import functools

from bench.harness.rounds import interleave
from bench.probe import paths, seed, stages, txtime
from bench.probe.gaps import NOTE, PACKETS, measure_gaps
from bench.probe.senders import MMSG, OURS, PROGRAMS, SPIN, Sender, ours, serve_iperf3
from bench.probe.stand import Stand, stand
from bench.probe.tables import Table, save
from bench.probe.trains import TRAINS, TrainRequest, TrainResults, Which, gaps_us, percentile, three
from bench.settings import Settings
from cheetah.bench.figure import Figure
from cheetah.bench.units import short

BACK_TO_BACK_SHARE = 0.75


def _turn(send: Sender, at: Stand, asked: TrainRequest) -> dict[str, object]:
    """Returns the median gap of trains that the host did not disturb, and all trains."""
    sent = send(at, asked)
    gaps = gaps_us(sent.only(Which.UNDISTURBED).arrived)
    return {"gap": percentile(gaps, 0.5) if gaps else None, "sent": sent}


def measure_back_to_back(at: Stand, settings: Settings) -> tuple[list[Figure], Table]:
    """Measures back-to-back sending: the smallest gap, hence the fastest link that a pair can measure."""
    asked = TrainRequest(PACKETS, 0, 10 if settings.quick else 60)
    # Back-to-back packets have no schedule to keep.
    senders = {OURS: ours("--gap-error-max", "1s"), MMSG: PROGRAMS[MMSG], SPIN: PROGRAMS[SPIN]}
    turns = {name: functools.partial(_turn, send, at, asked) for name, send in senders.items()}
    measured = interleave("back to back", settings.rounds, turns, "gap")
    table = Table("Trains sent back to back (median gap, µs)", ["sender", *TRAINS])
    for name, rounds in measured.items():
        sent = functools.reduce(TrainResults.__add__, [one["sent"] for one in rounds])
        median = three(sent, lambda counted: short(percentile(gaps_us(counted.arrived), 0.5)))
        table.rows.append([name, *median])
    gaps = {name: [one["gap"] for one in rounds if one["gap"] is not None] for name, rounds in measured.items()}
    return _back_to_back_figures({name: found for name, found in gaps.items() if found}), table


def _back_to_back_figures(gaps: dict[str, list[float]]) -> list[Figure]:
    what = "back to back: median gap"
    mmsg = {name: found for name, found in gaps.items() if name in (OURS, MMSG)}
    return [
        Figure("probe/back-to-back", what, "µs", OURS, mmsg, "lower", BACK_TO_BACK_SHARE, NOTE),
        Figure(
            "probe/back-to-back-sendto",
            f"{what}, beside sendto",
            "µs",
            OURS,
            {name: found for name, found in gaps.items() if name in (OURS, SPIN)},
            "lower",
            None,
            NOTE,
        ),
    ]


def measure(settings: Settings) -> list[Figure]:
    """Runs all of it and returns the figures."""
    with stand() as at:
        print("probe: trains over a veth pair, the receiver's kernel being the judge", flush=True)
        serve_iperf3(at)
        figures, tables, plots = measure_gaps(at, settings)
        more, table = measure_back_to_back(at, settings)
        figures += more
        tables += [table, stages.table(at, settings), *seed.tables(at, settings)]
    for part in (seed.behind_links, paths.measure, txtime.measure):
        found = part(settings)
        figures, tables, plots = figures + found[0], tables + found[1], plots + found[2]
    save(tables, plots)
    return figures
