//! Parses answers.
//!
//! Ignores checksums: packets of this host, and packets that the interface checked, arrive without valid ones. Checks
//! that the packet answers one of our probes.

use std::net::IpAddr;

use etherparse::{Ethernet2HeaderSlice, Icmpv4Slice, Icmpv6Slice, IpNumber, LaxIpSlice, TcpHeaderSlice};

use super::quote::{Quote, quoted};
use super::{Ends, Reply, ReplyKind, Session};

/// Parses a whole Ethernet frame, perhaps truncated, as an answer. `None` if it answers no probe of ours: another
/// session's, from another host, with another nonce, or too short. Duplicates are not detected.
#[must_use]
pub fn parse(frame: &[u8], ends: &Ends, session: &Session) -> Option<Reply> {
    let ethernet = Ethernet2HeaderSlice::from_slice(frame).ok()?;
    let (ip, _) = LaxIpSlice::from_slice(frame.get(ethernet.slice().len()..)?).ok()?;
    let from = ip.source_addr();
    if ip.destination_addr() != ends.local {
        return None;
    }
    let whole = !ip.is_fragmenting_payload();
    let payload = ip.payload();
    let found = match payload.ip_number {
        IpNumber::ICMP if ip.ipv4().is_some() => icmp4(payload.payload, whole, ends, session),
        IpNumber::IPV6_ICMP if ip.ipv6().is_some() => icmp6(payload.payload, whole, ends, session),
        IpNumber::TCP if whole => tcp(payload.payload, session),
        _ => None,
    };
    let (seq, kind) = found.filter(|(_, kind)| may_come_from(*kind, from, ends.remote))?;
    Some(Reply { seq, kind, from, ip_bytes: ip_bytes(&ip) })
}

/// Only the host itself echoes or resets; any router may send errors, but only the host knows its ports.
fn may_come_from(kind: ReplyKind, from: IpAddr, remote: IpAddr) -> bool {
    from == remote || !matches!(kind, ReplyKind::Echo | ReplyKind::SynAck | ReplyKind::Rst)
}

fn ip_bytes(ip: &LaxIpSlice<'_>) -> u32 {
    match ip {
        LaxIpSlice::Ipv4(ip) => u32::from(ip.header().total_len()),
        LaxIpSlice::Ipv6(ip) => u32::from(ip.header().payload_length()) + 40,
    }
}

/// ICMP (RFC 792). Only the first fragment can be an echo: the others do not begin with the tag.
fn icmp4(message: &[u8], whole: bool, ends: &Ends, session: &Session) -> Option<(u32, ReplyKind)> {
    let icmp = Icmpv4Slice::from_slice(message).ok()?;
    let [_, _, mtu @ ..] = icmp.bytes5to8();
    let kind = match (icmp.type_u8(), icmp.code_u8()) {
        (0, 0) => return echo(icmp.bytes5to8(), icmp.payload(), session),
        (3, 4) => ReplyKind::TooBig { mtu: u32::from(u16::from_be_bytes(mtu)) },
        (3, code) => ReplyKind::Unreachable { code },
        (11, 0) => ReplyKind::TimeExceeded,
        _ => return None,
    };
    error(kind, icmp.payload(), whole, ends, session)
}

/// `ICMPv6` (RFC 4443).
fn icmp6(message: &[u8], whole: bool, ends: &Ends, session: &Session) -> Option<(u32, ReplyKind)> {
    let icmp = Icmpv6Slice::from_slice(message).ok()?;
    let kind = match (icmp.type_u8(), icmp.code_u8()) {
        (129, 0) => return echo(icmp.bytes5to8(), icmp.payload(), session),
        (1, code) => ReplyKind::Unreachable { code: unreachable4(code) },
        (2, _) => ReplyKind::TooBig { mtu: u32::from_be_bytes(icmp.bytes5to8()) },
        (3, 0) => ReplyKind::TimeExceeded,
        _ => return None,
    };
    error(kind, icmp.payload(), whole, ends, session)
}

/// RFC 7915, section 5.2.
const fn unreachable4(code: u8) -> u8 {
    match code {
        1 | 5 | 6 => 10,
        4 => 3,
        _ => 1,
    }
}

fn echo(id_and_seq: [u8; 4], data: &[u8], session: &Session) -> Option<(u32, ReplyKind)> {
    let [id @ .., s1, s0] = id_and_seq;
    let seq = session.sequence(data)?;
    let right = u16::from_be_bytes(id) == session.id() && u32::from(u16::from_be_bytes([s1, s0])) == seq;
    right.then_some((seq, ReplyKind::Echo))
}

fn error(kind: ReplyKind, quote: &[u8], whole: bool, ends: &Ends, session: &Session) -> Option<(u32, ReplyKind)> {
    let Quote { seq, ip_bytes } = quoted(quote, ends, session).filter(|_| whole)?;
    match kind {
        // RFC 8201 section 4: an MTU that is no smaller than the packet is to be ignored.
        ReplyKind::TooBig { mtu } if mtu >= ip_bytes => None,
        _ => Some((seq, kind)),
    }
}

/// RFC 9293 section 3.10.7.1: a reset has the sequence number that the segment acknowledged. If the segment
/// acknowledged nothing, the reset has number 0 and acknowledges the segment.
fn tcp(segment: &[u8], session: &Session) -> Option<(u32, ReplyKind)> {
    let tcp = TcpHeaderSlice::from_slice(segment).ok()?;
    if (tcp.source_port(), tcp.destination_port()) != (session.port, session.local_port) {
        return None;
    }
    let acknowledged = || session.of_tcp_number(tcp.acknowledgment_number().wrapping_sub(1)).filter(|_| tcp.ack());
    if tcp.rst() {
        let seq = acknowledged().or_else(|| session.of_tcp_number(tcp.sequence_number()))?;
        return Some((seq, ReplyKind::Rst));
    }
    let seq = acknowledged().filter(|_| tcp.syn())?;
    Some((seq, ReplyKind::SynAck))
}
