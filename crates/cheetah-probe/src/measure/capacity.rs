//! The capacity of the narrowest link, by pairs and trains sent back to back.
//!
//! What is small coming back tells of the way there: a TCP reset, or what is quoted of a UDP datagram, takes a fraction of the
//! time on the links back that the probe took on the links there, so a link back would have to be many times narrower to be
//! mistaken for one there. An echo is as large as its probe, so it tells of the narrowest link of both ways. Where the way back is
//! the narrower, that is what an acquisition from the host has to go by.

use std::time::Duration;

use super::interface;
use super::mtu::{self, Fate};
use super::options::{Aspect, Options};
use super::stop::{Learnt, Stop};
use super::way::{Kind, Way};
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::estimate::capacity::Unknown;
use crate::estimate::plan::{Plan, Step};
use crate::estimate::{TrainArrivals, dispersion};
use crate::path::Capacity;
use crate::units::BitRate;

/// In the order they tell capacity best: small answers that nobody limits, then large ones, then those that are limited.
const ORDER: [Kind; 3] = [Kind::Ack, Kind::Echo, Kind::Udp];
/// After so many in a row of which nothing can be told, a way of asking is given up.
const FRUITLESS_MAX: u32 = 6;
/// Unless this many before were answered.
const FRUITFUL_MIN: u32 = 8;
/// From one to the next: queues are empty again.
const PAUSE: Duration = Duration::from_millis(2);
/// No way of asking takes longer.
const TAKES_MAX: Duration = Duration::from_secs(10);
/// Below this share of the way there, the way back is narrower.
const NARROWER: f64 = 0.7;
/// And if this share of the measurements agree.
const SURE: f64 = 0.6;
/// Where the largest packet that passes is not known, Ethernet's is tried.
const IP_BYTES: usize = 1500;
/// And where that does not pass, what every path of IPv6 carries, and tunnels leave.
const IP_BYTES_LEAST: usize = 1280;

/// What was found, and how, for whoever goes on from there.
pub(super) struct Found {
    pub(super) capacity: Capacity,
    /// Which of the ways.
    pub(super) way: usize,
    pub(super) ip_bytes: usize,
}

/// Measures with one way after the other, until one tells.
pub(super) fn measure(
    wire: &mut Wire<'_>,
    ways: &mut [Way],
    options: &Options,
    mtu_bytes: Option<u32>,
    problems: &mut Vec<String>,
) -> Learnt<Found> {
    let largest = wire.ip_bytes_max();
    let mut known = mtu_bytes.and_then(|mtu| usize::try_from(mtu).ok()).map(|mtu| mtu.min(largest));
    let (mut whys, mut ended) = (Vec::new(), Ok(()));
    let mut best: Option<Found> = None;
    for kind in ORDER {
        // After a way there was measured, only echoes tell more: of the way back.
        if best.is_some() && kind != Kind::Echo {
            continue;
        }
        let found = ways.iter().position(|way| way.kind == kind && way.shortest.is_some());
        let Some((index, way)) = found.and_then(|index| Some((index, ways.get_mut(index)?))) else { continue };
        let ip_bytes = match known.map_or_else(|| passing(wire, way, largest, options.timeout), Ok) {
            Ok(ip_bytes) => *known.insert(ip_bytes),
            Err(stop) => return (best, Err(stop)),
        };
        let mut samples = Samples::default();
        ended = collect(wire, way, ip_bytes, options.timeout, &mut samples);
        let capacity = match samples.capacity(kind) {
            Ok(capacity) => capacity,
            Err(why) => {
                whys.push(why);
                // Other probes arrive in the same batches.
                if ended.is_err() || samples.plan.capacity(kind.method()) == Err(Unknown::TooShort) {
                    break;
                }
                continue;
            }
        };
        match &best {
            Some(there) if is_narrower(&capacity, &there.capacity) => {
                let (there, back) = (BitRate(there.capacity.bits_per_s), BitRate(capacity.bits_per_s));
                problems.push(format!(
                    "The way there carries {there}, the way back only {back}: the capacity is the way back's."
                ));
                best = Some(Found { capacity, way: index, ip_bytes });
            }
            Some(_) => {}
            None => best = Some(Found { capacity, way: index, ip_bytes }),
        }
        if ended.is_err() {
            break;
        }
    }
    if best.is_none() {
        let why = if whys.is_empty() { "nothing that carries data is answered".to_owned() } else { whys.join("; ") };
        problems.push(format!("The capacity is not known: {why}."));
    } else if interface::is_virtual_pair(wire.route.index) {
        let name = &wire.route.interface;
        problems.push(format!(
            "{name} is a virtual interface: the capacity is what this machine emulates, or its own speed."
        ));
    }
    (best, ended)
}

