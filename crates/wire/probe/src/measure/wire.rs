//! Sends trains within limits, and receives answers.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::options::{Aspect, Event, Options};
use super::prober::Prober;
use super::stop::Stop;
use super::train::{self, SentTrain};
use crate::capture::Capture;
use crate::clock::Nanos;
use crate::estimate::Arrival;
use crate::frame::{ETHERNET_BYTES, Ends, Reply, Session, frame, parse};
use crate::limits::{Budget, SendDecision};
use crate::os;
use crate::path::Trains;
use crate::route::Route;
use crate::selfcheck::Bound;
use crate::send::{self, SendNote, Sender};

/// How often to look for a cancellation.
const HEED_EVERY: Duration = Duration::from_millis(50);
/// Attempts to send a train on time.
const TRIES: u32 = 4;
/// The tolerated error of a gap, as a share of the time between packets on the path. With such an error the queue
/// before a narrow link does not run empty, and the rate of a paced train stays the same.
const BEARABLE: f64 = 0.25;

/// Cancellation and progress.
pub(super) struct Watch<'a> {
    pub(super) cancel: &'a AtomicBool,
    pub(super) tell: &'a mut dyn FnMut(Event),
}

impl Watch<'_> {
    /// Fails if cancelled.
    pub(super) fn heed(&self) -> Result<(), Stop> {
        if self.cancel.load(Ordering::Relaxed) { Err(Stop::Cancelled) } else { Ok(()) }
    }

    /// Sleeps until `at`.
    pub(super) fn sleep_until(&self, at: Nanos) -> Result<(), Stop> {
        loop {
            self.heed()?;
            let left = at.since(Nanos::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(HEED_EVERY));
        }
    }

    pub(super) fn progress(&mut self, aspect: Aspect, done: u32, of: u32) {
        (self.tell)(Event::Progress { aspect, done, of });
    }
}

/// Sends and receives.
pub(super) struct Wire<'a> {
    pub(super) route: Route,
    pub(super) watch: Watch<'a>,
    pub(super) trains: Trains,
    sender: Box<dyn Sender>,
    capture: Capture,
    budget: Budget,
    bound: Bound,
}

/// The size and headers of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) ip_bytes: usize,
    /// Time to live, in hops.
    pub(super) ttl: u8,
    pub(super) dont_fragment: bool,
}

impl Shape {
    /// The smallest probes.
    pub(super) const SMALL: Self = Self { ip_bytes: 0, ttl: 64, dont_fragment: true };

    /// Probes of `ip_bytes` bytes, IP header included.
    pub(super) const fn large(ip_bytes: usize) -> Self {
        Self { ip_bytes, ..Self::SMALL }
    }
}

impl<'a> Wire<'a> {
    /// Opens the interface to `address`.
    pub(super) fn open(address: IpAddr, options: &Options, watch: Watch<'a>) -> Result<Self, (Stop, Watch<'a>)> {
        match Self::parts(address, options) {
            Ok((route, sender, capture)) => Ok(Self {
                route,
                watch,
                trains: Trains::default(),
                sender,
                capture,
                budget: Budget::new(options.limits),
                bound: Bound { gap_error_max: options.gap_error_max },
            }),
            Err(stop) => Err((stop, watch)),
        }
    }

    fn parts(address: IpAddr, options: &Options) -> Result<(Route, Box<dyn Sender>, Capture), Stop> {
        let route = Route::to(address)?;
        if route.loopback {
            return Err(Stop::Loopback);
        }
        let sender = send::open(&route, options.send)?;
        let capture = Capture::open(&route)?;
        Ok((route, sender, capture))
    }

    pub(super) fn backend(&self) -> String {
        self.sender.backend().to_string()
    }

    /// Returns the queue discipline that shapes the traffic of this machine, but not the packets of this measurement.
    pub(super) fn avoided_shaper(&self) -> Option<String> {
        if self.sender.backend().is_direct() { os::route::shaper(self.route.index) } else { None }
    }

    /// Returns the measures that would make sending more accurate, but are not permitted.
    pub(super) fn notes(&self) -> &[SendNote] {
        self.sender.notes()
    }

