//! What other traffic leaves of the path, by trains sent at a rate.

use std::time::Duration;

use super::capacity;
use super::options::{Aspect, Options};
use super::stop::Stop;
use super::way::Way;
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::estimate::available::{Search, Trend, trend};
use crate::frame::ETHERNET_BYTES;
use crate::path::Available;
use crate::schedule::Pattern;

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
) -> Result<Option<Available>, Stop> {
    if found.capacity.at_least {
        problems.push(
            "What other traffic leaves was not measured: the path is faster than this machine can send, so it cannot be filled."
                .into(),
        );
        return Ok(None);
    }
    let Some(way) = ways.get_mut(found.way) else { return Ok(None) };
    let capacity = found.capacity.bits_per_s;
    let mut search = Search::new(capacity, capacity * RESOLUTION);
    let until = Nanos::now() + TAKES_MAX;
    let mut rates = 0;
    while let Some(rate) = search.rate().filter(|_| rates < RATES_MAX) {
        let Some(trends) = fleet(wire, way, options, found.ip_bytes, rate, until)? else {
            problems.push("What other traffic leaves is known less well than it could be: the time was up, or trains could not be sent on time.".into());
            break;
        };
        search.note(rate, &trends);
        rates += 1;
        wire.watch.progress(Aspect::Available, rates, RATES_MAX);
    }
    if rates == 0 {
        return Ok(None);
    }
    Ok(Some(search.available()))
}

/// The trends of a fleet at `rate`; nothing if too little of it was sent in time, and on time.
fn fleet(
    wire: &mut Wire<'_>,
    way: &mut Way,
    options: &Options,
    ip_bytes: usize,
    rate: f64,
    until: Nanos,
) -> Result<Option<Vec<Trend>>, Stop> {
    let Ok(pattern) = Pattern::at_rate(PACKETS, ip_bytes + ETHERNET_BYTES, rate) else { return Ok(None) };
    let (offsets, span) = (pattern.offsets(), pattern.span());
    let mut trends = Vec::new();
    for _ in 0..FLEET {
        if Nanos::now() + span >= until {
            break;
        }
        let patience = way.patience(PACKETS as u32, options.timeout);
        if let Some(mut arrivals) = wire.train(way, Shape::large(ip_bytes), &offsets, patience)? {
            // In the order they were sent in; of what came twice, the first.
            arrivals.sort_by_key(|arrival| (arrival.seq, arrival.came));
            arrivals.dedup_by_key(|arrival| arrival.seq);
            trends.push(trend(&arrivals, PACKETS));
        }
        wire.watch.sleep_until(Nanos::now() + span * IDLE)?;
    }
    Ok((trends.len() * 2 > FLEET as usize).then_some(trends))
}
