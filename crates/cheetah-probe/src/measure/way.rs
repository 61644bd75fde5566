//! Ways in which a host is made to answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::options::Options;
use crate::frame::{Probe, Reply, ReplyKind, SEQ_MAX, Segment, Session};
use crate::path::Method;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// ICMP echo requests, which come back as large as they went.
    Echo,
    /// TCP SYN, which carries no data.
    Syn,
    /// TCP ACK with data, outside of any connection: the answer is small, and tells of the way there.
    Ack,
    /// UDP to a closed port. Kernels limit how often they say so: Linux to one a second, after a first six.
    Udp,
}

impl Kind {
    /// In the order in which they tell round trips best.
    pub(super) const ALL: [Self; 4] = [Self::Echo, Self::Syn, Self::Ack, Self::Udp];

    pub(super) const fn method(self) -> Method {
        match self {
            Self::Echo => Method::Icmp,
            Self::Syn | Self::Ack => Method::Tcp,
            Self::Udp => Method::Udp,
        }
    }

    /// What is sent, as one says it in a sentence.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::Echo => "ICMP echo requests",
            Self::Syn => "TCP SYNs",
            Self::Ack => "TCP segments outside of a connection",
            Self::Udp => "UDP to a closed port",
        }
    }

    /// Those that the options allow.
    pub(super) fn allowed(options: &Options) -> Vec<Self> {
        Self::ALL.into_iter().filter(|kind| options.method.is_none_or(|method| method == kind.method())).collect()
    }
}

/// One way to make a host answer.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) kind: Kind,
    pub(super) session: Session,
    /// The next probe's sequence number.
    next: u32,
    /// The shortest round trip so far; nothing if it never answered.
    pub(super) shortest: Option<Duration>,
    /// Keep our kernel from giving the port to somebody else.
    _ports: [Socket; 2],
}

impl Way {
    /// With a secret and a port of its own, so that answers to one way are never taken for another's.
    pub(super) fn new(kind: Kind, options: &Options, local: IpAddr) -> io::Result<Self> {
        let (local_port, ports) = reserve(local)?;
        let port = if kind == Kind::Udp { options.udp_port } else { options.tcp_port };
        let session = Session { nonce: secret()?, local_port, port };
        Ok(Self { kind, session, next: 0, shortest: None, _ports: ports })
    }

    /// So many probes, of which no other has the sequence numbers until these begin anew.
    pub(super) fn probes(&mut self, count: usize) -> Vec<Probe> {
        let mut next = || {
            let seq = self.next;
            self.next = (seq + 1) & SEQ_MAX;
            match self.kind {
                Kind::Echo => Probe::Icmp { seq },
                Kind::Syn => Probe::Tcp { kind: Segment::Syn, seq },
                Kind::Ack => Probe::Tcp { kind: Segment::Ack, seq },
                Kind::Udp => Probe::Udp { seq },
            }
        };
        (0..count).map(|_| next()).collect()
    }

    /// Whether the host itself answered. A port that cannot be reached counts if the host says so, and not a firewall before it.
    pub(super) fn is_answer(reply: &Reply, remote: IpAddr) -> bool {
        match reply.kind {
            ReplyKind::Echo | ReplyKind::SynAck | ReplyKind::Rst => true,
            kind => kind.is_port_unreachable() && reply.from == remote,
        }
    }

    /// A round trip took that long.
    pub(super) fn took(&mut self, trip: Duration) {
        self.shortest = Some(self.shortest.map_or(trip, |shortest| shortest.min(trip)));
    }

    /// How long to wait for an answer that is not late by accident: some round trips, at least a fifth of a second, and for each
    /// packet of a train what it takes on a link of 1 Mbit/s.
    pub(super) fn patience(&self, packets: u32, timeout: Duration) -> Duration {
        const EACH: Duration = Duration::from_millis(12);
        let trips = |trip: Duration| (trip * 4).max(Duration::from_millis(200)) + EACH * packets;
        self.shortest.map_or(timeout, |trip| trips(trip).min(timeout))
    }
}

/// What nobody guesses.
pub(super) fn secret() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(u64::from_be_bytes(bytes))
}

/// A port that is ours for TCP and UDP. Nobody listens there, so the kernel resets what hosts answer to a SYN.
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