    /// Returns the number of answers lost because they came faster than they were received.
    pub(super) fn dropped(&mut self) -> u64 {
        self.capture.dropped()
    }

    /// Returns the size of the largest IP packet that can be sent, in bytes.
    pub(super) fn ip_bytes_max(&self) -> usize {
        let mtu = usize::try_from(self.route.mtu).unwrap_or(usize::MAX);
        mtu.min(self.sender.frame_bytes_max().saturating_sub(ETHERNET_BYTES)).min(65_535)
    }

    /// Sends one train of probes at `offsets`, and returns their sequence numbers and whether it left on time.
    pub(super) fn send(
        &mut self,
        prober: &mut Prober,
        shape: Shape,
        offsets: &[Duration],
    ) -> Result<(Vec<u32>, SentTrain), Stop> {
        let ends = Ends { ttl: shape.ttl, ..self.ends() };
        let probes = prober.probes(offsets.len());
        let make = |probe| frame(&ends, &prober.session, probe, shape.ip_bytes, shape.dont_fragment);
        let frames = probes.iter().copied().map(make).collect::<Vec<_>>();
        let bytes = frames.iter().map(Vec::len).sum::<usize>() as u64;
        let packets = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        take(&mut self.budget, &self.watch, packets, bytes)?;
        let sent = train::send(&mut *self.sender, frames, offsets, self.bound)?;
        self.trains.packets = self.trains.packets.saturating_add(packets);
        Ok((probes.iter().map(|probe| probe.seq()).collect(), sent))
    }

    /// Calls `each` with every answer, its session's index and its time of arrival, until that breaks or `until` has
    /// come.
    pub(super) fn answers(
        &mut self,
        sessions: &[Session],
        until: Nanos,
        mut each: impl FnMut(usize, Nanos, Reply) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let ends = self.ends();
        loop {
            self.watch.heed()?;
            let soon = until.min(Nanos::now() + HEED_EVERY);
            while let Some(captured) = self.capture.recv_until(soon)? {
                let parsed = |(which, session)| Some((which, parse(captured.frame, &ends, session)?));
                if let Some((which, reply)) = sessions.iter().enumerate().find_map(parsed)
                    && each(which, captured.at, reply).is_break()
                {
                    return Ok(());
                }
                // What arrived in time counts, however late it is read: this machine may have stalled. A flood of other
                // packets must not keep us from ending.
                if captured.at >= soon {
                    break;
                }
            }
            if Nanos::now() >= until {
                return Ok(());
            }
        }
    }

    /// Sends a train until it leaves on time, or near enough for this path. Returns the answers in order of arrival,
    /// duplicates included, numbered by the packet's place in the train; `None` if it never left on time.
    pub(super) fn train(
        &mut self,
        prober: &mut Prober,
        shape: Shape,
        offsets: &[Duration],
        patience: Duration,
    ) -> Result<Option<Vec<Arrival>>, Stop> {
        for _ in 0..TRIES {
            let (seqs, sent) = self.send(prober, shape, offsets)?;
            self.trains.sent = self.trains.sent.saturating_add(1);
            // Wait for the answers to discarded trains too: they would delay the next train.
            let arrivals = self.arrivals(prober, shape, &seqs, &sent, patience)?;
            if sent.is_accepted() || is_usable(&sent, offsets, &arrivals) {
                return Ok(Some(arrivals));
            }
            self.trains.spoiled = self.trains.spoiled.saturating_add(1);
        }
        Ok(None)
    }

    /// Sends a train once, and returns which of its packets were answered, whether or not it left on time.
    pub(super) fn loose_train(
        &mut self,
        prober: &mut Prober,
        shape: Shape,
        offsets: &[Duration],
        patience: Duration,
    ) -> Result<Vec<Arrival>, Stop> {
        let (seqs, sent) = self.send(prober, shape, offsets)?;
        self.arrivals(prober, shape, &seqs, &sent, patience)
    }

