//! Sends through `AF_XDP` in copy mode. Frames lie in memory shared with the kernel and their descriptors in a ring;
//! one call sends all frames before the ring's producer index. The path through the kernel is shorter than that of
//! packet sockets. (Linux `Documentation/networking/af_xdp.rst`, `xsk-tx-metadata.rst`.)
//!
//! Always in copy mode, since zero copy would restart the interface of a machine that is being examined.

mod rings;
mod umem;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with};

use self::rings::{Completions, Descriptors};
use self::umem::Umem;
use super::packet::set_option;
use super::queue::FrameQueue;
use super::spin::SpinSender;
use super::wait::Patience;
use super::warm::LOOPBACK;
use crate::clock::{Nanos, WallOffset};
use crate::frame::ETHERNET_BYTES;
use crate::route::Route;
use crate::send::call::SendCall;
use crate::send::{Backend, Options, SendError};

/// Places for frames. Places are reused while a longer train is sent.
const PLACES: u32 = 1024;

/// `XDP_MAX_TX_SKB_BUDGET`, Linux 6.17: the most packets that one call sends, 32 by default.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// Attempts to bind to a queue that another socket occupies.
const BIND_ATTEMPTS: u32 = 40;
const BIND_INTERVAL: Duration = Duration::from_millis(5);

/// How long to wait for the completion of frames after the call that sent them; without it they have no timestamps.
const DONE_WAIT: Duration = Duration::from_millis(2);

/// The tolerance when times of two clocks are compared.
const CLOCK_SLACK: Duration = Duration::from_micros(1);

/// Frames in shared memory, and the ring of their descriptors.
pub(super) struct Xdp {
    socket: OwnedFd,
    umem: Umem,
    descriptors: Descriptors,
    completions: Completions,
    /// Frames queued and released since the socket was opened.
    put: u32,
    gone: u32,
    /// For each place, the frame in it that the kernel has not completed.
    busy: Vec<Option<u32>>,
    /// The first frame of the current train.
    train: u32,
    /// When the frames of the current train were completed, in nanoseconds of `CLOCK_TAI`.
    done: Vec<Option<u64>>,
}

/// Opens a sender on the first queue of the route's interface.
pub(super) fn open(route: &Route, options: Options) -> Result<SpinSender<Xdp>, SendError> {
    let frame_bytes = route.mtu as usize + ETHERNET_BYTES;
    if frame_bytes > umem::FRAME_BYTES_MAX {
        let why = format!(
            "frames of {} have up to {frame_bytes} bytes, and AF_XDP takes {}",
            route.interface,
            umem::FRAME_BYTES_MAX
        );
        return Err(SendError::unavailable(Backend::Xdp, why));
    }
    let xdp = Xdp::open(route.index, BIND_ATTEMPTS);
    let xdp = xdp.map_err(|error| SendError::opening(Backend::Xdp, &route.interface, error))?;
    Ok(SpinSender::new(xdp, route.interface.clone(), options))
}

impl Xdp {
    fn open(index: u32, attempts: u32) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let umem = Umem::register(&socket, PLACES)?;
        let (descriptors, completions) = rings::open(&socket, PLACES)?;
        let budget = i32::try_from(PLACES).unwrap_or_default();
        let _ = set_option(&socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget);
        let buffer_bytes = super::packet::BUFFER_BYTES;
        if set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &buffer_bytes).is_err() {
            set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &buffer_bytes)?;
        }
        bind_when_free(&socket, index, attempts)?;
        let (busy, done) = (vec![None; PLACES as usize], Vec::with_capacity(crate::send::PACKETS_MAX));
        Ok(Self { socket, umem, descriptors, completions, put: 0, gone: 0, busy, train: 0, done })
    }

    /// Frees the places of completed frames, and notes when they were completed.
    fn reclaim(&mut self) {
        while let Some(address) = self.completions.take() {
            let place = Umem::place(address);
            let Some(nth) = self.busy.get_mut(place).and_then(Option::take) else { continue };
            if let Some(done) = self.done.get_mut(nth.wrapping_sub(self.train) as usize) {
                *done = self.umem.stamp(place);
            }
        }
    }
}

/// Binds to the interface's queue, which admits one socket. A socket that was just closed leaves it some milliseconds
/// later.
fn bind_when_free(socket: &OwnedFd, index: u32, attempts: u32) -> io::Result<()> {
    let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, index, 0);
    for _ in 0..attempts {
        match bind(socket, &address) {
            Err(Errno::BUSY) => std::thread::sleep(BIND_INTERVAL),
            done => return Ok(done?),
        }
    }
    Err(Errno::BUSY.into())
}

impl FrameQueue for Xdp {
    const BACKEND: Backend = Backend::Xdp;

    fn frame_bytes_max(&self) -> usize {
        umem::FRAME_BYTES_MAX
    }

    fn put(&mut self, frame: &[u8]) -> bool {
        let place = (self.put % PLACES) as usize;
        if self.busy.get(place).is_none_or(Option::is_some) {
            self.reclaim();
        }
        let Some(free) = self.busy.get_mut(place).filter(|busy| busy.is_none()) else { return false };
        *free = Some(self.put);
        if self.done.len() < crate::send::PACKETS_MAX {
            self.done.push(None);
        }
        let (address, options) = self.umem.put(self.put, frame);
        self.descriptors.describe(self.put, address, u32::try_from(frame.len()).unwrap_or_default(), options);
        self.put = self.put.wrapping_add(1);
        true
    }

    fn go(&mut self, packets: usize) -> io::Result<()> {
        self.gone = self.gone.wrapping_add(u32::try_from(packets).unwrap_or_default());
        self.descriptors.publish(self.gone);
        let (mut patience, mut taken) = (Patience::since(Nanos::now()), self.descriptors.taken());
        loop {
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                // The call sent as many as one call may, or there is no room at the moment.
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let before = std::mem::replace(&mut taken, self.descriptors.taken());
            if taken == self.gone {
                return Ok(());
            }
            if taken == before {
                patience.wait()?;
            } else {
                patience = Patience::since(Nanos::now());
            }
        }
    }

    fn to_warm_up() -> Option<Self> {
        Self::open(LOOPBACK, 1).ok()
    }

    fn idle(&mut self) {
        self.umem.touch(self.gone);
        let _ = send(&self.socket, &[], SendFlags::DONTWAIT);
    }

    /// The kernel stamps frames when the driver has completed them. Virtual drivers do so within the call that sends
    /// them. Those of network cards do so at a later interrupt, which is not a departure time, so such stamps are
    /// rejected.
    fn stamps(&mut self, calls: &[SendCall]) -> Option<Vec<Option<Nanos>>> {
        let until = Nanos::now() + DONE_WAIT;
        self.reclaim();
        while self.busy.iter().any(Option::is_some) && Nanos::now() < until {
            self.reclaim();
        }
        let done = std::mem::take(&mut self.done);
        self.train = self.put;
        let offset = WallOffset::tai();
        let mut calls = calls.iter().flat_map(|call| std::iter::repeat_n(call, call.packets));
        let left = done.iter().map(|tai_ns| {
            let (left, call) = (offset.to_monotonic((*tai_ns)?), calls.next()?);
            (left + CLOCK_SLACK >= call.before && left <= call.after + CLOCK_SLACK).then_some(Some(left))
        });
        let left = left.collect();
        self.done = done;
        self.done.clear();
        left
    }
}
