//! Finds the probers that the host answers, by small probes of every kind at once.

use std::ops::ControlFlow;
use std::time::Duration;

use super::options::Options;
use super::prober::{ProbeKind, Prober};
use super::problem::Problem;
use super::stop::Stop;
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::frame::{ReplyKind, Session};

/// When the probes of each kind leave: one may be lost.
const OFFSETS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(5), Duration::from_millis(10)];
/// How long to wait for the other kinds once one has answered, in round trips,
const TRIPS: u32 = 4;
/// but at least this long.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// Returns every prober that the options allow, the best for round trips first; those that the host answers have their
/// `shortest`. Adds to `problems` the errors that routers sent instead.
pub(super) fn find(wire: &mut Wire<'_>, options: &Options, problems: &mut Vec<Problem>) -> Result<Vec<Prober>, Stop> {
    let (local, remote) = (wire.route.local, wire.route.remote);
    let mut probers = Vec::new();
    let mut left: Vec<Vec<(u32, Nanos)>> = Vec::new();
    for kind in ProbeKind::allowed(options) {
        let mut prober = Prober::new(kind, options, local)?;
        let (seqs, sent) = wire.send(&mut prober, Shape::SMALL, &OFFSETS)?;
        let at = sent.departures.left.iter().zip(&sent.due).map(|(left, due)| left.unwrap_or(*due));
        left.push(seqs.into_iter().zip(at).collect());
        probers.push(prober);
    }
    let sessions: Vec<Session> = probers.iter().map(|prober| prober.session).collect();
    let mut refused = None;
    let until = Nanos::now() + options.timeout;
    let mut enough = until;
    let mut answered = true;
    while answered && probers.iter().any(|prober| prober.shortest.is_none()) {
        answered = false;
        wire.answers(&sessions, enough, |which, came, reply| {
            let at = left.get(which).and_then(|left| left.iter().find(|(seq, _)| *seq == reply.seq));
            let (Some(prober), Some((_, at))) = (probers.get_mut(which), at) else { return ControlFlow::Continue(()) };
            if Prober::is_answer(&reply, remote) {
                let trip = came.since(*at);
                prober.took(trip);
                enough = until.min(Nanos::now() + (trip * TRIPS).max(WAIT_MIN));
                answered = true;
                return ControlFlow::Break(());
            }
            if let ReplyKind::Unreachable { code } = reply.kind {
                refused.get_or_insert((reply.from, code));
            }
            ControlFlow::Continue(())
        })?;
    }
    if let Some((from, code)) = refused.filter(|_| probers.iter().all(|prober| prober.shortest.is_none())) {
        problems.push(Problem::Unreachable { from, remote, code });
    }
    Ok(probers)
}
