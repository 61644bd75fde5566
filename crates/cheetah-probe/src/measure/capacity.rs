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
use crate::estimate::capacity::{SAMPLES_MIN, estimate};
use crate::estimate::dispersion::{self, Sample};
use crate::path::Capacity;
use crate::units::BitRate;

/// In the order they tell capacity best: small answers that nobody limits, then large ones, then those that are limited.
const ORDER: [Kind; 3] = [Kind::Ack, Kind::Echo, Kind::Udp];
/// Pairs sent.
const PAIRS: u32 = 40;
/// Trains sent.
const TRAINS: u32 = 12;
/// Packets in each: what timestamps are off by is spread over so many, and no router need keep more than half of its queue.
const TRAIN_PACKETS: usize = 32;
/// After so many in a row of which nothing can be told, a way of asking is given up.
const FRUITLESS_MAX: u32 = 6;
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
        let Some(capacity) = estimate(kind.method(), &samples.pairs, &samples.trains) else {
            whys.push(samples.why(kind));
            if ended.is_err() {
                break;
            }
            continue;
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
        problems.push(format!("The capacity was not measured: {why}."));
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

/// What pairs and trains said.
#[derive(Debug, Default)]
struct Samples {
    pairs: Vec<Sample>,
    trains: Vec<Sample>,
    /// Pairs and trains that did not leave as they were due, however often they were sent.
    spoiled: u32,
    /// Those of which not every packet was answered once and in order.
    unanswered: u32,
    /// Whether the time was up.
    slow: bool,
}

impl Samples {
    fn why(&self, kind: Kind) -> String {
        let by = match kind {
            Kind::Ack | Kind::Syn => "by TCP",
            Kind::Echo => "by ICMP echo",
            Kind::Udp => "by UDP",
        };
        let (spoiled, unanswered) = (self.spoiled, self.unanswered);
        let slow = if self.slow { " before the time was up" } else { "" };
        format!("{by}, {spoiled} trains could not be sent on time and {unanswered} were not answered whole{slow}")
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
    let mut fruitless = 0;
    for done in 0..PAIRS + TRAINS {
        if Nanos::now() >= until {
            samples.slow = true;
            break;
        }
        let packets = if done < PAIRS { 2 } else { TRAIN_PACKETS };
        let offsets = vec![Duration::ZERO; packets];
        match wire.train(way, Shape::large(ip_bytes), &offsets, way.patience(packets as u32, timeout))? {
            None => samples.spoiled += 1,
            Some(arrivals) => {
                let whole = dispersion::train(&arrivals, packets);
                samples.pairs.extend(dispersion::pairs(&arrivals));
                samples.trains.extend(whole.filter(|_| packets > 2));
                samples.unanswered += u32::from(whole.is_none());
                fruitless = if whole.is_some() { 0 } else { fruitless + 1 };
            }
        }
        if fruitless >= FRUITLESS_MAX && samples.pairs.len() < SAMPLES_MIN {
            break;
        }
        wire.watch.progress(Aspect::Capacity, done + 1, PAIRS + TRAINS);
        wire.watch.sleep_until(Nanos::now() + PAUSE)?;
    }
    Ok(())
}
