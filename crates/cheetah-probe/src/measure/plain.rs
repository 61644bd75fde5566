//! What can be measured without the right to raw sockets: round trips, by ICMP where this user may have an ICMP socket, else by
//! the time TCP takes to connect.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;

use super::options::{Aspect, Options};
use super::stop::Stop;
use super::way::secret;
use super::wire::Watch;
use crate::capture::datagram::Datagram;
use crate::clock::Nanos;
use crate::estimate::round_trip::Probes;
use crate::frame::{Session, datagram};
use crate::path::{Method, RoundTrip};

/// Round trips in the way that was chosen, or the first that works.
pub(super) fn round_trip(
    address: IpAddr,
    options: &Options,
    watch: &mut Watch<'_>,
    packets: &mut u32,
    problems: &mut Vec<String>,
) -> Result<Option<RoundTrip>, Stop> {
    if matches!(options.method, None | Some(Method::Icmp)) {
        match echo(address, options, watch, packets) {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => problems.push("The host does not answer ICMP echo requests.".into()),
            Err(Stop::Cancelled) => return Err(Stop::Cancelled),
            Err(stop) => problems.push(format!("By ICMP echo nothing was measured: {stop}.")),
        }
    }
    match options.method {
        None | Some(Method::Tcp | Method::TcpConnect) => connect(address, options, watch, packets, problems),
        Some(Method::Udp) => {
            problems.push("Measuring by UDP needs the right to raw sockets.".into());
            Ok(None)
        }
        Some(Method::Icmp | Method::Far) => Ok(None),
    }
}

/// By echo requests over a datagram socket.
fn echo(
    address: IpAddr,
    options: &Options,
    watch: &mut Watch<'_>,
    packets: &mut u32,
) -> Result<Option<RoundTrip>, Stop> {
    /// After so many without any answer the rest is not sent.
    const SILENT_MAX: u32 = 3;
    let mut socket = Datagram::icmp(address)?;
    let session = Session { nonce: secret()?, local_port: 0, port: 1 };
    let ipv4 = address.is_ipv4();
    let mut probes = Probes::new(options.timeout);
    let mut answered = 0;
    for seq in 0..options.probes {
        let begun = Nanos::now();
        let left = socket.send(&datagram::echo_request(ipv4, &session, seq, 0))?;
        *packets = packets.saturating_add(1);
        probes.sent(seq, left);
        let silent = answered == 0 && seq + 1 == SILENT_MAX;
        let last = seq + 1 == options.probes || silent;
        let until = begun + if last { options.timeout } else { options.interval };
        while Nanos::now() < until && !(last && probes.all_answered()) {
            watch.heed()?;
            let soon = until.min(Nanos::now() + Duration::from_millis(50));
            let Some(answer) = socket.recv_until(soon)? else { continue };
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
    Ok(probes.round_trip(Method::Icmp))
}

/// By connecting. A port that refuses answers as well as one that accepts.
fn connect(
    address: IpAddr,
    options: &Options,
    watch: &mut Watch<'_>,
    packets: &mut u32,
    problems: &mut Vec<String>,
) -> Result<Option<RoundTrip>, Stop> {
    /// After so many in a row without an answer the rest is not tried.
    const SILENT_MAX: u32 = 3;
    let host = SocketAddr::new(address, options.tcp_port);
    let mut probes = Probes::new(options.timeout);
    let (mut silent, mut refused) = (0, None);
    for seq in 0..options.probes {
        watch.heed()?;
        let begun = Nanos::now();
        let result = TcpStream::connect_timeout(&host, options.timeout);
        let ended = Nanos::now();
        // The handshake, and the end of it.
        *packets = packets.saturating_add(if result.is_ok() { 4 } else { 1 });
        probes.sent(seq, begun);
        match result {
            Ok(_) => silent = 0,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => silent = 0,
            Err(error) => {
                silent += 1;
                if !is_silence(&error) {
                    refused = Some(error);
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
    let found = probes.round_trip(Method::TcpConnect);
    if found.is_none() {
        let why = refused.map_or_else(|| "no answer".to_owned(), |error| error.to_string());
        let port = options.tcp_port;
        problems.push(format!(
            "Nothing was learnt by connecting to port {port} ({why}): name one that is open with --port."
        ));
    }
    Ok(found)
}

fn is_silence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut || Errno::from_io_error(error) == Some(Errno::INPROGRESS)
}
