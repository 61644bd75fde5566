//! Probes and their answers as bytes: whole Ethernet frames with IPv4 or IPv6 and ICMP, TCP or UDP in them.
//!
//! A probe is known again by what comes back of it, however little that is: [`Session`] has the secret that is in each.

mod build;
pub mod datagram;
mod quote;
mod reply;
mod session;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

pub use self::build::{bytes_min, frame};
pub use self::reply::parse;
pub use self::session::{SEQ_MAX, Session, TAG_BYTES};

/// Bytes of an Ethernet header, without tag, preamble and check sequence.
pub const ETHERNET_BYTES: usize = 14;

/// Between whom frames go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Ours; zeros on the loopback interface.
    pub local_mac: [u8; 6],
    /// The next hop's; zeros on the loopback interface.
    pub remote_mac: [u8; 6],
    /// Our address on the interface.
    pub local: IpAddr,
    /// The host that is probed, of the same family.
    pub remote: IpAddr,
    /// Time to live, or hop limit.
    pub ttl: u8,
}

/// A probe. Sequence numbers go to [`SEQ_MAX`], for ICMP has no room for more, and begin anew after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// An echo request (RFC 792, RFC 4443 section 4.1).
    Icmp {
        /// Its sequence number.
        seq: u32,
    },
    /// A TCP segment to the session's port.
    Tcp {
        /// Which.
        kind: Segment,
        /// Its sequence number.
        seq: u32,
    },
    /// A UDP datagram to the session's port.
    Udp {
        /// Its sequence number.
        seq: u32,
    },
}

/// TCP segments that are answered without a connection (RFC 9293, section 3.10.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// SYN: answered with SYN-ACK by an open port, with RST by a closed one. It carries no data, so it is always small.
    Syn,
    /// ACK, with data: answered with RST by both, unless a firewall knows better.
    Ack,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The sequence number of the probe that was answered.
    pub seq: u32,
    /// How.
    pub kind: ReplyKind,
    /// By whom: the host, or for errors any router.
    pub from: IpAddr,
    /// Size of the answer, with its IP header. An answer in fragments is as large as the first.
    pub ip_bytes: u32,
}

/// The kinds of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// The echo.
    Echo,
    /// An open TCP port.
    SynAck,
    /// A TCP port that wants no such segment.
    Rst,
    /// It could not be delivered.
    Unreachable {
        /// As in ICMP for IPv4 (3: the port is closed); those of `ICMPv6` are translated as RFC 7915 section 5.2 has it.
        code: u8,
    },
    /// Its time to live was over.
    TimeExceeded,
    /// It was larger than the next link takes, and not to be fragmented.
    TooBig {
        /// Largest IP packet the link takes, in bytes; less than the probe had, or 0 from routers older than RFC 1191.
        mtu: u32,
    },
}

impl Probe {
    /// Its sequence number, as it is told by answers: no more than [`SEQ_MAX`].
    #[must_use]
    pub const fn seq(self) -> u32 {
        match self {
            Self::Icmp { seq } | Self::Tcp { seq, .. } | Self::Udp { seq } => seq & SEQ_MAX,
        }
    }
}

impl ReplyKind {
    /// Whether it is the port of the host itself that was not reached: as good an answer as any.
    #[must_use]
    pub const fn is_port_unreachable(self) -> bool {
        matches!(self, Self::Unreachable { code: 3 })
    }
}
