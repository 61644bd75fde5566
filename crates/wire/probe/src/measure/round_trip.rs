//! Measures round trips, jitter and loss.

use std::ops::ControlFlow;
use std::time::Duration;

use super::options::{Aspect, Options};
use super::prober::{ProbeKind, Prober};
use super::problem::{Problem, RoundTripProblem};
use super::stop::{Outcome, Stop};
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::estimate::round_trip::Probes;
use crate::path::RoundTrip;

/// Above this loss the host may limit its answers, so the next prober is tried.
const LOSS_SUSPECT: f64 = 0.1;
/// The most UDP probes, of which kernels answer only a few a second.
const UDP_PROBES_MAX: u32 = 6;

/// Measures with the first prober that the host answers. If that has much loss and no method was chosen, measures with
/// the next.
pub(super) fn measure(
    wire: &mut Wire<'_>,
    probers: &mut [Prober],
    options: &Options,
    problems: &mut Vec<Problem>,
) -> Outcome<RoundTrip> {
    let mut best: Option<(ProbeKind, RoundTrip)> = None;
    let (mut silent, mut ended) = (Vec::new(), Ok(()));
    for prober in probers {
        if ended.is_err() {
            break;
        }
        let found;
        let late;
        (found, late, ended) = if prober.shortest.is_some() { with(wire, prober, options) } else { (None, 0, Ok(())) };
        if late > 0 {
            problems.push(Problem::RoundTrip(RoundTripProblem::Late { answers: late, timeout: options.timeout }));
        }
        let Some(found) = found else {
            silent.extend(ended.is_ok().then_some(Problem::RoundTrip(RoundTripProblem::Silent(prober.kind))));
            continue;
        };
        match best {
            Some((_, before)) if found.loss >= before.loss => {}
            Some((kind, RoundTrip { answered, sent, .. })) => {
                problems.push(Problem::RoundTrip(RoundTripProblem::RateLimited {
                    kind,
                    answered,
                    sent,
                    other: prober.kind,
                }));
                best = Some((prober.kind, found));
            }
            None => best = Some((prober.kind, found)),
        }
        if options.method.is_some() || best.is_some_and(|(_, best)| best.loss <= LOSS_SUSPECT) {
            break;
        }
    }
    // A host that answers nothing is reported elsewhere.
    problems.extend(silent.into_iter().filter(|_| best.is_some()));
    let best = best.map(|(_, best)| best);
    if best.is_some_and(|best| best.method == ProbeKind::Udp.method() && best.loss > 0.0) {
        problems.push(Problem::RoundTrip(RoundTripProblem::LossMayBeTheHosts));
    }
    (best, ended)
}

/// Measures with one prober: its round trips, the number of late answers, and whether it ended early.
fn with(wire: &mut Wire<'_>, prober: &mut Prober, options: &Options) -> (Option<RoundTrip>, u32, Result<(), Stop>) {
    let mut probes = Probes::new(options.timeout);
    let ended = ask(wire, prober, options, &mut probes);
    if ended.is_err() {
        probes.forget_pending(Nanos::now());
    }
    let found = probes.round_trip(prober.kind.method());
    if let Some(found) = found {
        prober.took(Duration::try_from_secs_f64(found.min_us / 1e6).unwrap_or(options.timeout));
    }
    (found, probes.late(), ended)
}

fn ask(wire: &mut Wire<'_>, prober: &mut Prober, options: &Options, probes: &mut Probes) -> Result<(), Stop> {
    let count = if prober.kind == ProbeKind::Udp { options.probes.min(UDP_PROBES_MAX) } else { options.probes };
    let remote = wire.route.remote;
    for done in 0..count {
        let begun = Nanos::now();
        let (seqs, sent) = wire.send(prober, Shape::SMALL, &[Duration::ZERO])?;
        for seq in seqs {
            probes.sent(seq, sent.first());
        }
        let last = done + 1 == count;
        // Wait somewhat longer than the time-out, to distinguish late answers from lost ones.
        let until = if last { Nanos::now() + options.timeout * 5 / 4 } else { begun + options.interval };
        wire.answers(&[prober.session], until, |_, came, reply| {
            if Prober::is_answer(&reply, remote) {
                let answer = probes.answered(reply.seq, came);
                tracing::trace!(?answer, seq = reply.seq);
            }
            if last && probes.all_answered() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        wire.watch.progress(Aspect::RoundTrip, done + 1, count);
    }
    Ok(())
}
