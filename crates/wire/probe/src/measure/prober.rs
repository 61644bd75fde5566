//! Probers: kinds of probes that make a host answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use cheetah_kit::random;
use socket2::{Domain, Socket, Type};

use super::options::Options;
use crate::frame::{Probe, Reply, ReplyKind, SEQ_MAX, Segment, Session};
use crate::path::Method;

/// The kind of packet a prober sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// ICMP echo requests, whose answers are as large as the requests.
    Echo,
    /// TCP SYN, which carries no data.
    Syn,
    /// TCP ACK with data, outside of any connection: the answer is small, so it measures the path there.
    Ack,
    /// UDP to a closed port. Kernels limit their answers: Linux to one a second, after a first six.
    Udp,
}

impl ProbeKind {
    /// All kinds, the best for round trips first.
    pub(super) const ALL: [Self; 4] = [Self::Echo, Self::Syn, Self::Ack, Self::Udp];

    pub(super) const fn method(self) -> Method {
        match self {
            Self::Echo => Method::Icmp,
            Self::Syn | Self::Ack => Method::Tcp,
            Self::Udp => Method::Udp,
        }
    }

    /// Returns the kinds that the options allow.
    pub(super) fn allowed(options: &Options) -> Vec<Self> {
        Self::ALL.into_iter().filter(|kind| options.method.is_none_or(|method| method == kind.method())).collect()
    }
}

/// Makes a host answer one kind of probe.
#[derive(Debug)]
pub(super) struct Prober {
    pub(super) kind: ProbeKind,
    pub(super) session: Session,
    /// The next probe's sequence number.
    next: u32,
    /// The shortest round trip so far; `None` if it never answered.
    pub(super) shortest: Option<Duration>,
    /// These sockets keep the kernel from giving the port to another program.
    _ports: [Socket; 2],
}

impl Prober {
    /// Creates a prober with a nonce and a port of its own, so that its answers are never taken for another's.
    pub(super) fn new(kind: ProbeKind, options: &Options, local: IpAddr) -> io::Result<Self> {
        let (local_port, ports) = reserve(local)?;
        let port = if kind == ProbeKind::Udp { options.udp_port } else { options.tcp_port };
        let session = Session { nonce: random::bits_64()?, local_port, port };
        Ok(Self { kind, session, next: 0, shortest: None, _ports: ports })
    }

    /// Returns `count` probes whose sequence numbers are unique until the numbers wrap around.
    pub(super) fn probes(&mut self, count: usize) -> Vec<Probe> {
        let mut next = || {
            let seq = self.next;
            self.next = (seq + 1) & SEQ_MAX;
            match self.kind {
                ProbeKind::Echo => Probe::Icmp { seq },
                ProbeKind::Syn => Probe::Tcp { kind: Segment::Syn, seq },
                ProbeKind::Ack => Probe::Tcp { kind: Segment::Ack, seq },
                ProbeKind::Udp => Probe::Udp { seq },
            }
        };
        (0..count).map(|_| next()).collect()
    }

    /// Returns whether the host itself answered. "Port unreachable" counts if it comes from the host, not from a
    /// firewall before it.
    pub(super) fn is_answer(reply: &Reply, remote: IpAddr) -> bool {
        match reply.kind {
            ReplyKind::Echo | ReplyKind::SynAck | ReplyKind::Rst => true,
            kind => kind.is_port_unreachable() && reply.from == remote,
        }
    }

    /// Notes a round trip.
    pub(super) fn took(&mut self, trip: Duration) {
        self.shortest = Some(self.shortest.map_or(trip, |shortest| shortest.min(trip)));
    }

    /// Returns how long to wait for answers: some round trips, at least a fifth of a second, and for each packet of a
    /// train the time it takes on a link of 1 Mbit/s.
    pub(super) fn patience(&self, packets: u32, timeout: Duration) -> Duration {
        const EACH: Duration = Duration::from_millis(12);
        let trips = |trip: Duration| (trip * 4).max(Duration::from_millis(200)) + EACH * packets;
        self.shortest.map_or(timeout, |trip| trips(trip).min(timeout))
    }
}

/// Reserves a port for TCP and UDP. No socket listens there, so the kernel resets connections that hosts accept.
fn reserve(local: IpAddr) -> io::Result<(u16, [Socket; 2])> {
    const ATTEMPTS: u32 = 16;
    let any: IpAddr = if local.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let domain = if local.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    for _ in 0..ATTEMPTS {
        let tcp = Socket::new(domain, Type::STREAM, None)?;
        tcp.bind(&SocketAddr::new(any, 0).into())?;
        let port = tcp.local_addr()?.as_socket().map_or(0, |address| address.port());
        let udp = Socket::new(domain, Type::DGRAM, None)?;
        if udp.bind(&SocketAddr::new(any, port).into()).is_ok() {
            return Ok((port, [tcp, udp]));
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}
