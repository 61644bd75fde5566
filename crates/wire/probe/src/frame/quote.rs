//! The part of a packet that an ICMP error quotes: its IP header and at least eight bytes more (RFC 792), or as much of
//! it as fits (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4).

use etherparse::{IpNumber, LaxIpSlice};

use super::{Ends, Session, TAG_BYTES};

/// A quoted probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quote {
    /// Its sequence number.
    pub(super) seq: u32,
    /// Its size according to its IP header.
    pub(super) ip_bytes: u32,
}

/// Returns the quoted probe, if it is one of ours.
pub(super) fn quoted(quote: &[u8], ends: &Ends, session: &Session) -> Option<Quote> {
    let (ip, _) = LaxIpSlice::from_slice(quote).ok()?;
    if (ip.source_addr(), ip.destination_addr()) != (ends.local, ends.remote) {
        return None;
    }
    let (ip_bytes, identification) = match &ip {
        LaxIpSlice::Ipv4(ip) => (u32::from(ip.header().total_len()), Some(ip.header().identification())),
        LaxIpSlice::Ipv6(ip) => (u32::from(ip.header().payload_length()) + 40, None),
    };
    let payload = ip.payload();
    let (header, data) = payload.payload.split_first_chunk::<8>()?;
    let seq = match (payload.ip_number, identification) {
        (IpNumber::ICMP, Some(_)) => echo(header, 8, data, session),
        (IpNumber::IPV6_ICMP, None) => echo(header, 128, data, session),
        (IpNumber::TCP, _) => tcp(header, session),
        (IpNumber::UDP, _) => udp(header, identification, data, session),
        _ => None,
    };
    Some(Quote { seq: seq?, ip_bytes })
}

/// Checks the tag, if enough is quoted.
fn echo(header: &[u8; 8], kind: u8, data: &[u8], session: &Session) -> Option<u32> {
    let [quoted_kind, code, _, _, id1, id0, seq1, seq0] = *header;
    if (quoted_kind, code, u16::from_be_bytes([id1, id0])) != (kind, 0, session.id()) {
        return None;
    }
    let seq = u32::from(u16::from_be_bytes([seq1, seq0]));
    if data.len() < TAG_BYTES { Some(seq) } else { session.sequence(data).filter(|tagged| *tagged == seq) }
}

fn tcp(header: &[u8; 8], session: &Session) -> Option<u32> {
    let [ports @ .., n3, n2, n1, n0] = *header;
    is_to(ports, session).then(|| session.of_tcp_number(u32::from_be_bytes([n3, n2, n1, n0])))?
}

fn udp(header: &[u8; 8], identification: Option<u16>, data: &[u8], session: &Session) -> Option<u32> {
    let [ports @ .., _, _, _, _] = *header;
    if !is_to(ports, session) {
        return None;
    }
    if data.len() < TAG_BYTES {
        return identification.map(|identification| session.of_identification(identification));
    }
    session.sequence(data)
}

fn is_to(ports: [u8; 4], session: &Session) -> bool {
    let [from1, from0, to1, to0] = ports;
    let (from, to) = (u16::from_be_bytes([from1, from0]), u16::from_be_bytes([to1, to0]));
    (from, to) == (session.local_port, session.port)
}
