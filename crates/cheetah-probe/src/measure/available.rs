//! What other traffic leaves of the path, by trains sent at a rate.

use std::time::Duration;

use super::capacity;
use super::options::{Aspect, Options};
use super::stop::{Learnt, Stop};
use super::way::Way;
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::estimate::available::{Search, Trend, trend};
use crate::frame::ETHERNET_BYTES;
use crate::path::Available;
use crate::schedule::Pattern;
use crate::units::BitRate;

/// Packets in a train: long enough for a trend, short enough for a queue of a few dozen.
const PACKETS: usize = 48;
/// Trains sent at each rate.
const FLEET: u32 = 6;
/// Rates tried at most.
const RATES_MAX: u32 = 12;
/// Down to this share of the capacity is it told.
const RESOLUTION: f64 = 0.05;
/// All of it takes no longer.
const TAKES_MAX: Duration = Duration::from_secs(15);
/// So much idle time for each time a train takes, lest the probes be the traffic.
const IDLE: u32 = 2;

/// Goes on from the capacity. What cannot be told is a sentence in `problems`.
pub(super) fn measure(
    wire: &mut Wire<'_>,
    ways: &mut [Way],
    options: &Options,
    found: &capacity::Found,
    problems: &mut Vec<String>,
) -> Learnt<Available> {
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
    let Some(way) = ways.get_mut(found.way) else { return (None, Ok(())) };
    let capacity = found.capacity.bits_per_s;
    let mut search = Search::new(capacity, capacity * RESOLUTION);
    let until = Nanos::now() + TAKES_MAX;
    let (mut rates, mut ended) = (0, Ok(()));
    while let Some(rate) = search.rate().filter(|_| rates < RATES_MAX) {
        match fleet(wire, way, options, found.ip_bytes, rate, until) {
            Ok(Some(Fleet { trends, silent })) if silent * 2 <= trends.len() => search.note(rate, &trends),
            Ok(Some(_)) => {
                let rate = BitRate(rate);
                problems.push(format!(
                    "The available bandwidth was not measured: of packets sent at {rate} most were not answered, and it cannot \
                     be told whether the path lost them or the host limits its answers."
                ));
                return (None, Ok(()));
            }
            told => {
                ended = told.map(|_| ());
                problems.push("The available bandwidth is less precise than it could be: the time was up, or trains could not be sent.".into());
                break;
            }
        }
        rates += 1;
        wire.watch.progress(Aspect::Available, rates, RATES_MAX);
    }
    ((rates > 0).then(|| search.available()), ended)
}

/// Trains at one rate.
struct Fleet {
    trends: Vec<Trend>,
    /// Those of which less than half was answered: a host that has become silent looks the same as a path that is full.
    silent: usize,
}

/// A fleet at `rate`; nothing if too little of it was sent in time, and on time.
fn fleet(
    wire: &mut Wire<'_>,
    way: &mut Way,
    options: &Options,
    ip_bytes: usize,
    rate: f64,
    until: Nanos,
) -> Result<Option<Fleet>, Stop> {
    let Ok(pattern) = Pattern::at_rate(PACKETS, ip_bytes + ETHERNET_BYTES, rate) else { return Ok(None) };
    let (offsets, span) = (pattern.offsets(), pattern.span());
    let mut fleet = Fleet { trends: Vec::new(), silent: 0 };
    for _ in 0..FLEET {
        if Nanos::now() + span >= until {
            break;
        }
        let patience = way.patience(PACKETS as u32, options.timeout);
        if let Some(mut arrivals) = wire.train(way, Shape::large(ip_bytes), &offsets, patience)? {
            // In the order they were sent in; of what came twice, the first.
            arrivals.sort_by_key(|arrival| (arrival.seq, arrival.came));
            arrivals.dedup_by_key(|arrival| arrival.seq);
            fleet.trends.push(trend(&arrivals, PACKETS));
            fleet.silent += usize::from(arrivals.len() * 2 < PACKETS);
        }
        wire.watch.sleep_until(Nanos::now() + span * IDLE)?;
    }
    Ok((fleet.trends.len() * 2 > FLEET as usize).then_some(fleet))
}
