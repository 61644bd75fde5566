//! A UDP socket that receives one train with timestamps.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::UdpSocket;

use super::api::Token;
use super::dispersion::ReceivedPacket;
use super::tag;
use crate::clock::{Nanos, WallOffset};
use crate::os::socket;

/// The receive buffer asked for, in bytes: a train of the largest packets. The kernel may grant less.
const RECEIVE_BUFFER_BYTES: usize = 2 << 20;
/// The largest packet.
const PACKET_BYTES_MAX: usize = 1 << 16;

/// The socket.
#[derive(Debug)]
pub struct TimestampingSocket {
    socket: UdpSocket,
    by_kernel: bool,
    /// How far the clock that stamps was ahead when the train began; setting the clock during a train distorts at most
    /// one gap.
    wall: Option<WallOffset>,
    packet: Box<[u8]>,
}

impl TimestampingSocket {
    /// Binds a socket to `at`; port 0 takes any free one. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// If the port is not free.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        let by_kernel = socket::stamp(&socket);
        let packet = vec![0; PACKET_BYTES_MAX].into();
        Ok(Self { socket: UdpSocket::from_std(socket)?, by_kernel, wall: None, packet })
    }

    /// Returns its port.
    ///
    /// # Errors
    ///
    /// If the kernel does not report it.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Returns whether the kernel stamps packets on arrival; otherwise they are stamped when read.
    pub const fn is_by_kernel(&self) -> bool {
        self.by_kernel
    }

    /// Receives the next packet; `None` if it is not one of the train `token` from the address `from`. After the first
    /// of them, the kernel filters out other senders.
    ///
    /// # Errors
    ///
    /// If the socket has failed.
    pub async fn next_of(&mut self, token: Token, from: IpAddr) -> io::Result<Option<ReceivedPacket>> {
        let wall = match self.wall {
            Some(wall) => wall,
            None => match self.find(token, from).await? {
                true => *self.wall.insert(WallOffset::now()),
                false => return Ok(None),
            },
        };
        let (bytes, wall_ns) = socket::receive(&self.socket, &mut self.packet).await?;
        let at = wall_ns.map_or_else(Nanos::now, |ns| wall.to_monotonic(ns));
        let payload = self.packet.get(..bytes).unwrap_or_default();
        let ip_bytes = tag::ip_bytes(bytes, from.to_canonical().is_ipv4());
        Ok(tag::seq_of(token, payload).map(|seq| ReceivedPacket { seq, at, ip_bytes }))
    }

    /// Waits for a packet, and returns whether it is the first of the train. That packet stays in the queue; others are
    /// discarded.
    async fn find(&mut self, token: Token, from: IpAddr) -> io::Result<bool> {
        let (len, peer) = self.socket.peek_from(&mut self.packet).await?;
        let payload = self.packet.get(..len).unwrap_or_default();
        if peer.ip() == from && tag::seq_of(token, payload).is_some() {
            self.socket.connect(peer).await?;
            return Ok(true);
        }
        self.socket.recv_from(&mut self.packet).await?;
        Ok(false)
    }
}
