//! A test far end answers probes; it parses them with another library.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    Icmpv4Type, Icmpv6Type, IpHeaders, NetSlice, PacketBuilder, PacketBuilderStep, SlicedPacket, TransportSlice,
};
use proptest::prelude::*;

use super::*;

const SESSION: Session = Session { nonce: 0x0123_4567_89AB_CDEF, local_port: 40_000, port: 33_434 };
const ROUTER4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));
const ROUTER6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 9));

fn ends(ipv4: bool) -> Ends {
    let (local, remote) = if ipv4 {
        (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 7, 0, 2)))
    } else {
        ("fd00:1::1".parse().unwrap(), "fd00:7::2".parse().unwrap())
    };
    Ends { local_mac: [2, 0, 0, 0, 0, 1], remote_mac: [2, 0, 0, 0, 0, 2], local, remote, ttl: 64 }
}

fn router(ipv4: bool) -> IpAddr {
    if ipv4 { ROUTER4 } else { ROUTER6 }
}

/// How the far end answers.
#[derive(Debug, Clone, Copy)]
enum How {
    AsAsked,
    /// An ICMP error that quotes this many bytes of the probe after its IP header.
    Error(ReplyKind, usize),
}

fn step(from: IpAddr, to: IpAddr) -> PacketBuilderStep<IpHeaders> {
    let ip = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => IpHeaders::Ipv4(
            etherparse::Ipv4Header::new(0, 60, 0.into(), from.octets(), to.octets()).unwrap(),
            Default::default(),
        ),
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = etherparse::Ipv6Header {
                hop_limit: 60,
                source: from.octets(),
                destination: to.octets(),
                ..Default::default()
            };
            IpHeaders::Ipv6(header, Default::default())
        }
        _ => panic!("two families"),
    };
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]).ip(ip)
}

/// The frame that answers a probe, from `from`.
fn answer(probe: &[u8], how: How, from: IpAddr) -> Vec<u8> {
    let sliced = SlicedPacket::from_ethernet(probe).unwrap();
    let (local, header_bytes) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => (IpAddr::V4(ip.header().source_addr()), 20),
        NetSlice::Ipv6(ip) => (IpAddr::V6(ip.header().source_addr()), 40),
        NetSlice::Arp(_) => panic!("ARP"),
    };
    let step = step(from, local);
    let mut frame = Vec::new();
    if let How::Error(kind, quoted) = how {
        let packet = &probe[14..];
        error(step, kind, from.is_ipv4(), &packet[..packet.len().min(header_bytes + quoted)], &mut frame);
        return frame;
    }
    match sliced.transport.unwrap() {
        TransportSlice::Icmpv4(icmp) => {
            let Icmpv4Type::EchoRequest(echo) = icmp.icmp_type() else { panic!("{:?}", icmp.icmp_type()) };
            step.icmpv4_echo_reply(echo.id, echo.seq).write(&mut frame, icmp.payload()).unwrap();
        }
        TransportSlice::Icmpv6(icmp) => {
            let Icmpv6Type::EchoRequest(echo) = icmp.icmp_type() else { panic!("{:?}", icmp.icmp_type()) };
            step.icmpv6_echo_reply(echo.id, echo.seq).write(&mut frame, icmp.payload()).unwrap();
        }
        TransportSlice::Tcp(tcp) if tcp.syn() && tcp.destination_port() == 443 => {
            let (from, to) = (tcp.destination_port(), tcp.source_port());
            step.tcp(from, to, 77, 100).syn().ack(tcp.sequence_number() + 1).write(&mut frame, &[]).unwrap();
        }
        TransportSlice::Tcp(tcp) if tcp.syn() => {
            let (from, to) = (tcp.destination_port(), tcp.source_port());
            step.tcp(from, to, 0, 0).rst().ack(tcp.sequence_number() + 1).write(&mut frame, &[]).unwrap();
        }
        TransportSlice::Tcp(tcp) => {
            let (from, to) = (tcp.destination_port(), tcp.source_port());
            step.tcp(from, to, tcp.acknowledgment_number(), 0).rst().write(&mut frame, &[]).unwrap();
        }
        _ => panic!("nothing answers that"),
    }
    frame
}

