//! Keeping the kernel's way for packets in the processor's caches. After a sleep the first packets of a train would take tens
//! of microseconds each for nothing but cache misses.

use std::io;
use std::time::Duration;

use super::packet::{PacketSocket, set_option};
use crate::clock::Nanos;
use crate::frame::ETHERNET_BYTES;

/// How long before a packet is due the last frame is sent to warm up: more than one takes after a sleep.
const BEFORE: Duration = Duration::from_micros(40);

/// How many frames are sent at most to warm up: what is between two of them is cold again soon.
const FRAMES_MAX: u32 = 200;

/// The loopback interface's index, in every network namespace.
const LOOPBACK: u32 = 1;

/// "Local experimental", IEEE 802: no protocol. Who receives such frames drops them.
const NO_PROTOCOL: [u8; 2] = [0x88, 0xB5];

/// Sends frames of no protocol to this machine's own loopback interface, where they are dropped. They take most of the way
/// that packets through other interfaces take, and nothing of it is on any network.
pub(super) struct Warm {
    socket: Option<PacketSocket>,
    frame: Vec<u8>,
}

impl Warm {
    /// Gets ready to send frames of so many bytes. Where that cannot be, nothing is warmed up.
    pub(super) fn open(frame_bytes: usize) -> Self {
        let mut frame = vec![0; frame_bytes.clamp(ETHERNET_BYTES, 1514)];
        if let Some(protocol) = frame.get_mut(ETHERNET_BYTES - 2..ETHERNET_BYTES) {
            protocol.copy_from_slice(&NO_PROTOCOL);
        }
        Self { socket: Self::socket().ok(), frame }
    }

    fn socket() -> io::Result<PacketSocket> {
        let socket = PacketSocket::sending(LOOPBACK)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32)?;
        Ok(socket)
    }

    /// Warms up until shortly before `due`, with `also` in between.
    pub(super) fn up(&self, due: Nanos, mut also: impl FnMut()) {
        let Some(socket) = &self.socket else { return };
        for _ in 0..FRAMES_MAX {
            if Nanos::now() + BEFORE >= due || socket.send(&self.frame).is_err() {
                return;
            }
            also();
        }
    }
}
