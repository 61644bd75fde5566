//! Kernel timestamps of sent packets, from a packet socket's error queue.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::control::receive;
use super::packet::set_option;
use crate::clock::{Nanos, WallOffset};

/// The time limit for a stamp after its packet was sent. Drivers that stamp do so when they take the packet.
const STAMP_WAIT: Duration = Duration::from_millis(20);

/// Software stamps, each with the number of its packet and without a copy of it.
const FLAGS: u32 = libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;

/// Requests and collects timestamps.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    /// Trains whose interface did not stamp a single packet.
    without: u32,
}

impl Stamps {
    /// Restarts the count of packets at 0. Call it before each train.
    pub(super) fn restart(&self, socket: &impl AsFd) -> io::Result<()> {
        let _ = drain(socket, |_, _| {});
        set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &0_u32)?;
        set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &FLAGS)
    }

    /// Returns when the first `packets` packets since [`restart`](Self::restart) left; `None` if the interface does not
    /// stamp.
    pub(super) fn collect(&mut self, socket: &impl AsFd, packets: usize) -> Option<Vec<Option<Nanos>>> {
        let offset = WallOffset::now();
        let mut left = vec![None; packets];
        let mut stamped = 0;
        let patience = if self.without < 3 { STAMP_WAIT } else { Duration::ZERO };
        let until = Nanos::now() + patience;
        loop {
            let read = drain(socket, |nth, wall_ns| {
                if let Some(left) = usize::try_from(nth).ok().and_then(|nth| left.get_mut(nth)) {
                    stamped += usize::from(left.is_none());
                    *left = Some(offset.to_monotonic(wall_ns));
                }
            });
            if stamped == packets || read.is_err() || !readable(socket, until.since(Nanos::now())) {
                break;
            }
        }
        self.without = if stamped == 0 { self.without.saturating_add(1) } else { 0 };
        (stamped > 0).then_some(left)
    }
}

/// Takes all stamps out of the error queue.
fn drain(socket: &impl AsFd, mut each: impl FnMut(u32, u64)) -> io::Result<()> {
    loop {
        match receive(socket, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT, &mut []) {
            Ok(beside) => {
                let error = beside.error.filter(|error| error.origin == libc::SO_EE_ORIGIN_TIMESTAMPING);
                if let (Some(error), Some(wall_ns)) = (error, beside.wall_ns) {
                    each(error.data, wall_ns);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Waits for more stamps; returns false if none came in time.
fn readable(socket: &impl AsFd, wait: Duration) -> bool {
    let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
    let mut watched = [PollFd::new(socket, PollFlags::empty())];
    // `poll` always reports a non-empty error queue as an error.
    poll(&mut watched, Some(&wait)).is_ok_and(|ready| ready > 0)
        && watched.iter().any(|watched| watched.revents().contains(PollFlags::ERR))
}
