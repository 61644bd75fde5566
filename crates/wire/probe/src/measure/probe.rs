//! Runs all measurements, one after the other.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use cheetah_error::Next;
use cheetah_error::next::Measure;

use super::options::{Aspect, Event, Options};
use super::problem::{CapacityProblem, Problem};
use super::stop::Stop;
use super::wire::{Watch, Wire};
use super::{available, capacity, hops, mtu, plain, plain_mtu, probers, round_trip};
use crate::limits::Budget;
use crate::path::{Method, PathReport};

/// Measures the path to one host.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    host: String,
    address: IpAddr,
    options: Options,
}

/// What a measurement found.
#[derive(Debug)]
pub struct Measured {
    /// The figures, without a sentence: [`PathReport::problems`] is empty.
    pub report: PathReport,
    /// What was not measured, and what makes a figure doubtful, in the order in which it became known.
    pub problems: Vec<Problem>,
    /// What the user can do about them.
    pub next: Vec<Next>,
}

impl Probe {
    /// Prepares to measure the path to `address`, one of the addresses of `host`. Sends nothing yet, and never to
    /// another address.
    #[must_use]
    pub fn new(host: impl Into<String>, address: IpAddr, options: Options) -> Self {
        Self { host: host.into(), address, options }
    }

    /// Measures, and lists failed measurements in the problems. Setting `cancel` ends it soon; the report then
    /// has the measurements made so far. `tell` receives progress events. Blocks for seconds, so it needs a thread of
    /// its own.
    ///
    /// Does not fill in the advice and the far end.
    pub fn run(&self, cancel: &AtomicBool, tell: &mut dyn FnMut(Event)) -> Measured {
        let report = PathReport::new(&self.host, self.address);
        let mut found = Measured { report, problems: Vec::new(), next: Vec::new() };
        let watch = Watch { cancel, tell };
        if !self.options.raw {
            self.plain(&mut found, watch);
            return found;
        }
        match Wire::open(self.address, &self.options, watch) {
            Ok(mut wire) => {
                found.report.interface = Some(wire.route.interface.clone());
                found.report.backend = Some(wire.backend());
                if let Err(stop) = self.measure(&mut wire, &mut found) {
                    found.next.extend(stop.next());
                    found.problems.push(Problem::EndedEarly(stop));
                }
                found.report.trains = wire.trains;
                found.problems.extend(wire.notes().iter().cloned().map(Problem::Sending));
                let dropped = wire.dropped();
                found.problems.extend((dropped > 0).then_some(Problem::AnswersLost(dropped)));
            }
            Err((stop, watch)) if stop.is_of_raw_sockets() => {
                found.problems.push(Problem::NoRawSockets(stop));
                self.plain(&mut found, watch);
            }
            Err((stop, _)) => found.problems.push(Problem::Nothing(stop)),
        }
        found
    }

    /// Measures with raw sockets.
    fn measure(&self, wire: &mut Wire<'_>, found: &mut Measured) -> Result<(), Stop> {
        let options = &self.options;
        let Measured { report, problems, .. } = found;
        let mut probers = probers::find(wire, options, problems)?;
        if probers.iter().all(|prober| prober.shortest.is_none()) {
            problems.push(Problem::NoAnswer { method: options.method, timeout: options.timeout });
        }
        let begin = |wire: &mut Wire<'_>, aspect: Aspect| {
            let wanted = options.aspects.contains(&aspect);
            if wanted {
                (wire.watch.tell)(Event::Begins(aspect));
            }
            wanted
        };
        if begin(wire, Aspect::RoundTrip) {
            let (found, ended) = round_trip::measure(wire, &mut probers, options, problems);
            report.round_trip = found;
            ended?;
        }
        if begin(wire, Aspect::Mtu) {
            report.mtu = mtu::measure(wire, &mut probers, options, problems)?;
        }
        if begin(wire, Aspect::Hops) {
            report.hops = hops::measure(wire, &mut probers, options, problems)?;
        }
        let available = options.aspects.contains(&Aspect::Available);
        if begin(wire, Aspect::Capacity) || available {
            if let Some(shaper) = wire.avoided_shaper() {
                problems.push(Problem::Capacity(CapacityProblem::Shaped {
                    interface: wire.route.interface.clone(),
                    shaper,
                }));
                return Ok(());
            }
            // Available bandwidth is searched for below the capacity.
            let mtu = report.mtu.map(|mtu| mtu.bytes);
            let (found, ended) = capacity::measure(wire, &mut probers, options, mtu, problems);
            report.capacity = found.as_ref().map(|found| found.capacity.clone());
            ended?;
            let Some(found) = found else { return Ok(()) };
            if begin(wire, Aspect::Available) {
                let (found, ended) = available::measure(wire, &mut probers, options, &found, problems);
                report.available = found;
                ended?;
            }
        }
        Ok(())
    }

    /// Measures with ordinary sockets.
    fn plain(&self, found: &mut Measured, mut watch: Watch<'_>) {
        let mut budget = Budget::new(self.options.limits);
        let Measured { report, problems, next } = found;
        for aspect in Aspect::ALL.into_iter().filter(|aspect| self.options.aspects.contains(aspect)) {
            (watch.tell)(Event::Begins(aspect));
            let (options, budget) = (&self.options, &mut budget);
            let ended = match aspect {
                Aspect::RoundTrip => {
                    let (found, ended) = plain::round_trip(self.address, options, &mut watch, budget, problems);
                    let is_by_connecting = matches!(options.method, None | Some(Method::Tcp | Method::TcpConnect));
                    if found.is_none() && ended.is_ok() && is_by_connecting {
                        next.push(Measure::NameOpenPort.into());
                    }
                    report.round_trip = found;
                    ended
                }
                Aspect::Mtu => plain_mtu::measure(self.address, options, &mut watch, budget, problems)
                    .map(|found| report.mtu = found),
                Aspect::Hops | Aspect::Capacity | Aspect::Available => {
                    problems.push(Problem::NeedsRawSockets(aspect));
                    Ok(())
                }
            };
            if let Err(why) = ended {
                let is_final = why.is_final();
                next.extend(why.next());
                problems.push(Problem::AspectEndedEarly { aspect, why });
                if is_final {
                    break;
                }
            }
        }
        report.trains.packets = budget.packets();
    }
}