fn error(step: PacketBuilderStep<IpHeaders>, kind: ReplyKind, ipv4: bool, quote: &[u8], frame: &mut Vec<u8>) {
    let (type4, code4, type6, code6, mtu) = match kind {
        ReplyKind::Unreachable { .. } => (3, 3, 1, 4, 0),
        ReplyKind::TimeExceeded => (11, 0, 3, 0, 0),
        ReplyKind::TooBig { mtu } => (3, 4, 2, 0, mtu),
        _ => panic!("{kind:?} is no error"),
    };
    if ipv4 {
        step.icmpv4_raw(type4, code4, mtu.to_be_bytes()).write(frame, quote).unwrap();
    } else {
        step.icmpv6_raw(type6, code6, mtu.to_be_bytes()).write(frame, quote).unwrap();
    }
}

fn any_probe() -> impl Strategy<Value = Probe> {
    (0..=SEQ_MAX, 0..4).prop_map(|(seq, which)| match which {
        0 => Probe::Icmp { seq },
        1 => Probe::Tcp { kind: Segment::Syn, seq },
        2 => Probe::Tcp { kind: Segment::Ack, seq },
        _ => Probe::Udp { seq },
    })
}

fn any_error() -> impl Strategy<Value = ReplyKind> {
    prop_oneof![
        Just(ReplyKind::Unreachable { code: 3 }),
        Just(ReplyKind::TimeExceeded),
        Just(ReplyKind::TooBig { mtu: 39 }),
    ]
}

/// A truncated packet parses to the same reply, or to none.
fn assert_cut_tells_no_other(frame: &[u8], ends: &Ends, reply: Reply) {
    for len in 0..frame.len() {
        let parsed = parse(&frame[..len], ends, &SESSION);
        assert!(parsed.is_none() || parsed == Some(reply), "{len} of {}: {parsed:?}", frame.len());
    }
}

#[test]
fn probes_have_the_requested_size_or_the_minimum() {
    for ipv4 in [true, false] {
        let len = |probe, ip_bytes| frame(&ends(ipv4), &SESSION, probe, ip_bytes, true).len() - ETHERNET_BYTES;
        for probe in [Probe::Icmp { seq: 1 }, Probe::Udp { seq: 1 }, Probe::Tcp { kind: Segment::Ack, seq: 1 }] {
            assert_eq!(len(probe, 1500), 1500);
            assert_eq!(len(probe, 0), bytes_min(probe, ipv4));
            assert_eq!(len(probe, usize::MAX), 65_535);
        }
        let syn = Probe::Tcp { kind: Segment::Syn, seq: 1 };
        assert_eq!(len(syn, 1500), bytes_min(syn, ipv4));
    }
}

#[test]
fn the_dont_fragment_bit_and_time_to_live_are_set() {
    let ends = Ends { ttl: 3, ..ends(true) };
    for dont_fragment in [true, false] {
        let frame = frame(&ends, &SESSION, Probe::Udp { seq: 9 }, 100, dont_fragment);
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(NetSlice::Ipv4(ip)) = sliced.net else { panic!("{sliced:?}") };
        assert_eq!((ip.header().dont_fragment(), ip.header().ttl()), (dont_fragment, 3));
    }
}

#[test]
fn a_router_that_reports_a_wrong_mtu_is_ignored_and_one_without_an_mtu_is_not() {
    let ends = ends(true);
    let probe = frame(&ends, &SESSION, Probe::Icmp { seq: 5 }, 1500, true);
    let parsed = |mtu| parse(&answer(&probe, How::Error(ReplyKind::TooBig { mtu }, 8), ROUTER4), &ends, &SESSION);
    assert_eq!(parsed(0).map(|reply| reply.kind), Some(ReplyKind::TooBig { mtu: 0 }));
    assert_eq!(parsed(1499).map(|reply| reply.kind), Some(ReplyKind::TooBig { mtu: 1499 }));
    assert_eq!(parsed(1500), None);
}

#[test]
fn codes_of_both_ip_versions_are_translated_alike() {
    let ends = ends(false);
    let probe = frame(&ends, &SESSION, Probe::Udp { seq: 5 }, 100, true);
    for (code6, code) in [(0, 1), (1, 10), (3, 1), (4, 3), (5, 10)] {
        let mut frame = Vec::new();
        step(ROUTER6, ends.local).icmpv6_raw(1, code6, [0; 4]).write(&mut frame, &probe[14..]).unwrap();
        let reply = parse(&frame, &ends, &SESSION).unwrap();
        assert_eq!(reply.kind, ReplyKind::Unreachable { code });
        assert_eq!(reply.kind.is_port_unreachable(), code6 == 4);
    }
}

