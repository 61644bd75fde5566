//! Receives answers with the kernel's timestamps.

mod datagram;
mod filter;

pub use self::datagram::Datagram;

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::send::PacketSocket;
use super::send::control::{Ancillary, receive};
use crate::capture::{CaptureError, Captured};
use crate::clock::{Nanos, WallOffset};
use crate::route::Route;

/// The longest frame that is received whole, in bytes.
const FRAME_BYTES_MAX: usize = 65_536 + crate::frame::ETHERNET_BYTES;

/// How long an offset between the kernel's clocks is reused: it changes only when the clock is set.
const OFFSET_AGE_MAX: Duration = Duration::from_millis(100);

/// Receives whole frames from a host, and ICMP errors from any router. Buffers up to 16 MiB, or as much as is
/// permitted, and counts the frames dropped beyond that.
#[derive(Debug)]
pub struct Capture {
    socket: PacketSocket,
    interface: String,
    buffer: Vec<u8>,
    clock: Clock,
    dropped: u64,
}

impl Capture {
    /// Starts to capture on the route's interface.
    ///
    /// # Errors
    ///
    /// If raw sockets are not permitted, or the interface is gone.
    pub fn open(route: &Route) -> Result<Self, CaptureError> {
        let opened = PacketSocket::receiving(route.index, filter::protocol(route.remote), &filter::from(route.remote));
        let socket = opened.map_err(|error| said(&route.interface, error))?;
        let (interface, buffer) = (route.interface.clone(), vec![0; FRAME_BYTES_MAX]);
        Ok(Self { socket, interface, buffer, clock: Clock::default(), dropped: 0 })
    }

    /// Receives the next frame; `None` if none came until `deadline`.
    ///
    /// # Errors
    ///
    /// If the interface went down.
    pub fn recv_until(&mut self, deadline: Nanos) -> Result<Option<Captured<'_>>, CaptureError> {
        loop {
            match receive(&self.socket, libc::MSG_DONTWAIT, &mut self.buffer) {
                Ok(beside) => {
                    let at = self.clock.at(&beside);
                    return Ok(self.buffer.get(..beside.bytes).map(|frame| Captured { at, frame }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait_until(&self.socket, deadline)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(said(&self.interface, error)),
            }
        }
    }

    /// Returns the number of frames dropped so far because they came faster than they were received.
    pub fn dropped(&mut self) -> u64 {
        self.dropped += u64::from(self.socket.drops_since().unwrap_or_default());
        self.dropped
    }
}

fn said(interface: &str, error: io::Error) -> CaptureError {
    match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::ACCESS) => CaptureError::NotPermitted,
        Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => CaptureError::Down(interface.to_owned()),
        _ => CaptureError::Io(error),
    }
}

/// Converts the kernel's timestamps.
#[derive(Debug, Default)]
struct Clock(Option<(WallOffset, Nanos)>);

impl Clock {
    /// Returns a packet's time of arrival by its timestamp, or now if it has none.
    fn at(&mut self, beside: &Ancillary) -> Nanos {
        let now = Nanos::now();
        let Some(wall_ns) = beside.wall_ns else { return now };
        let offset = match self.0 {
            Some((offset, taken)) if now.since(taken) < OFFSET_AGE_MAX => offset,
            _ => self.0.insert((WallOffset::now(), now)).0,
        };
        offset.to_monotonic(wall_ns)
    }
}

/// Waits for a packet or an error; returns false at `deadline`.
fn wait_until(socket: &impl std::os::fd::AsFd, deadline: Nanos) -> io::Result<bool> {
    let left = deadline.since(Nanos::now());
    let wait = Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        // A signal: the caller checks its deadline again.
        Err(Errno::INTR) => Ok(deadline > Nanos::now()),
        Err(error) => Err(error.into()),
    }
}
