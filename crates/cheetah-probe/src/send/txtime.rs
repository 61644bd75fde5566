//! Sending packets with the time they are due at, which the kernel holds until then (`SO_TXTIME`). Once they are handed over,
//! this program need not even run.
//!
//! The times of the ETF discipline are those a network card is to send at: packets are given to its driver earlier by the
//! discipline's `delta`. If no card waits for the rest, so much is added to the times, and packets leave when they are due.

mod qdisc;

use std::io;
use std::time::Duration;

use self::qdisc::Holding;
use super::control::send_at;
use super::packet::{PacketSocket, set_option};
use super::queue::check;
use super::stamps::Stamps;
use super::{Backend, Departures, ETHERNET_BYTES, Options, PreDispatch, SendError, Sender, Train, wait};
use crate::clock::{Nanos, WallOffset};
use crate::route::Route;

/// Longest time packets are handed over ahead. FQ takes packets for the next 10 s, and what cannot be called back should not
/// be much.
const AHEAD_MAX: Duration = Duration::from_secs(1);

/// ETF drops what comes later than its `delta` ahead; so much more is kept.
const ETF_MARGIN: Duration = Duration::from_micros(200);

/// Most packets handed over to ETF, which holds as many as the interface's queue is long, 1000 by default.
const ETF_PACKETS_MAX: usize = 500;

/// Hands packets over with their times.
pub(super) struct Txtime {
    socket: PacketSocket,
    interface: String,
    frame_bytes_max: usize,
    backend: Backend,
    pre_dispatch: PreDispatch,
    /// Most packets held at once.
    packets_max: usize,
    /// What is added to the times, and how long ahead packets have to come.
    delay: Duration,
    ahead_min: Duration,
    stamps: Stamps,
}

impl Txtime {
    /// Opens one if the interface's queue discipline goes by the time, and is the one asked for.
    pub(super) fn open(backend: Backend, route: &Route, options: Options) -> Result<Self, SendError> {
        let opening = |error| SendError::opening(backend, &route.interface, error);
        let holding = qdisc::of(route.index).map_err(opening)?;
        let absent = |has: &str| {
            let wanted = if backend == Backend::TxtimeEtf { "etf, by CLOCK_TAI" } else { "fq" };
            let interface = &route.interface;
            let why =
                format!("the queue discipline of {interface} is {has}, which does not hold packets; it takes {wanted}");
            SendError::unavailable(backend, why)
        };
        let (clock, packets_max, delay, ahead_min) = match (backend, holding) {
            (Backend::TxtimeFq, Ok(Holding::Fq { packets_max })) => {
                (libc::CLOCK_MONOTONIC, packets_max as usize, Duration::ZERO, Duration::ZERO)
            }
            (Backend::TxtimeEtf, Ok(Holding::Etf { delta_ns, clock: libc::CLOCK_TAI, offload, deadline: false })) => {
                let delta = Duration::from_nanos(delta_ns.into());
                let delay = if offload { Duration::ZERO } else { delta };
                (libc::CLOCK_TAI, ETF_PACKETS_MAX, delay, delta.saturating_sub(delay) + ETF_MARGIN)
            }
            (_, Ok(Holding::Fq { .. })) => return Err(absent("fq")),
            (_, Ok(Holding::Etf { .. })) => return Err(absent("etf, by another clock or with deadlines")),
            (_, Err(other)) => return Err(absent(&other)),
        };
        let socket = PacketSocket::sending(route.index).map_err(opening)?;
        let wanted = libc::sock_txtime { clockid: clock, flags: 0 };
        set_option(&socket, libc::SOL_SOCKET, libc::SO_TXTIME, &wanted).map_err(opening)?;
        Ok(Self {
            socket,
            interface: route.interface.clone(),
            frame_bytes_max: route.mtu as usize + ETHERNET_BYTES,
            backend,
            pre_dispatch: options.pre_dispatch,
            packets_max: packets_max.max(1),
            delay,
            ahead_min,
            stamps: Stamps::default(),
        })
    }

    /// When the `nth` packet is handed over: as asked, but not so early that more would be held than can be.
    fn handed_over(&self, train: &[Nanos], nth: usize, due: Nanos) -> Nanos {
        let asked = match self.pre_dispatch {
            PreDispatch::Initial => AHEAD_MAX,
            PreDispatch::OnTheFly(ahead) => ahead.clamp(self.ahead_min, AHEAD_MAX.max(self.ahead_min)),
        };
        let room = nth.checked_sub(self.packets_max).and_then(|before| train.get(before));
        room.copied().unwrap_or_default().max(due - asked)
    }

    /// Hands the packets over; counts in `held` those that then leave by themselves.
    fn hand_over(&self, train: &Train, held: &mut usize) -> io::Result<()> {
        self.stamps.restart(&self.socket)?;
        let clock = match self.backend {
            Backend::TxtimeEtf => Some(WallOffset::tai()),
            _ => None,
        };
        for (nth, (frame, due)) in train.frames.iter().zip(&train.due).enumerate() {
            let at = self.handed_over(&train.due, nth, *due);
            if at > Nanos::now() {
                wait::sleep_until(at);
            }
            let time = *due + self.delay;
            send_at(&self.socket, frame, clock.map_or(time.0, |clock| clock.from_monotonic(time)))?;
            *held = nth + 1;
        }
        Ok(())
    }
}

impl Sender for Txtime {
    fn backend(&self) -> Backend {
        self.backend
    }

    fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn send(&mut self, train: &Train) -> Result<Departures, SendError> {
        check(train, self.frame_bytes_max)?;
        let mut held = 0;
        let handed_over = self.hand_over(train, &mut held);
        // What is held cannot be called back. If the train was broken off, nothing that is sent next is to meet it; that takes
        // no longer than packets are handed over ahead.
        if let Some(last) = held.checked_sub(1).and_then(|last| train.due.get(last)) {
            wait::sleep_until(*last);
        }
        handed_over.map_err(|error| SendError::sending(&self.interface, error))?;
        // Without stamps nobody knows when they left: handing over is not sending.
        let packets = train.frames.len();
        let left = self.stamps.collect(&self.socket, packets).unwrap_or_else(|| vec![None; packets]);
        Ok(Departures::stamped(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::tests::skip;
    use crate::send::warm::LOOPBACK;

    #[test]
    fn after_an_error_what_is_held_leaves_before_anything_else_is_sent() {
        // Nothing is held by the loopback interface, which does not matter here.
        let socket = match PacketSocket::sending(LOOPBACK) {
            Ok(socket) => socket,
            Err(error) => return skip(&format!("raw sockets are not permitted here: {error}")),
        };
        let wanted = libc::sock_txtime { clockid: libc::CLOCK_MONOTONIC, flags: 0 };
        set_option(&socket, libc::SOL_SOCKET, libc::SO_TXTIME, &wanted).unwrap();
        let mut sender = Txtime {
            socket,
            interface: "lo".to_owned(),
            frame_bytes_max: 1 << 20,
            backend: Backend::TxtimeFq,
            pre_dispatch: PreDispatch::Initial,
            packets_max: 100,
            delay: Duration::ZERO,
            ahead_min: Duration::ZERO,
            stamps: Stamps::default(),
        };
        // The second is more than the interface takes.
        let frames = [64, 1 << 18].map(|bytes| vec![0; bytes]).to_vec();
        let due = [200, 900].map(|ms| Nanos::now() + Duration::from_millis(ms)).to_vec();
        let first = due[0];
        assert!(sender.send(&Train { frames, due }).is_err());
        assert!(Nanos::now() >= first);
    }
}