/// The size of packets to measure with where nobody has looked for the largest that passes.
fn passing(wire: &mut Wire<'_>, way: &mut Way, largest: usize, timeout: Duration) -> Result<usize, Stop> {
    let usual = IP_BYTES.min(largest);
    Ok(match mtu::fate(wire, way, usual, timeout)? {
        Fate::Passed => usual,
        Fate::TooBig(Some(mtu)) if mtu >= IP_BYTES_LEAST => mtu,
        Fate::TooBig(_) | Fate::Silence => IP_BYTES_LEAST.min(largest),
    })
}

/// Whether echoes, as large back as there, say that the way back is clearly narrower: what comes from the host goes that way.
fn is_narrower(echoed: &Capacity, there: &Capacity) -> bool {
    echoed.confidence >= SURE && !echoed.at_least && echoed.bits_per_s < NARROWER * there.bits_per_s
}

/// The trains sent so far.
#[derive(Debug, Default)]
struct Samples {
    plan: Plan,
    /// Trains of which every packet was answered once and in order.
    whole: u32,
    /// Those of which not.
    unanswered: u32,
    /// Trains sent, repetitions included, and those of them that were discarded because they did not leave on time.
    sent: u32,
    discarded: u32,
    /// Whether the time was up.
    late: bool,
}

impl Samples {
    /// The capacity, or why it is not known.
    fn capacity(&self, kind: Kind) -> Result<Capacity, String> {
        let by = match kind {
            Kind::Ack | Kind::Syn => "by TCP",
            Kind::Echo => "by ICMP echo",
            Kind::Udp => "by UDP",
        };
        let Self { sent, discarded, unanswered, .. } = self;
        // The trains that happened to leave on time are then no fair sample.
        if discarded * 2 > *sent {
            return Err(format!("{by}, {discarded} of {sent} trains did not leave on time"));
        }
        self.plan.capacity(kind.method()).map_err(|why| {
            let late = if self.late { ", and the time was up" } else { "" };
            format!("{by}, {why} ({discarded} of {sent} trains did not leave on time, {unanswered} were not answered whole{late})")
        })
    }
}

fn collect(
    wire: &mut Wire<'_>,
    way: &mut Way,
    ip_bytes: usize,
    timeout: Duration,
    samples: &mut Samples,
) -> Result<(), Stop> {
    let until = Nanos::now() + TAKES_MAX;
    let before = wire.trains;
    let mut fruitless = 0;
    while let Some(step) = samples.plan.next_step() {
        if Nanos::now() >= until {
            samples.late = true;
            break;
        }
        let offsets = step.offsets();
        let packets = offsets.len();
        let patience = way.patience(packets as u32, timeout);
        let shape = Shape::large(ip_bytes);
        let arrivals = match step {
            Step::BackToBack(_) => wire.train(way, shape, &offsets, patience)?,
            // Only when its packets really left counts.
            Step::Paced => Some(wire.loose_train(way, shape, &offsets, patience)?),
        };
        if let Some(arrivals) = arrivals {
            let is_whole = dispersion::train(&arrivals, packets).is_some();
            samples.whole += u32::from(is_whole);
            samples.unanswered += u32::from(!is_whole);
            samples.plan.note(step, TrainArrivals { packets, arrivals });
            fruitless = if is_whole { 0 } else { fruitless + 1 };
        }
        (samples.sent, samples.discarded) = (wire.trains.sent - before.sent, wire.trains.spoiled - before.spoiled);
        if fruitless >= FRUITLESS_MAX && samples.whole < FRUITFUL_MIN {
            break;
        }
        let (done, of) = samples.plan.progress();
        wire.watch.progress(Aspect::Capacity, done as u32, of as u32);
        wire.watch.sleep_until(Nanos::now() + PAUSE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Arrival;

    #[test]
    fn trains_that_were_mostly_discarded_tell_no_capacity() {
        let train = |packets: u32| {
            let at = |i: u32, ns| Nanos(u64::from(i) * ns);
            let arrival = |seq| Arrival { seq, sent: at(seq, 1_200), came: at(seq, 121_120), ip_bytes: 1500 };
            TrainArrivals { packets: packets as usize, arrivals: (0..packets).map(arrival).collect() }
        };
        let mut samples = Samples { sent: 60, discarded: 10, ..Samples::default() };
        (0..12).for_each(|_| samples.plan.note(Step::BackToBack(32), train(32)));
        let told = samples.capacity(Kind::Ack).unwrap();
        assert!((told.bits_per_s / 100e6 - 1.0).abs() < 0.01, "{told:?}");
        samples.discarded = 31;
        let why = samples.capacity(Kind::Ack).unwrap_err();
        assert_eq!(why, "by TCP, 31 of 60 trains did not leave on time");
    }
}
