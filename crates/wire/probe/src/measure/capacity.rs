//! Measures the capacity of the narrowest link by pairs and trains sent back to back.
//!
//! Small answers measure the path there: a TCP reset, or the quote of a UDP datagram, takes a fraction of the time on
//! the links back that its probe took on the links there. An echo is as large as its probe, so it measures the
//! narrowest link of both directions. Where the path back is the narrower one, it limits an acquisition from the host.

use std::time::Duration;

use super::mtu::{self, ProbeOutcome};
use super::options::{Aspect, Options};
use super::prober::{ProbeKind, Prober};
use super::problem::{CapacityProblem, NoCapacity, Problem};
use super::stop::{Outcome, Stop};
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::estimate::capacity::Unknown;
use crate::estimate::plan::{Plan, Step};
use crate::estimate::{TrainArrivals, dispersion};
use crate::os;
use crate::path::Capacity;

/// The best kinds first: small answers that hosts do not limit, then large ones, then those that they limit.
const ORDER: [ProbeKind; 3] = [ProbeKind::Ack, ProbeKind::Echo, ProbeKind::Udp];
/// A prober is given up after this many unusable trains in a row.
const FRUITLESS_MAX: u32 = 6;
/// A prober of which this many trains were answered before is not given up.
const FRUITFUL_MIN: u32 = 8;
/// The pause between trains, in which queues drain.
const PAUSE: Duration = Duration::from_millis(2);
/// The time limit of one prober.
const TAKES_MAX: Duration = Duration::from_secs(10);
/// The path back is narrower if its capacity is below this share of that of the path there,
const NARROWER: f64 = 0.7;
/// and if this share of the measurements agree.
const SURE: f64 = 0.6;
/// The packet size to try where the path's MTU is not known: Ethernet's.
const IP_BYTES: usize = 1500;
/// The packet size if that does not pass: every IPv6 path carries it, and tunnels leave room for it.
const IP_BYTES_LEAST: usize = 1280;

/// A capacity, and how it was measured.
pub(super) struct MeasuredCapacity {
    pub(super) capacity: Capacity,
    /// The index of the prober.
    pub(super) prober: usize,
    pub(super) ip_bytes: usize,
}

/// Measures with one prober after the other, until one determines the capacity.
pub(super) fn measure(
    wire: &mut Wire<'_>,
    probers: &mut [Prober],
    options: &Options,
    mtu_bytes: Option<u32>,
    problems: &mut Vec<Problem>,
) -> Outcome<MeasuredCapacity> {
    let largest = wire.ip_bytes_max();
    let mut known = mtu_bytes.and_then(|mtu| usize::try_from(mtu).ok()).map(|mtu| mtu.min(largest));
    let (mut whys, mut ended) = (Vec::new(), Ok(()));
    let mut best: Option<MeasuredCapacity> = None;
    for kind in ORDER {
        // Once the path there is measured, only echoes add anything: the path back.
        if best.is_some() && kind != ProbeKind::Echo {
            continue;
        }
        let found = probers.iter().position(|prober| prober.kind == kind && prober.shortest.is_some());
        let Some((index, prober)) = found.and_then(|index| Some((index, probers.get_mut(index)?))) else { continue };
        let ip_bytes = match known.map_or_else(|| passing(wire, prober, largest, options.timeout), Ok) {
            Ok(ip_bytes) => *known.insert(ip_bytes),
            Err(stop) => return (best, Err(stop)),
        };
        let mut samples = Samples::default();
        ended = collect(wire, prober, ip_bytes, options.timeout, &mut samples);
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
                let (there, back) = (there.capacity.bits_per_s, capacity.bits_per_s);
                problems.push(Problem::Capacity(CapacityProblem::NarrowerBack { there, back }));
                best = Some(MeasuredCapacity { capacity, prober: index, ip_bytes });
            }
            Some(_) => {}
            None => best = Some(MeasuredCapacity { capacity, prober: index, ip_bytes }),
        }
        if ended.is_err() {
            break;
        }
    }
    if best.is_none() {
        problems.push(Problem::Capacity(CapacityProblem::Unknown(whys)));
    } else if os::route::is_virtual_pair(wire.route.index) {
        problems.push(Problem::Capacity(CapacityProblem::VirtualInterface(wire.route.interface.clone())));
    }
    (best, ended)
}

/// Returns the packet size to measure with where the path's MTU was not measured.
fn passing(wire: &mut Wire<'_>, prober: &mut Prober, largest: usize, timeout: Duration) -> Result<usize, Stop> {
    let usual = IP_BYTES.min(largest);
    Ok(match mtu::fate(wire, prober, usual, timeout)? {
        ProbeOutcome::Passed => usual,
        ProbeOutcome::TooBig(Some(mtu)) if mtu >= IP_BYTES_LEAST => mtu,
        ProbeOutcome::TooBig(_) | ProbeOutcome::Silence => IP_BYTES_LEAST.min(largest),
    })
}

/// Returns whether echoes, as large back as there, show a clearly narrower path back.
fn is_narrower(echoed: &Capacity, there: &Capacity) -> bool {
    echoed.confidence >= SURE && !echoed.at_least && echoed.bits_per_s < NARROWER * there.bits_per_s
}

/// The trains sent so far.
#[derive(Debug, Default)]
struct Samples {
    plan: Plan,
    /// Trains of which every packet was answered once and in order.
    whole: u32,
    /// Trains of which some packet was not.
    unanswered: u32,
    /// Trains sent, repetitions included, and those of them that were discarded because they did not leave on time.
    sent: u32,
    discarded: u32,
    /// Whether the time was up.
    late: bool,
}

impl Samples {
    /// Returns the capacity, or why it is not known.
    fn capacity(&self, kind: ProbeKind) -> Result<Capacity, NoCapacity> {
        let Self { sent, discarded, unanswered, late, .. } = *self;
        if discarded * 2 > sent {
            return Err(NoCapacity::LeftLate { kind, sent, discarded });
        }
        let unknown = |why| NoCapacity::Unknown { kind, why, sent, discarded, unanswered, late };
        self.plan.capacity(kind.method()).map_err(unknown)
    }
}

fn collect(
    wire: &mut Wire<'_>,
    prober: &mut Prober,
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
        let patience = prober.patience(packets as u32, timeout);
        let shape = Shape::large(ip_bytes);
        let arrivals = match step {
            Step::BackToBack(_) => wire.train(prober, shape, &offsets, patience)?,
            // The departure times matter, not whether they were as planned.
            Step::Paced | Step::Calibration(..) => Some(wire.loose_train(prober, shape, &offsets, patience)?),
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
    fn trains_that_were_mostly_discarded_give_no_capacity() {
        let train = |packets: u32| {
            let at = |i: u32, ns| Nanos(u64::from(i) * ns);
            let arrival = |seq| Arrival { seq, sent: at(seq, 1_200), came: at(seq, 121_120), ip_bytes: 1500 };
            TrainArrivals { packets: packets as usize, arrivals: (0..packets).map(arrival).collect() }
        };
        let mut samples = Samples { sent: 60, discarded: 10, ..Samples::default() };
        (0..12).for_each(|_| samples.plan.note(Step::BackToBack(64), train(64)));
        let estimated = samples.capacity(ProbeKind::Ack).unwrap();
        assert!((estimated.bits_per_s / 100e6 - 1.0).abs() < 0.01, "{estimated:?}");
        samples.discarded = 31;
        let late = NoCapacity::LeftLate { kind: ProbeKind::Ack, sent: 60, discarded: 31 };
        assert_eq!(samples.capacity(ProbeKind::Ack), Err(late));
    }
}
