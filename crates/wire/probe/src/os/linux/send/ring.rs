//! Sending through a `PACKET_TX_RING`: frames lie in memory the kernel reads, and one call sends those that are marked.
//! (Linux `Documentation/networking/packet_mmap.rst`.)

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::net::{SendFlags, send};

use super::memory::Memory;
use super::packet::{PacketSocket, set_option};
use super::queue::FrameQueue;
use super::spin::SpinSender;
use super::stamps::Stamps;
use super::wait::Patience;
use super::warm::LOOPBACK;
use crate::clock::Nanos;
use crate::frame::ETHERNET_BYTES;
use crate::route::Route;
use crate::send::call::SendCall;
use crate::send::{Backend, Options, SendError};

/// Places for frames. Places are reused while a longer train is sent.
const PLACES: usize = 1024;

/// Room for a frame in its place begins here, behind `struct tpacket2_hdr` (with `PACKET_TX_HAS_OFF` unset).
const FRAME_OFFSET: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();

/// Where the header has its status and the frame's length.
const STATUS_OFFSET: usize = std::mem::offset_of!(libc::tpacket2_hdr, tp_status);
const LENGTH_OFFSET: usize = std::mem::offset_of!(libc::tpacket2_hdr, tp_len);

/// A ring of frames, which the kernel sends at a call after their status has changed.
pub(super) struct Ring {
    socket: PacketSocket,
    memory: Memory,
    place_bytes: usize,
    /// The next place to put a frame into, and the next to send from.
    put: usize,
    gone: usize,
    stamps: Stamps,
}

/// Opens a ring on the route's interface.
pub(super) fn open(route: &Route, options: Options) -> Result<SpinSender<Ring>, SendError> {
    let ring = Ring::open(route.index, route.mtu as usize)
        .map_err(|error| SendError::opening(Backend::Ring, &route.interface, error))?;
    Ok(SpinSender::new(ring, route.interface.clone(), options))
}

impl Ring {
    fn open(index: u32, mtu: usize) -> io::Result<Self> {
        let socket = PacketSocket::sending(index)?;
        // Powers of two from half a page on divide pages evenly. Longer frames are refused: see `frame_bytes_max`.
        let place_bytes = (FRAME_OFFSET + ETHERNET_BYTES + mtu).next_power_of_two().clamp(2048, 16_384);
        let block_bytes = place_bytes.max(4096);
        let bytes = PLACES * place_bytes;
        let request = libc::tpacket_req {
            tp_block_size: u32::try_from(block_bytes).unwrap_or_default(),
            tp_block_nr: u32::try_from(bytes / block_bytes).unwrap_or_default(),
            tp_frame_size: u32::try_from(place_bytes).unwrap_or_default(),
            tp_frame_nr: u32::try_from(PLACES).unwrap_or_default(),
        };
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        // Packets that wait in a queue discipline are not on time. Not every kernel has the bypass.
        let _ = set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32);
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_TX_RING, &request)?;
        let memory = Memory::of(&socket, bytes, 0)?;
        let stamps = Stamps::default();
        stamps.restart(&socket)?;
        Ok(Self { socket, memory, place_bytes, put: 0, gone: 0, stamps })
    }

    const fn place(&self, nth: usize) -> usize {
        nth % PLACES * self.place_bytes
    }

    fn status(&self, nth: usize) -> u32 {
        self.memory.cell(self.place(nth) + STATUS_OFFSET).load(Acquire)
    }
}

impl FrameQueue for Ring {
    const BACKEND: Backend = Backend::Ring;

    fn frame_bytes_max(&self) -> usize {
        self.place_bytes - FRAME_OFFSET
    }

    fn put(&mut self, frame: &[u8]) -> bool {
        let busy = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
        if self.put - self.gone == PLACES || self.status(self.put) & busy != 0 {
            return false;
        }
        let place = self.place(self.put);
        self.memory.write(place + FRAME_OFFSET, frame);
        self.memory.cell(place + LENGTH_OFFSET).store(u32::try_from(frame.len()).unwrap_or_default(), Release);
        self.put += 1;
        true
    }

    fn go(&mut self, packets: usize) -> io::Result<()> {
        for nth in self.gone..self.gone + packets {
            self.memory.cell(self.place(nth) + STATUS_OFFSET).store(libc::TP_STATUS_SEND_REQUEST, Release);
        }
        self.gone += packets;
        let last = self.gone.saturating_sub(1);
        let patience = Patience::since(Nanos::now());
        loop {
            match send(self.socket.as_fd(), &[], SendFlags::DONTWAIT) {
                // The kernel may run out of room for packets before it has taken all of them.
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let status = self.status(last);
            if status & libc::TP_STATUS_WRONG_FORMAT != 0 {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            if status & libc::TP_STATUS_SEND_REQUEST == 0 {
                return Ok(());
            }
            patience.wait()?;
        }
    }

    fn to_warm_up() -> Option<Self> {
        let ring = Self::open(LOOPBACK, 1500).ok()?;
        // No code would take its stamps out of the queue.
        set_option(&ring.socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &0_u32).ok()?;
        Some(ring)
    }

    fn idle(&mut self) {
        self.memory.touch(self.place(self.gone), self.place_bytes);
        let _ = send(self.socket.as_fd(), &[], SendFlags::DONTWAIT);
    }

    fn stamps(&mut self, calls: &[SendCall]) -> Option<Vec<Option<Nanos>>> {
        let packets = calls.iter().map(|call| call.packets).sum();
        let left = self.stamps.collect(&self.socket, packets);
        // The next train counts its packets from 0 again.
        self.stamps.restart(&self.socket).ok().and(left)
    }
}