#[test]
fn packets_about_other_flows_are_ignored() {
    for ipv4 in [true, false] {
        let ends = ends(ipv4);
        for probe in [
            Probe::Icmp { seq: 7 },
            Probe::Tcp { kind: Segment::Syn, seq: 7 },
            Probe::Tcp { kind: Segment::Ack, seq: 7 },
        ] {
            let sent = frame(&ends, &SESSION, probe, 200, true);
            assert_eq!(parse(&sent, &ends, &SESSION), None, "a probe is no answer");
            let from_elsewhere = answer(&sent, How::AsAsked, router(ipv4));
            assert_eq!(parse(&from_elsewhere, &ends, &SESSION), None);
            let right = answer(&sent, How::AsAsked, ends.remote);
            assert!(parse(&right, &ends, &SESSION).is_some());
            let another = Session { nonce: !SESSION.nonce, ..SESSION };
            assert_eq!(parse(&right, &ends, &another), None);
            let to_another = Ends { local: router(ipv4), ..ends };
            assert_eq!(parse(&right, &to_another, &SESSION), None);
            let about_another = answer(
                &frame(&to_another, &SESSION, probe, 200, true),
                How::Error(ReplyKind::TimeExceeded, 64),
                ends.remote,
            );
            assert_eq!(parse(&about_another, &ends, &SESSION), None);
        }
        let ports = Session { port: 1, ..SESSION };
        let sent = frame(&ends, &SESSION, Probe::Udp { seq: 7 }, 200, true);
        let error = answer(&sent, How::Error(ReplyKind::Unreachable { code: 3 }, 64), ends.remote);
        assert!(parse(&error, &ends, &SESSION).is_some());
        assert_eq!(parse(&error, &ends, &ports), None);
    }
}

#[test]
fn unprivileged_sockets_parse_to_the_same_answers() {
    for ipv4 in [true, false] {
        let mut message = datagram::echo_request(ipv4, &SESSION, 513, 64);
        assert_eq!(message.len(), 64);
        assert_eq!(datagram::quoted_request(ipv4, &SESSION, &message), Some(513));
        assert_eq!(datagram::echo_reply(ipv4, &SESSION, &message), None);
        message[0] = if ipv4 { 0 } else { 129 };
        message[4] ^= 0xFF;
        assert_eq!(datagram::echo_reply(ipv4, &SESSION, &message), Some(513));
        assert_eq!(datagram::echo_reply(!ipv4, &SESSION, &message), None);
        assert_eq!(datagram::echo_reply(ipv4, &Session { nonce: 1, ..SESSION }, &message), None);
        assert_eq!(datagram::echo_reply(ipv4, &SESSION, &message[..19]), None);
        message[7] ^= 1;
        assert_eq!(datagram::echo_reply(ipv4, &SESSION, &message), None, "two sequence numbers");
        assert_eq!(datagram::echo_request(ipv4, &SESSION, 1, 0).len(), 8 + TAG_BYTES);
    }
}

