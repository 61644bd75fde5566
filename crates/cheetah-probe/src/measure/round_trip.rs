//! Round trips, jitter and loss.

use std::ops::ControlFlow;
use std::time::Duration;

use super::options::{Aspect, Options};
use super::stop::{Learnt, Stop};
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
) -> Learnt<RoundTrip> {
    let mut best: Option<(Kind, RoundTrip)> = None;
    let (mut silent, mut ended) = (Vec::new(), Ok(()));
    for way in ways {
        if ended.is_err() {
            break;
        }
        let found;
        let late;
        (found, late, ended) = if way.shortest.is_some() { with(wire, way, options) } else { (None, 0, Ok(())) };
        if late > 0 {
            problems
                .push(format!("{late} answers came later than {} ms and count as lost.", options.timeout.as_millis()));
        }
        let noun = way.kind.noun();
        let Some(found) = found else {
            silent.extend(ended.is_ok().then(|| format!("The host does not answer {noun}.")));
            continue;
        };
        match best {
            Some((_, before)) if found.loss >= before.loss => {}
            Some((kind, RoundTrip { answered, sent, .. })) => {
                let limits = "it seems to limit how often it does";
                problems.push(format!(
                    "The host answered {answered} of {sent} {}, and more {noun}: {limits}.",
                    kind.noun()
                ));
                best = Some((way.kind, found));
            }
            None => best = Some((way.kind, found)),
        }
        if options.method.is_some() || best.is_some_and(|(_, best)| best.loss <= LOSS_SUSPECT) {
            break;
        }
    }
    // Of a host that answers nothing, that is said elsewhere.
    problems.extend(silent.into_iter().filter(|_| best.is_some()));
    let best = best.map(|(_, best)| best);
    if best.is_some_and(|best| best.method == Kind::Udp.method() && best.loss > 0.0) {
        problems.push(
            "Hosts limit how often they say that a port is closed, so the loss may be theirs, not the path's.".into(),
        );
    }
    (best, ended)
}

/// One way's round trips, how many answers came too late, and whether it ended early.
fn with(wire: &mut Wire<'_>, way: &mut Way, options: &Options) -> (Option<RoundTrip>, u32, Result<(), Stop>) {
    let mut probes = Probes::new(options.timeout);
    let ended = ask(wire, way, options, &mut probes);
    if ended.is_err() {
        probes.forget_pending(Nanos::now());
    }
    let found = probes.round_trip(way.kind.method());
    if let Some(found) = found {
        way.took(Duration::try_from_secs_f64(found.min_us / 1e6).unwrap_or(options.timeout));
    }
    (found, probes.late(), ended)
}

fn ask(wire: &mut Wire<'_>, way: &mut Way, options: &Options, probes: &mut Probes) -> Result<(), Stop> {
    let count = if way.kind == Kind::Udp { options.probes.min(UDP_PROBES_MAX) } else { options.probes };
    let remote = wire.route.remote;
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
    Ok(())
}
