//! Measures round trips without raw sockets: by ICMP if this user may open an ICMP socket, else by the time TCP takes
//! to connect.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use cheetah_kit::random;

use super::options::{Aspect, Options};
use super::problem::{Problem, RoundTripProblem};
use super::stop::{Outcome, Stop};
use super::wire::{Watch, take};
use crate::capture::CaptureError;
use crate::capture::datagram::Datagram;
use crate::clock::Nanos;
use crate::estimate::round_trip::Probes;
use crate::frame::{Session, datagram};
use crate::limits::Budget;
use crate::os::socket::is_silence;
use crate::path::{Method, RoundTrip};

/// The most packets that we send for a connection: SYN, ACK, FIN and the ACK of theirs.
const CONNECTION_PACKETS: u32 = 4;
/// Bytes of a frame without payload, with TCP's usual options, over IPv6.
const SMALL_BYTES: u64 = 94;

/// Measures round trips by the chosen method, or the first that works.
pub(super) fn round_trip(
    address: IpAddr,
    options: &Options,
    watch: &mut Watch<'_>,
    budget: &mut Budget,
    problems: &mut Vec<Problem>,
) -> Outcome<RoundTrip> {
    if matches!(options.method, None | Some(Method::Icmp)) {
        match echo(address, options, watch, budget) {
            (Some(found), ended) => return (Some(found), ended),
            (None, Err(stop)) if stop.is_final() => return (None, Err(stop)),
            (None, Err(Stop::Capture(CaptureError::NoPing))) => {
                problems.push(Problem::RoundTrip(RoundTripProblem::NoIcmpSocket {
                    is_this_machine: address.is_loopback(),
                }));
            }
            (None, Err(stop)) => problems.push(Problem::RoundTrip(RoundTripProblem::IcmpSkipped(stop))),
            (None, Ok(())) => problems.push(Problem::RoundTrip(RoundTripProblem::IcmpSilent)),
        }
    }
    match options.method {
        None | Some(Method::Tcp | Method::TcpConnect) => connect(address, options, watch, budget, problems),
        Some(Method::Udp) => {
            problems.push(Problem::RoundTrip(RoundTripProblem::UdpNeedsRawSockets));
            (None, Ok(()))
        }
        Some(Method::Icmp | Method::Far) => (None, Ok(())),
    }
}

/// Measures by echo requests over a datagram socket.
fn echo(address: IpAddr, options: &Options, watch: &mut Watch<'_>, budget: &mut Budget) -> Outcome<RoundTrip> {
    let mut probes = Probes::new(options.timeout);
    let ended = echoes(address, options, watch, budget, &mut probes);
    if ended.is_err() {
        probes.forget_pending(Nanos::now());
    }
    (probes.round_trip(Method::Icmp), ended)
}

fn echoes(
    address: IpAddr,
    options: &Options,
    watch: &mut Watch<'_>,
    budget: &mut Budget,
    probes: &mut Probes,
) -> Result<(), Stop> {
    /// After this many probes without any answer, no more are sent.
    const SILENT_MAX: u32 = 3;
    let mut socket = Datagram::icmp(address)?;
    let session = Session { nonce: random::bits_64().map_err(io::Error::from)?, local_port: 0, port: 1 };
    let ipv4 = address.is_ipv4();
    let mut answered = 0;
    for seq in 0..options.probes {
        take(budget, watch, 1, SMALL_BYTES)?;
        let begun = Nanos::now();
        let left = socket.send(&datagram::echo_request(ipv4, &session, seq, 0)).map_err(Stop::Unsent)?;
        probes.sent(seq, left);
        let silent = answered == 0 && seq + 1 == SILENT_MAX;
        let last = seq + 1 == options.probes || silent;
        let until = begun + if last { options.timeout } else { options.interval };
        while !(last && probes.all_answered()) {
            watch.heed()?;
            let now = Nanos::now();
            // What arrived in time counts, however late it is read.
            let answer = match socket.recv_until(until.min(now + Duration::from_millis(50)))? {
                Some(answer) => answer,
                None if now >= until => break,
                None => continue,
            };
            let seq = datagram::echo_reply(ipv4, &session, answer.message).filter(|_| answer.error.is_none());
            if let Some(seq) = seq {
                probes.answered(seq, answer.at);
                answered += 1;
            }
        }
        watch.progress(Aspect::RoundTrip, seq + 1, options.probes);
        if silent && answered == 0 {
            break;
        }
    }
    Ok(())
}

/// Measures by connecting. A port that refuses gives a round trip as well.
fn connect(
    address: IpAddr,
    options: &Options,
    watch: &mut Watch<'_>,
    budget: &mut Budget,
    problems: &mut Vec<Problem>,
) -> Outcome<RoundTrip> {
    let (mut probes, mut refused) = (Probes::new(options.timeout), None);
    let ended = connections(address, options, watch, budget, &mut probes, &mut refused);
    let found = probes.round_trip(Method::TcpConnect);
    if found.is_none() && ended.is_ok() {
        problems.push(Problem::RoundTrip(RoundTripProblem::NoConnection { port: options.tcp_port, why: refused }));
    }
    (found, ended)
}

fn connections(
    address: IpAddr,
    options: &Options,
    watch: &mut Watch<'_>,
    budget: &mut Budget,
    probes: &mut Probes,
    refused: &mut Option<io::Error>,
) -> Result<(), Stop> {
    /// After this many attempts in a row without an answer, no more are made.
    const SILENT_MAX: u32 = 3;
    let host = SocketAddr::new(address, options.tcp_port);
    let mut silent = 0;
    for seq in 0..options.probes {
        watch.heed()?;
        take(budget, watch, CONNECTION_PACKETS, u64::from(CONNECTION_PACKETS) * SMALL_BYTES)?;
        let begun = Nanos::now();
        let result = TcpStream::connect_timeout(&host, options.timeout);
        let ended = Nanos::now();
        probes.sent(seq, begun);
        match result {
            Ok(_) => silent = 0,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => silent = 0,
            Err(error) => {
                silent += 1;
                if !is_silence(&error) {
                    *refused = Some(error);
                }
            }
        }
        if silent == 0 {
            probes.answered(seq, ended);
        }
        watch.progress(Aspect::RoundTrip, seq + 1, options.probes);
        if silent >= SILENT_MAX {
            break;
        }
        watch.sleep_until(begun + options.interval)?;
    }
    Ok(())
}
