//! Finds the routers on the path by probes with increasing time to live.

use std::ops::ControlFlow;
use std::time::Duration;

use super::options::{Aspect, Options};
use super::prober::Prober;
use super::problem::Problem;
use super::stop::Stop;
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::frame::ReplyKind;
use crate::path::Hop;

/// The most hops, as with traceroute.
const HOPS_MAX: u8 = 30;
/// Hops probed at once; if all of them are silent, the rest is not probed.
const AT_ONCE: u8 = 10;
/// Probes to each hop.
const ROUNDS: u32 = 3;
/// The time between probes: routers limit the rate of their errors.
const GAP: Duration = Duration::from_millis(1);

/// The answers from one distance.
#[derive(Debug, Clone, Copy, Default)]
struct HopAnswers {
    from: Option<std::net::IpAddr>,
    shortest: Option<Duration>,
    /// Whether it was the host that answered.
    host: bool,
}

/// Returns the routers before the host, or before the path becomes silent.
pub(super) fn measure(
    wire: &mut Wire<'_>,
    probers: &mut [Prober],
    options: &Options,
    problems: &mut Vec<Problem>,
) -> Result<Vec<Hop>, Stop> {
    // Routers answer even if the host does not. If it answers nothing, the first kind is sent, which most networks let
    // through.
    let best = probers.iter().position(|prober| prober.shortest.is_some()).or((!probers.is_empty()).then_some(0));
    let Some(prober) = best.and_then(|best| probers.get_mut(best)) else { return Ok(Vec::new()) };
    let mut heard = vec![HopAnswers::default(); usize::from(HOPS_MAX)];
    let mut farthest = HOPS_MAX;
    for round in 0..ROUNDS {
        let mut from = 1;
        while from <= farthest {
            let to = (from + AT_ONCE - 1).min(farthest);
            ask(wire, prober, from..=to, &mut heard, options.timeout)?;
            let host = heard.iter().position(|heard| heard.host).and_then(|at| u8::try_from(at + 1).ok());
            farthest = farthest.min(host.unwrap_or(farthest));
            let batch = heard.get(usize::from(from) - 1..usize::from(to)).unwrap_or_default();
            if host.is_none() && batch.iter().all(|heard| heard.from.is_none()) {
                farthest = to;
            }
            from = to + 1;
        }
        wire.watch.progress(Aspect::Hops, round + 1, ROUNDS);
    }
    let reached = heard.iter().any(|heard| heard.host);
    if !reached {
        problems.push(Problem::HostBeyondHops);
    }
    Ok(hops(&heard))
}

/// Probes every router of these distances once.
fn ask(
    wire: &mut Wire<'_>,
    prober: &mut Prober,
    distances: std::ops::RangeInclusive<u8>,
    heard: &mut [HopAnswers],
    timeout: Duration,
) -> Result<(), Stop> {
    let remote = wire.route.remote;
    let mut asked = Vec::new();
    for ttl in distances {
        let (seqs, sent) = wire.send(prober, Shape { ttl, ..Shape::SMALL }, &[Duration::ZERO])?;
        asked.extend(seqs.into_iter().map(|seq| (seq, ttl, sent.first())));
        wire.watch.sleep_until(Nanos::now() + GAP)?;
    }
    let mut missing = asked.len();
    wire.answers(&[prober.session], Nanos::now() + prober.patience(1, timeout), |_, came, reply| {
        let host = Prober::is_answer(&reply, remote);
        let probe = asked.iter().position(|(seq, ..)| *seq == reply.seq).filter(|_| {
            // Other ICMP errors also come from a router on the path, but do not show at which hop.
            host || reply.kind == ReplyKind::TimeExceeded
        });
        // Each probe has one answer; duplicates are ignored.
        let Some((_, ttl, left)) = probe.map(|probe| asked.swap_remove(probe)) else {
            return ControlFlow::Continue(());
        };
        missing -= 1;
        if let Some(known) = heard.get_mut(usize::from(ttl) - 1) {
            let took = came.since(left);
            known.from.get_or_insert(reply.from);
            known.host |= host;
            known.shortest = Some(known.shortest.map_or(took, |shortest| shortest.min(took)));
        }
        if missing == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Returns the routers before the host. A silent router is included only if a later router or the host answered.
fn hops(heard: &[HopAnswers]) -> Vec<Hop> {
    let host = heard.iter().position(|heard| heard.host);
    let last = heard.iter().rposition(|heard| heard.from.is_some()).map_or(0, |last| last + 1);
    let count = host.unwrap_or(last);
    let hop = |(ttl, heard): (u8, &HopAnswers)| Hop {
        ttl,
        address: heard.from,
        min_us: heard.shortest.map(|shortest| shortest.as_secs_f64() * 1e6),
    };
    (1..).zip(heard.iter().take(count)).map(hop).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn router(last: u8) -> HopAnswers {
        let from = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        HopAnswers { from, shortest: Some(Duration::from_micros(100)), host: false }
    }

    #[test]
    fn silent_routers_are_counted_only_before_a_hop_that_answers() {
        let silent = HopAnswers::default();
        let host = HopAnswers { host: true, ..router(9) };
        let ttls =
            |heard: &[HopAnswers]| hops(heard).iter().map(|hop| (hop.ttl, hop.address.is_some())).collect::<Vec<_>>();
        assert_eq!(ttls(&[router(1), silent, host, host]), [(1, true), (2, false)]);
        assert_eq!(ttls(&[router(1), silent, router(3), silent, silent]), [(1, true), (2, false), (3, true)]);
        assert_eq!(ttls(&[host, silent]), []);
        assert_eq!(ttls(&[silent, silent]), []);
    }
}
