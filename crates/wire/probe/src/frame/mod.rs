//! Encoding of probes and decoding of answers: whole Ethernet frames with IPv4 or IPv6, and ICMP, TCP or UDP.
//!
//! Each probe carries the nonce of its [`Session`]. Answers are matched to probes by the part of the probe that they
//! return.

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

/// The addresses of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Our MAC address; zeros on the loopback interface.
    pub local_mac: [u8; 6],
    /// The next hop's MAC address; zeros on the loopback interface.
    pub remote_mac: [u8; 6],
    /// Our address on the interface.
    pub local: IpAddr,
    /// The probed host's address, of the same family.
    pub remote: IpAddr,
    /// Time to live, or hop limit.
    pub ttl: u8,
}

/// A probe. Sequence numbers run to [`SEQ_MAX`], the limit of ICMP, and then wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// An echo request (RFC 792, RFC 4443 section 4.1).
    Icmp {
        /// Its sequence number.
        seq: u32,
    },
    /// A TCP segment to the session's port.
    Tcp {
        /// The kind of segment.
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
    /// ACK, with data: answered with RST by both, unless a firewall drops it.
    Ack,
}

/// An answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The sequence number of the answered probe.
    pub seq: u32,
    /// The kind of answer.
    pub kind: ReplyKind,
    /// The sender: the host, or for errors any router.
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
    /// A reset by a TCP port.
    Rst,
    /// The probe could not be delivered.
    Unreachable {
        /// As in ICMP for IPv4 (3: the port is closed); codes of `ICMPv6` are translated according to RFC 7915 section
        /// 5.2.
        code: u8,
    },
    /// The probe's time to live was exceeded.
    TimeExceeded,
    /// The probe was larger than the next link's MTU, and must not be fragmented.
    TooBig {
        /// Largest IP packet the link takes, in bytes; less than the probe's size, or 0 from routers older than RFC
        /// 1191.
        mtu: u32,
    },
}

impl Probe {
    /// Returns its sequence number as in answers: at most [`SEQ_MAX`].
    #[must_use]
    pub const fn seq(self) -> u32 {
        match self {
            Self::Icmp { seq } | Self::Tcp { seq, .. } | Self::Udp { seq } => seq & SEQ_MAX,
        }
    }
}

impl ReplyKind {
    /// Returns whether the host's own port was unreachable, which is as good an answer as any.
    #[must_use]
    pub const fn is_port_unreachable(self) -> bool {
        matches!(self, Self::Unreachable { code: 3 })
    }
}
