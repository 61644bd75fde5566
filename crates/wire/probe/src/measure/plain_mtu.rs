//! Measures the path MTU without raw sockets: by unfragmented datagrams to a closed UDP port. The kernel reports to the
//! sender that the port is closed, or that a datagram was too large.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use cheetah_kit::random;

use super::mtu::{ProbeOutcome, SIZES_MAX, TRIES, search};
use super::options::{Aspect, Options};
use super::problem::{MtuProblem, Problem};
use super::stop::Stop;
use super::wire::{Watch, take};
use crate::capture::datagram::{Datagram, IcmpError};
use crate::clock::Nanos;
use crate::frame::{ETHERNET_BYTES, Session, TAG_BYTES};
use crate::limits::Budget;
use crate::os::socket::is_too_large;
use crate::path::Mtu;
use crate::route::Route;

/// The time-out of an answer. Kernels limit the rate of their answers: the next may be due a second later.
const PATIENCE: Duration = Duration::from_millis(1100);
/// The largest possible packet, in bytes.
const BYTES_MAX: usize = 65_535;
/// The time limit, after which the result so far is used.
const TAKES_MAX: Duration = Duration::from_secs(10);

/// Measures by UDP to a closed port.
pub(super) fn measure(
    address: IpAddr,
    options: &Options,
    watch: &mut Watch<'_>,
    budget: &mut Budget,
    problems: &mut Vec<Problem>,
) -> Result<Option<Mtu>, Stop> {
    // The kernel refuses to send packets that are larger than the interface takes.
    let largest =
        Route::to(address).map_or(BYTES_MAX, |route| usize::try_from(route.mtu).unwrap_or(BYTES_MAX)).min(BYTES_MAX);
    let socket = Datagram::udp(address, options.udp_port)?;
    socket.set_dont_fragment()?;
    let session = Session { nonce: random::bits_64().map_err(io::Error::from)?, local_port: 0, port: options.udp_port };
    let mut prober = UdpProber { socket, session, budget, remote: address, seq: 0, until: Nanos::now() + TAKES_MAX };
    // Silence means "too large" only if the host answers small packets.
    let mut answers = false;
    for _ in 0..TRIES {
        answers = answers || prober.probe(0, options.timeout, watch)?.is_some();
    }
    if answers {
        return search(largest, address.is_ipv4(), problems, |done, ip_bytes| {
            watch.progress(Aspect::Mtu, done, SIZES_MAX);
            for _ in 0..TRIES {
                if let Some(fate) = prober.probe(ip_bytes, PATIENCE, watch)? {
                    return Ok(fate);
                }
            }
            Ok(ProbeOutcome::Silence)
        });
    }
    problems.push(Problem::Mtu(MtuProblem::NeedsClosedPort));
    Ok(None)
}

/// Sends UDP probes to the measured host.
struct UdpProber<'a> {
    socket: Datagram,
    session: Session,
    budget: &'a mut Budget,
    remote: IpAddr,
    /// Datagrams sent.
    seq: u32,
    until: Nanos,
}

impl UdpProber<'_> {
    /// Sends a packet of `ip_bytes` bytes, or the smallest possible, and returns its fate within `patience`.
    fn probe(&mut self, ip_bytes: usize, patience: Duration, watch: &Watch<'_>) -> Result<Option<ProbeOutcome>, Stop> {
        if Nanos::now() >= self.until {
            return Ok(None);
        }
        self.seq += 1;
        let headers = if self.remote.is_ipv4() { 28 } else { 48 };
        let payload = self.session.payload(self.seq, ip_bytes.saturating_sub(headers).max(TAG_BYTES));
        take(self.budget, watch, 1, (payload.len() + headers + ETHERNET_BYTES) as u64)?;
        match self.socket.send(&payload) {
            Ok(_) => self.await_fate(ip_bytes, Nanos::now() + patience, watch),
            // Refused by our own kernel: larger than the interface takes.
            Err(error) if is_too_large(&error) => Ok(Some(ProbeOutcome::TooBig(None))),
            Err(error) => Err(Stop::Unsent(error)),
        }
    }

    fn await_fate(&mut self, ip_bytes: usize, until: Nanos, watch: &Watch<'_>) -> Result<Option<ProbeOutcome>, Stop> {
        loop {
            watch.heed()?;
            let now = Nanos::now();
            // What arrived in time counts, however late it is read.
            let answer = match self.socket.recv_until(until.min(now + Duration::from_millis(50)))? {
                Some(answer) => answer,
                None if now >= until => return Ok(None),
                None => continue,
            };
            let Some(error) = answer.error else { continue };
            // A quote that is long enough must quote the last packet. The kernel has compared the ports.
            if answer.message.len() >= TAG_BYTES && self.session.sequence(answer.message) != Some(self.seq) {
                continue;
            }
            if let Some(fate) = fate(&error, self.remote, ip_bytes) {
                return Ok(Some(fate));
            }
        }
    }
}

/// Returns the fate of a packet of `ip_bytes` bytes, if the error is about it. An error with an MTU of that size or
/// more is about an earlier packet, since errors may be late or duplicated.
fn fate(error: &IcmpError, remote: IpAddr, ip_bytes: usize) -> Option<ProbeOutcome> {
    if error.mtu > 0 {
        return usize::try_from(error.mtu)
            .ok()
            .filter(|mtu| *mtu < ip_bytes)
            .map(|mtu| ProbeOutcome::TooBig(Some(mtu)));
    }
    (is_closed_port(error) && error.from == Some(remote)).then_some(ProbeOutcome::Passed)
}

/// RFC 792 and RFC 4443 section 3.1.
const fn is_closed_port(error: &IcmpError) -> bool {
    error.remote && matches!((error.kind, error.code), (3, 3) | (1, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_error_about_a_larger_packet_is_ignored() {
        let (remote, router) = (IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 1]));
        let says = |kind, code, mtu, from, ip_bytes| {
            fate(&IcmpError { remote: true, kind, code, mtu, from: Some(from) }, remote, ip_bytes)
        };
        assert!(matches!(says(3, 4, 1400, router, 1500), Some(ProbeOutcome::TooBig(Some(1400)))));
        assert!(says(3, 4, 1400, router, 1400).is_none());
        assert!(
            matches!(says(3, 3, 0, remote, 1400), Some(ProbeOutcome::Passed)) && says(3, 3, 0, router, 1400).is_none()
        );
    }
}
