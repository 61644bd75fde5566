//! Measures the available bandwidth by trains sent at a rate.

use std::time::Duration;

use super::capacity;
use super::options::{Aspect, Options};
use super::prober::Prober;
use super::stop::{Outcome, Stop};
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::estimate::available::{Search, Trend, trend};
use crate::frame::ETHERNET_BYTES;
use crate::path::Available;
use crate::schedule::Pattern;
use crate::units::BitRate;

/// Packets in a train: enough for a trend, few enough for a queue of a few dozen.
const PACKETS: usize = 48;
/// Trains sent at each rate.
const FLEET: u32 = 6;
/// Rates tried at most.
const RATES_MAX: u32 = 12;
/// The resolution, as a share of the capacity.
const RESOLUTION: f64 = 0.05;
/// The time limit.
const TAKES_MAX: Duration = Duration::from_secs(15);
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
    let mut search = Search::new(capacity, capacity * RESOLUTION);
    let until = Nanos::now() + TAKES_MAX;
    let (mut rates, mut ended) = (0, Ok(()));
    while let Some(rate) = search.rate().filter(|_| rates < RATES_MAX) {
        match fleet(wire, prober, options, found.ip_bytes, rate, until) {
            Ok(Some(Fleet { trends, silent })) if silent * 2 <= trends.len() => search.note(rate, &trends),
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
    let Ok(pattern) = Pattern::at_rate(PACKETS, ip_bytes + ETHERNET_BYTES, rate) else { return Ok(None) };
    let (offsets, span) = (pattern.offsets(), pattern.span());
    let mut fleet = Fleet { trends: Vec::new(), silent: 0 };
    for _ in 0..FLEET {
        if Nanos::now() + span >= until {
            break;
        }
        let patience = prober.patience(PACKETS as u32, options.timeout);
        if let Some(mut arrivals) = wire.train(prober, Shape::large(ip_bytes), &offsets, patience)? {
            // In sending order, with only the first of duplicates.
            arrivals.sort_by_key(|arrival| (arrival.seq, arrival.came));
            arrivals.dedup_by_key(|arrival| arrival.seq);
            fleet.trends.push(trend(&arrivals, PACKETS));
            fleet.silent += usize::from(arrivals.len() * 2 < PACKETS);
        }
        wire.watch.sleep_until(Nanos::now() + span * IDLE)?;
    }
    Ok((fleet.trends.len() * 2 > FLEET as usize).then_some(fleet))
}
