//! Measures the available bandwidth by trains sent at a rate.

use std::time::Duration;

use super::capacity;
use super::options::{Aspect, Options};
use super::prober::Prober;
use super::problem::{AvailableProblem, Problem};
use super::stop::{Outcome, Stop};
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::estimate::available::{FLEET_TRAINS, FULL_TRAINS, Search, Trend, growth, trend};
use crate::frame::ETHERNET_BYTES;
use crate::path::Available;
use crate::schedule::Pattern;

/// Packets in a train: enough for a trend, few enough for a queue of a few dozen.
const PACKETS: usize = 48;
/// The fewest packets of trains that would take longer than this.
const PACKETS_SLOW: (usize, Duration) = (24, Duration::from_millis(250));
/// Fleets at most: those of the search, and those at the capacity.
const FLEETS_MAX: u32 = 12 + FULL_TRAINS.1 as u32 / FLEET_TRAINS;
/// The time limit.
const TAKES_MAX: Duration = Duration::from_secs(30);
/// Idle time after a train, as a multiple of its duration, so that the probes do not load the path themselves.
const IDLE: u32 = 2;

/// Measures below the capacity. Adds to `problems` why it cannot be measured.
pub(super) fn measure(
    wire: &mut Wire<'_>,
    probers: &mut [Prober],
    options: &Options,
    found: &capacity::MeasuredCapacity,
    problems: &mut Vec<Problem>,
) -> Outcome<Available> {
    if found.capacity.at_least {
        problems.push(Problem::Available(AvailableProblem::TooFast));
        return (None, Ok(()));
    }
    if found.capacity.batched {
        problems.push(Problem::Available(AvailableProblem::Batched));
        return (None, Ok(()));
    }
    let Some(prober) = probers.get_mut(found.prober) else { return (None, Ok(())) };
    let capacity = found.capacity.bits_per_s;
    let mut search = Search::new(capacity);
    let until = Nanos::now() + TAKES_MAX;
    let (mut fleets, mut ended) = (0, Ok(()));
    while let Some(rate) = search.rate().filter(|_| fleets < FLEETS_MAX) {
        match fleet(wire, prober, options, found.ip_bytes, rate, until) {
            Ok(Some(Fleet { trends, growths, silent })) if silent * 2 <= trends.len() => {
                search.note(rate, &trends, &growths);
            }
            Ok(Some(_)) => {
                problems.push(Problem::Available(AvailableProblem::Silent { rate }));
                return (None, Ok(()));
            }
            result => {
                ended = result.map(|_| ());
                problems.push(Problem::Available(AvailableProblem::EndedEarly));
                break;
            }
        }
        fleets += 1;
        wire.watch.progress(Aspect::Available, fleets, FLEETS_MAX);
    }
    let found = search.available().map_err(|why| problems.push(Problem::Available(AvailableProblem::Unknown(why))));
    (found.ok(), ended)
}

/// Trains at one rate.
struct Fleet {
    trends: Vec<Trend>,
    /// The growth of the delays of those that were answered whole.
    growths: Vec<f64>,
    /// Trains of which less than half was answered: a silent host looks the same as a full path.
    silent: usize,
}

/// Sends a fleet at `rate`; returns `None` if too few of its trains left on time.
fn fleet(
    wire: &mut Wire<'_>,
    prober: &mut Prober,
    options: &Options,
    ip_bytes: usize,
    rate: f64,
    until: Nanos,
) -> Result<Option<Fleet>, Stop> {
    let frame_bytes = ip_bytes + ETHERNET_BYTES;
    let packets =
        PACKETS.min(PACKETS_SLOW.0.max((PACKETS_SLOW.1.as_secs_f64() * rate / 8.0 / frame_bytes as f64) as usize));
    let Ok(pattern) = Pattern::at_rate(packets, frame_bytes, rate) else { return Ok(None) };
    let (offsets, span) = (pattern.offsets(), pattern.span());
    let mut fleet = Fleet { trends: Vec::new(), growths: Vec::new(), silent: 0 };
    for _ in 0..FLEET_TRAINS {
        if Nanos::now() + span >= until {
            break;
        }
        let patience = prober.patience(packets as u32, options.timeout);
        if let Some(mut arrivals) = wire.train(prober, Shape::large(ip_bytes), &offsets, patience)? {
            // In sending order, with only the first of duplicates.
            arrivals.sort_by_key(|arrival| (arrival.seq, arrival.came));
            arrivals.dedup_by_key(|arrival| arrival.seq);
            fleet.trends.push(trend(&arrivals, packets));
            fleet.growths.extend(growth(&arrivals, packets));
            fleet.silent += usize::from(arrivals.len() * 2 < packets);
        }
        wire.watch.sleep_until(Nanos::now() + span * IDLE)?;
    }
    Ok((fleet.trends.len() * 2 > FLEET_TRAINS as usize).then_some(fleet))
}
