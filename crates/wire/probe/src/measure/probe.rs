//! Runs all measurements, one after the other.

use cheetah_error::next::Measure;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use super::options::{Aspect, Event, Options};
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

impl Probe {
    /// Prepares to measure the path to `address`, one of the addresses of `host`. Sends nothing yet, and never to
    /// another address.
    #[must_use]
    pub fn new(host: impl Into<String>, address: IpAddr, options: Options) -> Self {
        Self { host: host.into(), address, options }
    }

    /// Measures, and lists failed measurements in the report's problems. Setting `cancel` ends it soon; the report then
    /// has the measurements made so far. `tell` receives progress events. Blocks for seconds, so it needs a thread of
    /// its own.
    ///
    /// Does not fill in the advice and the far end.
    pub fn run(&self, cancel: &AtomicBool, tell: &mut dyn FnMut(Event)) -> PathReport {
        let mut report = PathReport::new(&self.host, self.address);
        let watch = Watch { cancel, tell };
        if !self.options.raw {
            self.plain(&mut report, watch);
            return report;
        }
        match Wire::open(self.address, &self.options, watch) {
            Ok(mut wire) => {
                report.interface = Some(wire.route.interface.clone());
                report.backend = Some(wire.backend());
                let ended = self.measure(&mut wire, &mut report);
                report.next.extend(ended.as_ref().err().and_then(Stop::next));
                let cause = ended.err().map(|stop| format!("Nothing more was measured: {stop}."));
                report.trains = wire.trains;
                report.problems.extend(cause);
                report.problems.extend(wire.notes().iter().map(|note| sentence(note)));
                let dropped = wire.dropped();
                if dropped > 0 {
                    report.problems.push(format!(
                        "{dropped} answers came faster than they could be received, and were lost here."
                    ));
                }
            }
            Err((stop, watch)) if stop.is_of_raw_sockets() => {
                report.problems.push(sentence(&stop.to_string()));
                self.plain(&mut report, watch);
            }
            Err((stop, _)) => report.problems.push(format!("Nothing was measured: {stop}.")),
        }
        report
    }

    /// Measures with raw sockets.
    fn measure(&self, wire: &mut Wire<'_>, report: &mut PathReport) -> Result<(), Stop> {
        let options = &self.options;
        let problems = &mut report.problems;
        let mut probers = probers::find(wire, options, problems)?;
        if probers.iter().all(|prober| prober.shortest.is_none()) {
            let methods =
                options.method.map_or_else(|| "ICMP echo, TCP or UDP".to_owned(), |method| format!("{method:?}"));
            problems.push(format!("The host does not answer {methods} within {} ms.", options.timeout.as_millis()));
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
                problems.push(format!(
                    "The capacity is not known: {} shapes what other programs send (queue discipline {shaper}), and the packets of \
                     this measurement go around that.",
                    wire.route.interface
                ));
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
    fn plain(&self, report: &mut PathReport, mut watch: Watch<'_>) {
        let mut budget = Budget::new(self.options.limits);
        let PathReport { problems, next, .. } = report;
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
                    let noun = aspect.noun();
                    problems.push(format!("Without raw sockets, {noun} cannot be measured."));
                    Ok(())
                }
            };
            if let Err(stop) = ended {
                next.extend(stop.next());
                problems.push(format!("Measuring {} ended early: {stop}.", aspect.noun()));
                if stop.is_final() {
                    break;
                }
            }
        }
        report.trains.packets = budget.packets();
    }
}

/// Capitalizes the first letter and ends with one full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}
