//! Packets captured by the probe: parsing one does not panic, and a reply without the probe's nonce is ignored. Also
//! the parser of train patterns on the command line.

use std::net::{Ipv4Addr, Ipv6Addr};

use cheetah_probe::frame::{Ends, Reply, ReplyKind, SEQ_MAX, Session, datagram, parse};
use cheetah_probe::schedule::{PACKETS_MAX, Pattern, SPAN_MAX};

const SESSION: Session = Session { nonce: 0x0123_4567_89AB_CDEF, local_port: 40_000, port: 33_434 };
const LOCAL4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const REMOTE4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const LOCAL6: Ipv6Addr = Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 1);
const REMOTE6: Ipv6Addr = Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 2);

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let ipv4 = choice & 1 == 0;
    match choice >> 1 & 3 {
        0 => believe(data, ipv4),
        // With a valid start up to the IP header, and up to the ICMP or TCP header, which random input does not hit.
        1 => believe(&[&ethernet(ipv4), data].concat(), ipv4),
        2 => believe(&[&ethernet(ipv4), &ip(ipv4, choice >> 3, data.len())[..], data].concat(), ipv4),
        _ => read_pattern(data),
    }
    for parsed in [datagram::echo_reply(ipv4, &SESSION, data), datagram::quoted_request(ipv4, &SESSION, data)] {
        assert!(parsed.is_none() || holds_secret(data));
    }
}

fn believe(frame: &[u8], ipv4: bool) {
    let (local, remote) = if ipv4 { (LOCAL4.into(), REMOTE4.into()) } else { (LOCAL6.into(), REMOTE6.into()) };
    let ends = Ends { local_mac: [0; 6], remote_mac: [0; 6], local, remote, ttl: 64 };
    let Some(Reply { seq, kind, from, .. }) = parse(frame, &ends, &SESSION) else { return };
    assert!(seq <= SEQ_MAX);
    match kind {
        ReplyKind::Echo => assert!(from == remote && holds_secret(frame)),
        ReplyKind::SynAck | ReplyKind::Rst => assert_eq!(from, remote),
        ReplyKind::Unreachable { .. } | ReplyKind::TimeExceeded | ReplyKind::TooBig { .. } => {}
    }
}

fn holds_secret(data: &[u8]) -> bool {
    data.windows(8).any(|bytes| bytes == SESSION.nonce.to_be_bytes())
}

fn ethernet(ipv4: bool) -> [u8; 14] {
    let mut header = [0; 14];
    header[12..].copy_from_slice(if ipv4 { &[8, 0] } else { &[0x86, 0xDD] });
    header
}

fn ip(ipv4: bool, protocol: u8, len: usize) -> Vec<u8> {
    let tcp = protocol & 1 == 1;
    let len = u16::try_from(len).unwrap_or(u16::MAX - 20);
    if ipv4 {
        let [high, low] = (len + 20).to_be_bytes();
        let start = [0x45, 0, high, low, 0, 0, 0, 0, 64, if tcp { 6 } else { 1 }, 0, 0];
        return [&start, &REMOTE4.octets()[..], &LOCAL4.octets()].concat();
    }
    let [high, low] = len.to_be_bytes();
    let start = [0x60, 0, 0, 0, high, low, if tcp { 6 } else { 58 }, 64];
    [&start, &REMOTE6.octets()[..], &LOCAL6.octets()].concat()
}

fn read_pattern(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(pattern) = text.parse::<Pattern>() else { return };
    let offsets = pattern.offsets();
    assert!((1..=PACKETS_MAX).contains(&offsets.len()) && offsets.is_sorted() && pattern.span() <= SPAN_MAX);
    assert_eq!(pattern.to_string().parse(), Ok(pattern));
}