    fn arrivals(
        &mut self,
        prober: &mut Prober,
        shape: Shape,
        seqs: &[u32],
        sent: &SentTrain,
        patience: Duration,
    ) -> Result<Vec<Arrival>, Stop> {
        let remote = self.route.remote;
        let last = sent.due.last().copied().unwrap_or_default().max(Nanos::now());
        let ip_bytes = u32::try_from(shape.ip_bytes).unwrap_or(u32::MAX);
        let mut arrivals = Vec::new();
        let mut missing = seqs.len();
        // Bound the number of duplicates kept.
        let most = seqs.len() * 2;
        self.answers(&[prober.session], last + patience, |_, came, reply| {
            let place = seqs.iter().position(|seq| *seq == reply.seq).filter(|_| Prober::is_answer(&reply, remote));
            let left = place.and_then(|place| sent.departures.left.get(place).copied().flatten());
            if let (Some(place), Some(left)) = (place, left) {
                let seq = u32::try_from(place).unwrap_or(u32::MAX);
                missing -= usize::from(arrivals.iter().all(|arrival: &Arrival| arrival.seq != seq));
                arrivals.push(Arrival { seq, sent: left, came, ip_bytes });
            }
            if missing == 0 || arrivals.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if let Some(shortest) = arrivals.iter().map(|arrival| arrival.came.since(arrival.sent)).min() {
            prober.took(shortest);
        }
        Ok(arrivals)
    }

    fn ends(&self) -> Ends {
        let route = &self.route;
        Ends {
            local_mac: route.local_mac,
            remote_mac: route.remote_mac,
            local: route.local,
            remote: route.remote,
            ttl: Shape::SMALL.ttl,
        }
    }
}

/// Waits until the budget allows this much, and takes it.
pub(super) fn take(budget: &mut Budget, watch: &Watch<'_>, packets: u32, bytes: u64) -> Result<(), Stop> {
    loop {
        match budget.take(Nanos::now(), packets, bytes) {
            SendDecision::Now => return Ok(()),
            SendDecision::At(at) => watch.sleep_until(at)?,
            SendDecision::Exhausted => return Err(Stop::Exhausted),
        }
    }
}

/// Returns whether a train that did not leave on time is as good as one that did: its gap errors are small compared
/// with the time between packets, as requested or, if all were answered, on arrival.
fn is_usable(sent: &SentTrain, offsets: &[Duration], arrivals: &[Arrival]) -> bool {
    let asked = offsets.last().copied().unwrap_or_default();
    let came = || arrivals.iter().map(|arrival| arrival.came);
    let answered = came().min().zip(came().max()).filter(|_| arrivals.len() == offsets.len());
    let span = answered.map_or(asked, |(first, last)| asked.max(last.since(first)));
    let gaps = offsets.len().saturating_sub(1).max(1) as f64;
    sent.error_ns().is_some_and(|error_ns| error_ns as f64 <= BEARABLE * span.as_nanos() as f64 / gaps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selfcheck::Verdict;
    use crate::send::Departures;

    /// Two packets due at the same time, which left `left_us` apart and were answered `came_us` apart.
    fn is_pair_usable(left_us: u64, came_us: &[u64]) -> bool {
        let left = vec![Some(Nanos(0)), Some(Nanos(left_us * 1000))];
        let due = vec![Nanos(0); 2];
        let departures = Departures::stamped(left);
        let verdict = departures.check(&due, Bound { gap_error_max: Duration::ZERO });
        assert_ne!(verdict, Verdict::Unknown);
        let sent = SentTrain { due, departures, verdict };
        let arrival = |(seq, us): (u32, &u64)| Arrival { seq, sent: Nanos(0), came: Nanos(us * 1000), ip_bytes: 1500 };
        is_usable(&sent, &[Duration::ZERO; 2], &(0..).zip(came_us).map(arrival).collect::<Vec<_>>())
    }

    #[test]
    fn pair_that_left_late_measures_a_link_that_is_much_slower() {
        assert!(is_pair_usable(22, &[5000, 6211]));
        assert!(!is_pair_usable(22, &[5000, 5022]), "measures this machine only");
        assert!(!is_pair_usable(22, &[5000]), "nothing says that the link is slower");
    }
}
