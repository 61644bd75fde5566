//! Sends packets with their due times, until which the kernel holds them (`SO_TXTIME`). Once it has handed them over,
//! this program need not run.
//!
//! The ETF discipline passes a packet to the driver `delta` before its time, and expects the network card to wait for
//! the rest. If the card does not wait, `delta` is added to the times, so that packets leave when they are due.

mod qdisc;

use std::io;
use std::time::Duration;

use self::qdisc::{Holding, HoldsNothing};
use super::control::send_at;
use super::packet::{PacketSocket, set_option};
use super::stalls::StallWatch;
use super::stamps::Stamps;
use super::{quiet, wait};
use crate::clock::{Nanos, WallOffset};
use crate::frame::ETHERNET_BYTES;
use crate::route::Route;
use crate::send::{Backend, Departures, Options, PreDispatch, SendError, SendNote, Sender, Train};

/// The longest time that packets are handed over ahead. FQ would accept 10 s, but packets cannot be cancelled once
/// handed over.
const AHEAD_MAX: Duration = Duration::from_secs(1);

/// The margin beyond `delta`: ETF drops packets that are handed over less than `delta` ahead.
const ETF_MARGIN: Duration = Duration::from_micros(200);

/// The most packets handed over to ETF, which holds up to the interface's queue length, 1000 by default.
const ETF_PACKETS_MAX: usize = 500;

/// A sender that hands packets over with their due times.
pub(super) struct Txtime {
    socket: PacketSocket,
    interface: String,
    frame_bytes_max: usize,
    backend: Backend,
    pre_dispatch: PreDispatch,
    /// The most packets that the discipline holds at once.
    packets_max: usize,
    /// The time added to due times.
    delay: Duration,
    /// The least time ahead that packets are handed over.
    ahead_min: Duration,
    stamps: Stamps,
}

impl Txtime {
    /// Opens a sender if the interface has the queue discipline that `backend` requires.
    pub(super) fn open(backend: Backend, route: &Route, options: Options) -> Result<Self, SendError> {
        let opening = |error| SendError::opening(backend, &route.interface, error);
        let holding = qdisc::of(route.index).map_err(opening)?;
        let absent = |has: &str| {
            let required = if backend == Backend::TxtimeEtf { "etf, by CLOCK_TAI" } else { "fq" };
            let interface = &route.interface;
            let why = format!(
                "the queue discipline of {interface} is {has}, which does not hold packets; {required} is required"
            );
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
            (_, Err(HoldsNothing(other))) => return Err(absent(&other)),
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

    /// Returns when the `nth` packet is handed over: as configured, but not before the discipline has room for it.
    fn handed_over(&self, train: &[Nanos], nth: usize, due: Nanos) -> Nanos {
        let ahead_of_due = match self.pre_dispatch {
            PreDispatch::Initial => AHEAD_MAX,
            PreDispatch::OnTheFly(ahead) => ahead.clamp(self.ahead_min, AHEAD_MAX.max(self.ahead_min)),
        };
        let room = nth.checked_sub(self.packets_max).and_then(|before| train.get(before));
        room.copied().unwrap_or_default().max(due - ahead_of_due)
    }

    /// Hands the packets over, and counts them in `held`. Notes stalls of this thread in `watch`.
    fn hand_over(&self, train: &Train, held: &mut usize, watch: &mut StallWatch) -> io::Result<()> {
        self.stamps.restart(&self.socket)?;
        let clock = match self.backend {
            Backend::TxtimeEtf => Some(WallOffset::tai()),
            _ => None,
        };
        for (nth, (frame, due)) in train.frames.iter().zip(&train.due).enumerate() {
            let at = self.handed_over(&train.due, nth, *due);
            sleep_until(at, watch);
            let time = *due + self.delay;
            send_at(&self.socket, frame, clock.map_or(time.0, |clock| clock.from_monotonic(time)))?;
            watch.reads(Nanos::now());
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

    fn notes(&self) -> &[SendNote] {
        &[]
    }

    fn quiet_start(&self, earliest: Nanos, offsets: &[Duration]) -> Nanos {
        quiet::quiet_start(&quiet::Pauses::default(), earliest, offsets)
    }

    fn send(&mut self, train: &Train) -> Result<Departures, SendError> {
        train.check(self.frame_bytes_max)?;
        let (mut held, mut watch) = (0, StallWatch::begin());
        let handed_over = self.hand_over(train, &mut held, &mut watch);
        // Packets that are held cannot be cancelled. After an error, wait until they have left, so that they do not mix
        // with the next train. That takes no longer than AHEAD_MAX.
        if let Some(last) = held.checked_sub(1).and_then(|last| train.due.get(last)) {
            sleep_until(*last, &mut watch);
        }
        handed_over.map_err(|error| SendError::sending(&self.interface, error))?;
        // Without timestamps the departure times are unknown: handing over is not sending.
        let packets = train.frames.len();
        let left = self.stamps.collect(&self.socket, packets).unwrap_or_else(|| vec![None; packets]);
        let mut departures = Departures::stamped(left);
        departures.stalls = watch.end();
        Ok(departures)
    }
}

/// Sleeps until `until`, and notes how late it woke up. A time in the past is no stall.
fn sleep_until(until: Nanos, watch: &mut StallWatch) {
    if until > Nanos::now() {
        wait::sleep_until(until);
        watch.woke(until);
    }
}

#[cfg(test)]
mod tests {
    use super::super::warm::LOOPBACK;
    use super::*;
    use cheetah_testing::skip;

    #[test]
    fn after_an_error_held_packets_leave_before_the_next_train() {
        // The loopback interface holds nothing, but the sender waits nevertheless.
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
        // The second is larger than the interface accepts.
        let frames = [64, 1 << 18].map(|bytes| vec![0; bytes]).to_vec();
        let due = [200, 900].map(|ms| Nanos::now() + Duration::from_millis(ms)).to_vec();
        let first = due[0];
        assert!(sender.send(&Train { frames, due }).is_err());
        assert!(Nanos::now() >= first);
    }
}
