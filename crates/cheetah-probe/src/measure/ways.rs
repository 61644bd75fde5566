//! Which ways there are to make the host answer: small probes of every kind at once.

use std::ops::ControlFlow;
use std::time::Duration;

use super::options::Options;
use super::stop::Stop;
use super::way::{Kind, Way};
use super::wire::{Shape, Wire};
use crate::clock::Nanos;
use crate::frame::{ReplyKind, Session};

/// Probes of each kind, so far apart: one may be lost.
const OFFSETS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(5), Duration::from_millis(10)];
/// How long the other kinds are waited for once one has answered, in round trips.
const TRIPS: u32 = 4;
/// But at least so long.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// Every way the options allow, in the order they tell round trips best; those that the host answers have their `shortest`.
/// What routers said instead is a sentence in `problems`.
pub(super) fn find(wire: &mut Wire<'_>, options: &Options, problems: &mut Vec<String>) -> Result<Vec<Way>, Stop> {
    let (local, remote) = (wire.route.local, wire.route.remote);
    let mut ways = Vec::new();
    let mut left: Vec<Vec<(u32, Nanos)>> = Vec::new();
    for kind in Kind::allowed(options) {
        let mut way = Way::new(kind, options, local)?;
        let (seqs, sent) = wire.send(&mut way, Shape::SMALL, &OFFSETS)?;
        let at = sent.departures.left.iter().zip(&sent.due).map(|(left, due)| left.unwrap_or(*due));
        left.push(seqs.into_iter().zip(at).collect());
        ways.push(way);
    }
    let sessions: Vec<Session> = ways.iter().map(|way| way.session).collect();
    let mut refused = None;
    let until = Nanos::now() + options.timeout;
    let mut enough = until;
    while Nanos::now() < enough && ways.iter().any(|way| way.shortest.is_none()) {
        wire.answers(&sessions, enough, |which, came, reply| {
            let at = left.get(which).and_then(|left| left.iter().find(|(seq, _)| *seq == reply.seq));
            let (Some(way), Some((_, at))) = (ways.get_mut(which), at) else { return ControlFlow::Continue(()) };
            if Way::is_answer(&reply, remote) {
                let trip = came.since(*at);
                way.took(trip);
                enough = until.min(Nanos::now() + (trip * TRIPS).max(WAIT_MIN));
                return ControlFlow::Break(());
            }
            if let ReplyKind::Unreachable { code } = reply.kind {
                refused.get_or_insert((reply.from, code));
            }
            ControlFlow::Continue(())
        })?;
    }
    if let Some((from, code)) = refused.filter(|_| ways.iter().all(|way| way.shortest.is_none())) {
        problems.push(format!("{from} says that {remote} cannot be reached (ICMP code {code})."));
    }
    Ok(ways)
}
