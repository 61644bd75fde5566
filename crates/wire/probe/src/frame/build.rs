//! Builds probes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    IpHeaders, Ipv4Header, Ipv6Header, PacketBuilder, PacketBuilderStep, TcpHeader, TcpOptionElement, UdpHeader,
};

use super::{ETHERNET_BYTES, Ends, Probe, Segment, Session, TAG_BYTES};

/// The largest IP packet built.
const BYTES_MAX: usize = 65_535;
/// Bytes of the ICMP header of an echo request.
const ECHO_BYTES: usize = 8;
/// Segments without this option look odd to firewalls; the value is that of Ethernet.
const SYN_OPTIONS: [TcpOptionElement; 1] = [TcpOptionElement::MaximumSegmentSize(1460)];
const SYN_OPTION_BYTES: usize = 4;
const WINDOW: u16 = 1024;

/// Returns a whole Ethernet frame, with checksums, with an IP packet of `ip_bytes` bytes in it; of [`bytes_min`] if
/// that is more, and never more than IP allows. Routers never fragment IPv6 packets, so `dont_fragment` has no effect
/// on them.
#[must_use]
pub fn frame(ends: &Ends, session: &Session, probe: Probe, ip_bytes: usize, dont_fragment: bool) -> Vec<u8> {
    let seq = probe.seq();
    let (ip, ipv4) = ip(ends, session.identification(seq), dont_fragment);
    let headers = ip_header_bytes(ipv4) + transport_bytes(probe);
    let data_len = match probe {
        Probe::Tcp { kind: Segment::Syn, .. } => 0,
        _ => ip_bytes.clamp(bytes_min(probe, ipv4), BYTES_MAX).saturating_sub(headers),
    };
    let data = session.payload(seq, data_len);
    let step = PacketBuilder::ethernet2(ends.local_mac, ends.remote_mac).ip(ip);
    let mut frame = Vec::with_capacity(ETHERNET_BYTES + headers + data.len());
    let written = match probe {
        Probe::Icmp { .. } => echo(step, ipv4, session.id(), seq, &data, &mut frame),
        Probe::Tcp { kind, .. } => tcp(step, session, kind, seq, &data, &mut frame),
        Probe::Udp { .. } => step.udp(session.local_port, session.port).write(&mut frame, &data).is_ok(),
    };
    debug_assert!(written, "sizes are within what the headers have room for");
    frame
}

/// Returns the size of the smallest probe, over IPv4 or IPv6, in bytes.
#[must_use]
pub const fn bytes_min(probe: Probe, ipv4: bool) -> usize {
    let tag = match probe {
        Probe::Icmp { .. } | Probe::Udp { .. } => TAG_BYTES,
        Probe::Tcp { .. } => 0,
    };
    ip_header_bytes(ipv4) + transport_bytes(probe) + tag
}

const fn ip_header_bytes(ipv4: bool) -> usize {
    if ipv4 { Ipv4Header::MIN_LEN } else { Ipv6Header::LEN }
}

const fn transport_bytes(probe: Probe) -> usize {
    match probe {
        Probe::Icmp { .. } => ECHO_BYTES,
        Probe::Tcp { kind: Segment::Syn, .. } => TcpHeader::MIN_LEN + SYN_OPTION_BYTES,
        Probe::Tcp { kind: Segment::Ack, .. } => TcpHeader::MIN_LEN,
        Probe::Udp { .. } => UdpHeader::LEN,
    }
}

/// Returns the IP header, and whether it is an IPv4 header. Lengths, protocol and checksum are filled in as the packet
/// is written.
fn ip(ends: &Ends, identification: u16, dont_fragment: bool) -> (IpHeaders, bool) {
    if let (IpAddr::V4(source), IpAddr::V4(destination)) = (ends.local, ends.remote) {
        let header = Ipv4Header {
            identification,
            dont_fragment,
            time_to_live: ends.ttl,
            source: source.octets(),
            destination: destination.octets(),
            ..Ipv4Header::default()
        };
        return (IpHeaders::Ipv4(header, Default::default()), true);
    }
    let header = Ipv6Header {
        hop_limit: ends.ttl,
        source: v6(ends.local).octets(),
        destination: v6(ends.remote).octets(),
        ..Ipv6Header::default()
    };
    (IpHeaders::Ipv6(header, Default::default()), false)
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::to_ipv6_mapped(&address),
        IpAddr::V6(address) => address,
    }
}

fn echo(step: PacketBuilderStep<IpHeaders>, ipv4: bool, id: u16, seq: u32, data: &[u8], frame: &mut Vec<u8>) -> bool {
    let seq = (seq & 0xFFFF) as u16;
    if ipv4 {
        step.icmpv4_echo_request(id, seq).write(frame, data).is_ok()
    } else {
        step.icmpv6_echo_request(id, seq).write(frame, data).is_ok()
    }
}

fn tcp(
    step: PacketBuilderStep<IpHeaders>,
    session: &Session,
    kind: Segment,
    seq: u32,
    data: &[u8],
    frame: &mut Vec<u8>,
) -> bool {
    let number = session.tcp_number(seq);
    let step = step.tcp(session.local_port, session.port, number, WINDOW);
    match kind {
        Segment::Syn => step.syn().options(&SYN_OPTIONS).is_ok_and(|step| step.write(frame, data).is_ok()),
        // The answer's sequence number is this acknowledgement's.
        Segment::Ack => step.ack(number).write(frame, data).is_ok(),
    }
}
