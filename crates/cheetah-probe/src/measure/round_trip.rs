//! Round trips, jitter and loss.

use std::ops::ControlFlow;
use std::time::Duration;

use super::options::{Aspect, Options};
use super::stop::Stop;
use super::way::{Kind, Way};
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::estimate::round_trip::Probes;
use crate::path::RoundTrip;

/// With more lost than that, another way of asking may tell more of the path and less of the host.
const LOSS_SUSPECT: f64 = 0.1;
/// The most probes sent by UDP, of which kernels answer no more than a few a second.
const UDP_PROBES_MAX: u32 = 6;

/// Measures with the first way that answers, and with the next if that loses much and the way of asking was not chosen.
pub(super) fn measure(
    wire: &mut Wire<'_>,
    ways: &mut [Way],
    options: &Options,
    problems: &mut Vec<String>,
) -> Result<Option<RoundTrip>, Stop> {
    let mut best: Option<RoundTrip> = None;
    for way in ways.iter_mut().filter(|way| way.shortest.is_some()) {
        let (found, late) = with(wire, way, options)?;
        if late > 0 {
            problems
                .push(format!("{late} answers came later than {} ms and count as lost.", options.timeout.as_millis()));
        }
        let Some(found) = found else { continue };
        if let Some(before) = best.filter(|before| found.loss < before.loss) {
            problems.push(format!(
                "The host answers only {} of {} probes by {:?}, and more by {:?}: it seems to limit how often it does.",
                before.answered, before.sent, before.method, found.method
            ));
        }
        best = Some(best.filter(|before| before.loss <= found.loss).unwrap_or(found));
        if options.method.is_some() || best.is_some_and(|best| best.loss <= LOSS_SUSPECT) {
            break;
        }
    }
    if best.is_some_and(|best| best.method == Kind::Udp.method() && best.loss > 0.0) {
        problems.push(
            "Hosts limit how often they say that a port is closed, so the loss may be theirs, not the path's.".into(),
        );
    }
    Ok(best)
}

/// One way's round trips, and how many answers came too late.
fn with(wire: &mut Wire<'_>, way: &mut Way, options: &Options) -> Result<(Option<RoundTrip>, u32), Stop> {
    let count = if way.kind == Kind::Udp { options.probes.min(UDP_PROBES_MAX) } else { options.probes };
    let remote = wire.route.remote;
    let mut probes = Probes::new(options.timeout);
    for done in 0..count {
        let begun = Nanos::now();
        let (seqs, sent) = wire.send(way, Shape::SMALL, &[Duration::ZERO])?;
        for seq in seqs {
            probes.sent(seq, sent.first());
        }
        let last = done + 1 == count;
        // An answer that comes somewhat later is known to be late, not lost.
        let until = if last { Nanos::now() + options.timeout * 5 / 4 } else { begun + options.interval };
        wire.answers(&[way.session], until, |_, came, reply| {
            if Way::is_answer(&reply, remote) {
                let answer = probes.answered(reply.seq, came);
                tracing::trace!(?answer, seq = reply.seq);
            }
            if last && probes.all_answered() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        wire.watch.progress(Aspect::RoundTrip, done + 1, count);
    }
    let found = probes.round_trip(way.kind.method());
    if let Some(found) = found {
        way.took(Duration::try_from_secs_f64(found.min_us / 1e6).unwrap_or(options.timeout));
    }
    Ok((found, probes.late()))
}
