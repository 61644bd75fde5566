//! Unprivileged sockets: ICMP echo over a datagram socket (Linux since 3.0, `ping_group_range`), and UDP. Both report
//! ICMP errors through their error queues (`IP_RECVERR`, ip(7)), and timestamp what they receive.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::super::send::control::{Ancillary, receive};
use super::super::send::set_option;
use super::{Clock, wait_until};
use crate::capture::CaptureError;
use crate::capture::datagram::{DatagramAnswer, IcmpError};
use crate::clock::Nanos;

/// The longest message that is received whole, in bytes.
const MESSAGE_BYTES_MAX: usize = 65_536;

/// Attempts to send a message: the kernel may return an earlier ICMP error instead.
const SENDS_MAX: u32 = 8;

/// A datagram socket connected to one host.
#[derive(Debug)]
pub struct Datagram {
    socket: Socket,
    remote: IpAddr,
    buffer: Vec<u8>,
    clock: Clock,
}

impl Datagram {
    /// Opens a socket for echo requests to `remote`; the kernel sets their identifier and checksum.
    ///
    /// # Errors
    ///
    /// If this user may not open ICMP sockets, or there is no route.
    pub fn icmp(remote: IpAddr) -> Result<Self, CaptureError> {
        let protocol = if remote.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
        Self::open(remote, 0, protocol).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => CaptureError::NoPing,
            _ => CaptureError::Io(error),
        })
    }

    /// Opens a socket for UDP to a port of `remote`.
    ///
    /// # Errors
    ///
    /// If there is no route.
    pub fn udp(remote: IpAddr, port: u16) -> Result<Self, CaptureError> {
        Ok(Self::open(remote, port, Protocol::UDP)?)
    }

    fn open(remote: IpAddr, port: u16, protocol: Protocol) -> io::Result<Self> {
        let domain = if remote.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)?;
        let (level, errors, ttl) = if remote.is_ipv4() {
            (libc::SOL_IP, libc::IP_RECVERR, libc::IP_RECVTTL)
        } else {
            (libc::SOL_IPV6, libc::IPV6_RECVERR, libc::IPV6_RECVHOPLIMIT)
        };
        set_option(&socket, level, errors, &1_i32)?;
        set_option(&socket, level, ttl, &1_i32)?;
        socket.connect(&SocketAddr::new(remote, port).into())?;
        Ok(Self { socket, remote, buffer: vec![0; MESSAGE_BYTES_MAX], clock: Clock::default() })
    }

    /// Returns the local address.
    ///
    /// # Errors
    ///
    /// If the kernel does not report it.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Sets the time to live, or hop limit, of later messages.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_ttl(&self, ttl: u8) -> io::Result<()> {
        if self.remote.is_ipv4() {
            self.socket.set_ttl_v4(ttl.into())
        } else {
            self.socket.set_unicast_hops_v6(ttl.into())
        }
    }

    /// Disables fragmentation, and makes the kernel ignore its cached path MTU.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_dont_fragment(&self) -> io::Result<()> {
        if self.remote.is_ipv4() {
            set_option(&self.socket, libc::SOL_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE)
        } else {
            set_option(&self.socket, libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_PROBE)?;
            set_option(&self.socket, libc::SOL_IPV6, libc::IPV6_DONTFRAG, &1_i32)
        }
    }

    /// Sends a message, and returns when it left.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, e.g. with `EMSGSIZE` for a message larger than the interface takes, or with `ENETUNREACH`
    /// if the interface is down. [`recv_until`](Self::recv_until) returns errors that came over the network.
    pub fn send(&self, message: &[u8]) -> io::Result<Nanos> {
        let mut tries = 0;
        loop {
            let now = Nanos::now();
            match self.socket.send(message) {
                Ok(_) => return Ok(now),
                // The kernel reports an earlier ICMP error once, instead of sending. It reports an error of this
                // message at each try.
                Err(_) if tries < SENDS_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives the next answer; `None` if none came until `deadline`.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn recv_until(&mut self, deadline: Nanos) -> Result<Option<DatagramAnswer<'_>>, CaptureError> {
        let beside = loop {
            let got = match self.receive(libc::MSG_ERRQUEUE) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.receive(0),
                other => other,
            };
            match got {
                Ok(beside) => break beside,
                Err(error) if is_in_error_queue(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait_until(&self.socket, deadline)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        };
        let at = self.clock.at(&beside);
        let error = beside.error.map(|error| IcmpError {
            remote: error.origin != libc::SO_EE_ORIGIN_LOCAL,
            kind: error.kind,
            code: error.code,
            mtu: error.info,
            from: error.from,
        });
        let message = self.buffer.get(..beside.bytes).unwrap_or_default();
        Ok(Some(DatagramAnswer { at, message, error, ttl: beside.ttl }))
    }

    fn receive(&mut self, flags: i32) -> io::Result<Ancillary> {
        receive(&self.socket, flags | libc::MSG_DONTWAIT, &mut self.buffer)
    }
}

/// Returns whether this is an error of the network, which is also in the error queue.
fn is_in_error_queue(error: &io::Error) -> bool {
    let queued =
        [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::PROTO, Errno::NOPROTOOPT, Errno::ACCESS];
    Errno::from_io_error(error).is_some_and(|error| queued.contains(&error))
}
