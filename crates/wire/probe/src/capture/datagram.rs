//! What an ordinary datagram socket receives: messages, and ICMP errors about those that it sent.

use std::net::IpAddr;

use crate::clock::Nanos;
pub use crate::os::capture::Datagram;

/// A message or error received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramAnswer<'a> {
    /// When the kernel received it.
    pub at: Nanos,
    /// The host's message, or the part of ours that an error quotes.
    pub message: &'a [u8],
    /// The ICMP error, if it is one.
    pub error: Option<IcmpError>,
    /// The time to live, or hop limit, on arrival; unknown for errors.
    pub ttl: Option<u8>,
}

/// An ICMP error, or an error that the kernel detected itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    /// Whether it arrived over the network; otherwise the kernel refused to send, e.g. a message too large for the
    /// interface.
    pub remote: bool,
    /// ICMP (or `ICMPv6`) type.
    pub kind: u8,
    /// ICMP (or `ICMPv6`) code.
    pub code: u8,
    /// The MTU, in bytes, if the message exceeded it; else 0.
    pub mtu: u32,
    /// The sender's address.
    pub from: Option<IpAddr>,
}
