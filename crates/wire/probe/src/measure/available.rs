//! Measures the available bandwidth by trains sent at a rate.

use std::time::Duration;

use super::capacity;
use super::options::{Aspect, Options};
use super::prober::Prober;
use super::stop::{Outcome, Stop};
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::estimate::available::{FLEET_TRAINS, FULL_TRAINS, NotKnown, Search, Trend, growth, trend};
use crate::frame::ETHERNET_BYTES;
use crate::path::Available;
use crate::schedule::Pattern;
use crate::units::BitRate;

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

/// Measures below the capacity. Adds a sentence to `problems` if it cannot be measured.
pub(super) fn measure(
    wire: &mut Wire<'_>,
    probers: &mut [Prober],
    options: &Options,
    found: &capacity::MeasuredCapacity,
    problems: &mut Vec<String>,
) -> Outcome<Available> {
    if found.capacity.at_least {
        problems.push(
            "The available bandwidth was not measured: the path is faster than this machine can send, so it cannot be filled."
                .into(),
        );
        return (None, Ok(()));
    }
    if found.capacity.batched {
        problems.push(
            "The available bandwidth was not measured: packets arrive in batches, which hides whether their delays grow.".into(),
        );
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
                let rate = BitRate(rate);
                problems.push(format!(
                    "The available bandwidth was not measured: of packets sent at {rate} most were not answered, and it cannot \
                     be determined whether the path lost them or the host limits its answers."
                ));
                return (None, Ok(()));
            }
            result => {
                ended = result.map(|_| ());
                problems.push(
                    "The search for the available bandwidth ended early: the time was up, or trains could not be sent."
                        .into(),
                );
                break;
            }
        }
        fleets += 1;
        wire.watch.progress(Aspect::Available, fleets, FLEETS_MAX);
    }
    let found = search.available().map_err(|why| problems.push(reason(why)));
    (found.ok(), ended)
}

fn reason(why: NotKnown) -> String {
    match why {
        NotKnown::Range { low, high } => {
            let (low, high) = (BitRate(low), BitRate(high));
            format!("The available bandwidth is not known more precisely than that it is between {low} and {high}.")
        }
        NotKnown::Uneven(rate) => format!(
            "The available bandwidth is not known: delays begin to grow at {}, but beyond that not as they should. Other traffic \
             comes in bursts, or the narrowest link is not the one with the least left.",
            BitRate(rate)
        ),
    }
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
