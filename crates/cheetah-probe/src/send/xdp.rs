//! Sending through `AF_XDP` in copy mode: frames lie in memory the kernel knows, descriptors of them in a ring, and one call
//! sends those the ring's producer index has been moved past. It takes less of a way through the kernel than packet sockets
//! do. (Linux `Documentation/networking/af_xdp.rst`, `xsk-tx-metadata.rst`.)
//!
//! Copy mode is asked for, always: taking an interface's queue over for zero copy would restart the interface of a machine
//! that is being examined.

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
use super::call::Call;
use super::packet::set_option;
use super::queue::{FrameQueue, SpinSender};
use super::wait::Patience;
use super::warm::LOOPBACK;
use super::{Backend, ETHERNET_BYTES, Options, SendError};
use crate::clock::{Nanos, WallOffset};
use crate::route::Route;

/// Places for frames. Trains that are longer are refilled as they go.
const PLACES: u32 = 1024;

/// `XDP_MAX_TX_SKB_BUDGET`, Linux 6.17: how many packets one call sends, 32 unless told.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// How often a queue that another socket has is tried, at intervals.
const BIND_ATTEMPTS: u32 = 40;
const BIND_INTERVAL: Duration = Duration::from_millis(5);

/// How long frames may take to be done with after the call that sent them, before their stamps are done without.
const DONE_WAIT: Duration = Duration::from_millis(2);

/// Two clock readings that should be one may be so far apart.
const CLOCK_SLACK: Duration = Duration::from_micros(1);

/// Frames in a shared memory, and the ring that says which are to go.
pub(super) struct Xdp {
    socket: OwnedFd,
    umem: Umem,
    descriptors: Descriptors,
    completions: Completions,
    /// Frames put and gone since it was opened.
    put: u32,
    gone: u32,
    /// Of each place, the frame in it the kernel is not done with yet.
    busy: Vec<Option<u32>>,
    /// Which frame the train at hand begins with.
    train: u32,
    /// When the frames of the train at hand were done with, in nanoseconds of `CLOCK_TAI`.
    done: Vec<Option<u64>>,
}

/// Opens one on the first queue of the route's interface.
pub(super) fn open(route: &Route, options: Options) -> Result<SpinSender<Xdp>, SendError> {
    let frame_bytes = route.mtu as usize + ETHERNET_BYTES;
    if frame_bytes > umem::FRAME_BYTES_MAX {
        let why = format!(
            "frames of {} have up to {frame_bytes} bytes, and it takes {}",
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
        let (busy, done) = (vec![None; PLACES as usize], Vec::with_capacity(super::PACKETS_MAX));
        Ok(Self { socket, umem, descriptors, completions, put: 0, gone: 0, busy, train: 0, done })
    }

    /// Takes back the places of frames the kernel is done with, and notes when it was.
    fn take_back(&mut self) {
        while let Some(address) = self.completions.take() {
            let place = Umem::place(address);
            let Some(nth) = self.busy.get_mut(place).and_then(Option::take) else { continue };
            if let Some(done) = self.done.get_mut(nth.wrapping_sub(self.train) as usize) {
                *done = self.umem.stamp(place);
            }
        }
    }
}

/// A queue has one socket. One that was closed just now leaves it some milliseconds later.
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
            self.take_back();
        }
        let Some(free) = self.busy.get_mut(place).filter(|busy| busy.is_none()) else { return false };
        *free = Some(self.put);
        if self.done.len() < super::PACKETS_MAX {
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
                // As many as one call sends were sent, or there is no room for packets just now.
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

    /// The kernel stamps frames when the driver is done with them. Drivers that hand packets on at once do so within the call
    /// that sends them; those of network cards only when the card interrupts for it, which is no measure of when they left.
    fn stamps(&mut self, calls: &[Call]) -> Option<Vec<Option<Nanos>>> {
        let until = Nanos::now() + DONE_WAIT;
        self.take_back();
        while self.busy.iter().any(Option::is_some) && Nanos::now() < until {
            self.take_back();
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
