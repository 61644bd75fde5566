//! The largest packet that passes, without the right to raw sockets: datagrams that are not to be fragmented, to a UDP port that is
//! closed. That it is closed, or that they were too large, the kernel tells whoever sent them.

use std::net::IpAddr;
use std::time::Duration;

use rustix::io::Errno;

use super::mtu::{Fate, SIZES_MAX, TRIES, search};
use super::options::{Aspect, Options};
use super::stop::Stop;
use super::way::secret;
use super::wire::Watch;
use crate::capture::datagram::{Datagram, IcmpError};
use crate::clock::Nanos;
use crate::frame::{Session, TAG_BYTES};
use crate::path::Mtu;
use crate::route::Route;

/// How long an answer is waited for. Kernels limit how often they say that a port is closed: one may be due a second later.
const PATIENCE: Duration = Duration::from_millis(1100);
/// After so long it is given up.
const TAKES_MAX: Duration = Duration::from_secs(10);

/// Measures by UDP to a closed port.
pub(super) fn measure(
    address: IpAddr,
    options: &Options,
    watch: &mut Watch<'_>,
    packets: &mut u32,
    problems: &mut Vec<String>,
) -> Result<Option<Mtu>, Stop> {
    let largest = usize::try_from(Route::to(address)?.mtu).unwrap_or(usize::MAX).min(65_535);
    let mut socket = Datagram::udp(address, options.udp_port)?;
    socket.set_dont_fragment().map_err(Stop::Io)?;
    let session = Session { nonce: secret()?, local_port: 0, port: options.udp_port };
    let (ipv4, until) = (address.is_ipv4(), Nanos::now() + TAKES_MAX);
    let mut seq = 0;
    let mut answered = false;
    // Its sentences are about a host that is known to answer small packets, which this one need not.
    let mut unsaid = Vec::new();
    let found = search(largest, ipv4, &mut unsaid, |done, ip_bytes| {
        watch.progress(Aspect::Mtu, done, SIZES_MAX);
        for attempt in 0..TRIES {
            // A host that is silent altogether is not asked for every size.
            if Nanos::now() >= until || (!answered && done > 0 && attempt > 0) {
                break;
            }
            seq += 1;
            *packets = packets.saturating_add(1);
            let headers = if ipv4 { 28 } else { 48 };
            let payload = session.payload(seq, ip_bytes.saturating_sub(headers));
            match socket.send(&payload) {
                Ok(_) => {}
                Err(error) if Errno::from_io_error(&error) == Some(Errno::MSGSIZE) => return Ok(Fate::TooBig(None)),
                Err(error) => return Err(error.into()),
            }
            if let Some(fate) = fate(&mut socket, address, &session, ip_bytes, watch)? {
                answered = true;
                return Ok(fate);
            }
        }
        Ok(Fate::Silence)
    })?;
    if found.is_none() {
        problems.push("The path's MTU was not measured: the host does not say that its UDP ports are closed.".into());
    }
    Ok(found)
}

/// What is told of the last datagram, if anything is in time.
fn fate(
    socket: &mut Datagram,
    remote: IpAddr,
    session: &Session,
    ip_bytes: usize,
    watch: &Watch<'_>,
) -> Result<Option<Fate>, Stop> {
    let until = Nanos::now() + PATIENCE;
    while Nanos::now() < until {
        watch.heed()?;
        let soon = until.min(Nanos::now() + Duration::from_millis(50));
        let Some(answer) = socket.recv_until(soon)? else { continue };
        let Some(error) = answer.error else { continue };
        // Where enough is quoted to tell, it must be ours. The kernel has compared the ports.
        if answer.message.len() >= TAG_BYTES && session.sequence(answer.message).is_none() {
            continue;
        }
        if error.mtu > 0 {
            let told = usize::try_from(error.mtu).ok().filter(|mtu| *mtu < ip_bytes);
            return Ok(Some(Fate::TooBig(told)));
        }
        if is_closed_port(&error) && error.from == Some(remote) {
            return Ok(Some(Fate::Passed));
        }
    }
    Ok(None)
}

/// RFC 792 and RFC 4443 section 3.1.
const fn is_closed_port(error: &IcmpError) -> bool {
    error.remote && matches!((error.kind, error.code), (3, 3) | (1, 4))
}