proptest! {
    #[test]
    fn checksums_are_right(ipv4: bool, probe in any_probe(), bytes in 0..3000_usize, nonce: u64) {
        let session = Session { nonce, ..SESSION };
        let frame = frame(&ends(ipv4), &session, probe, bytes, true);
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        let header = match sliced.net.unwrap() {
            NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                prop_assert_eq!(header.calc_header_checksum(), header.header_checksum);
                Ok(header)
            }
            NetSlice::Ipv6(ip) => Err(ip.header().to_header()),
            NetSlice::Arp(_) => panic!("ARP"),
        };
        let (stated, right) = match (sliced.transport.unwrap(), header) {
            (TransportSlice::Icmpv4(icmp), Ok(_)) => (icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload())),
            (TransportSlice::Icmpv6(icmp), Err(ip)) => {
                (icmp.checksum(), icmp.icmp_type().calc_checksum(ip.source, ip.destination, icmp.payload()).unwrap())
            }
            (TransportSlice::Tcp(tcp), Ok(ip)) => (tcp.checksum(), tcp.calc_checksum_ipv4(ip.source, ip.destination).unwrap()),
            (TransportSlice::Tcp(tcp), Err(ip)) => (tcp.checksum(), tcp.to_header().calc_checksum_ipv6(&ip, tcp.payload()).unwrap()),
            (TransportSlice::Udp(udp), Ok(ip)) => (udp.checksum(), udp.to_header().calc_checksum_ipv4(&ip, udp.payload()).unwrap()),
            (TransportSlice::Udp(udp), Err(ip)) => (udp.checksum(), udp.to_header().calc_checksum_ipv6(&ip, udp.payload()).unwrap()),
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(stated, right);
    }

    #[test]
    fn answers_are_matched_to_their_probes(ipv4: bool, probe in any_probe(), bytes in 0..600_usize, open: bool) {
        let ends = ends(ipv4);
        let session = Session { port: if open { 443 } else { SESSION.port }, ..SESSION };
        let kind = match probe {
            Probe::Icmp { .. } => ReplyKind::Echo,
            Probe::Tcp { kind: Segment::Syn, .. } if open => ReplyKind::SynAck,
            Probe::Tcp { .. } => ReplyKind::Rst,
            Probe::Udp { .. } => return Ok(()),
        };
        let answer = answer(&frame(&ends, &session, probe, bytes, true), How::AsAsked, ends.remote);
        let parsed = parse(&answer, &ends, &session);
        let ip_bytes = u32::try_from(answer.len() - ETHERNET_BYTES).unwrap();
        prop_assert_eq!(parsed, Some(Reply { seq: probe.seq(), kind, from: ends.remote, ip_bytes }));
    }

    #[test]
    fn errors_with_short_quotes_are_matched_to_their_probes(
        ipv4: bool, probe in any_probe(), kind in any_error(), bytes in 60..600_usize, quoted in 0..100_usize,
    ) {
        let ends = ends(ipv4);
        let answer = answer(&frame(&ends, &SESSION, probe, bytes, true), How::Error(kind, quoted), router(ipv4));
        let parsed = parse(&answer, &ends, &SESSION);
        // Over IPv6, where there is no identification, UDP is known by the tag only.
        let needed = if matches!(probe, Probe::Udp { .. }) && !ipv4 { 8 + TAG_BYTES } else { 8 };
        let ip_bytes = u32::try_from(answer.len() - ETHERNET_BYTES).unwrap();
        let reply = Reply { seq: probe.seq(), kind, from: router(ipv4), ip_bytes };
        prop_assert_eq!(parsed, (quoted >= needed).then_some(reply));
        assert_cut_tells_no_other(&answer, &ends, reply);
    }

    #[test]
    fn answers_with_another_nonce_are_rejected(nonce: u64, ipv4: bool, probe in any_probe(), quoted in 28..100_usize) {
        // All that eight bytes can hold of the secret is 16 bits: those must differ for certain, more is quoted here.
        prop_assume!(nonce >> 48 != SESSION.nonce >> 48 && (nonce ^ SESSION.nonce) & 0xFFFF_0000 != 0);
        let ends = ends(ipv4);
        let forger = Session { nonce, ..SESSION };
        let forged = frame(&ends, &forger, probe, 200, true);
        let error = answer(&forged, How::Error(ReplyKind::TimeExceeded, quoted), router(ipv4));
        prop_assert_eq!(parse(&error, &ends, &SESSION), None);
        if !matches!(probe, Probe::Udp { .. }) {
            prop_assert_eq!(parse(&answer(&forged, How::AsAsked, ends.remote), &ends, &SESSION), None);
        }
    }

    #[test]
    fn anything_is_parsed_or_refused(mut frame in prop::collection::vec(any::<u8>(), 0..200), version in 0..3_u8) {
        if let Some([kind1, kind0, first, ..]) = frame.get_mut(12..) {
            [*kind1, *kind0, *first] = match version { 0 => [8, 0, 0x45], 1 => [0x86, 0xDD, 0x60], _ => [*kind1, *kind0, *first] };
        }
        prop_assert_eq!(parse(&frame, &ends(true), &SESSION), None);
        prop_assert_eq!(parse(&frame, &ends(false), &SESSION), None);
    }
}
