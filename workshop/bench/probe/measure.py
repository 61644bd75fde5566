"""Benchmarks `cheetah probe`: gaps of trains beside other tools, capacity and round trips of emulated paths, SO_TXTIME
in a kernel that has it, and the tables of the paper that it follows. See bench/README.md."""

from __future__ import annotations

from collections.abc import Callable

from bench.harness.rounds import interleave
from bench.probe import paths, seed, stages, txtime
from bench.probe.gaps import NOTE, PACKETS, measure_gaps
from bench.probe.senders import MMSG, OURS, PROGRAMS, SPIN, Sender, ours, serve_iperf3
from bench.probe.stand import Stand, stand
from bench.probe.tables import save
from bench.probe.trains import TrainRequest, gaps_us, percentile
from bench.settings import Settings
from cheetah.bench.figure import Figure

BACK_TO_BACK_SHARE = 0.75


def measure_back_to_back(at: Stand, settings: Settings) -> list[Figure]:
    """Measures back-to-back sending: the smallest gap, hence the fastest link that a pair can measure."""
    asked = TrainRequest(PACKETS, 0, 10 if settings.quick else 60)

    def turn(send: Sender) -> Callable[[], dict[str, float]]:
        return lambda: {"gap": percentile(gaps_us(send(at, asked).arrived), 0.5)}

    # Back-to-back packets have no schedule to keep.
    senders = {OURS: ours("--gap-error-max", "1s"), MMSG: PROGRAMS[MMSG], SPIN: PROGRAMS[SPIN]}
    measured = interleave("back to back", settings.rounds, {name: turn(send) for name, send in senders.items()}, "gap")
    gaps = {name: [one["gap"] for one in rounds] for name, rounds in measured.items()}
    what = "back to back: median gap"
    mmsg = {name: gaps[name] for name in (OURS, MMSG)}
    return [
        Figure("probe/back-to-back", what, "µs", OURS, mmsg, "lower", BACK_TO_BACK_SHARE, NOTE),
        Figure(
            "probe/back-to-back-sendto",
            f"{what}, beside sendto",
            "µs",
            OURS,
            {name: gaps[name] for name in (OURS, SPIN)},
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
        figures += measure_back_to_back(at, settings)
        tables += [stages.table(at, settings), *seed.tables(at, settings)]
    for part in (seed.behind_links, paths.measure, txtime.measure):
        more = part(settings)
        figures, tables, plots = figures + more[0], tables + more[1], plots + more[2]
    save(tables, plots)
    return figures
