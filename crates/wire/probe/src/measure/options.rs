//! The options of a measurement.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::limits::Limits;
use crate::path::Method;
use crate::send;

/// The default port of TCP probes: NBD's, where nodes and agents listen. A closed port answers as well.
pub const TCP_PORT: u16 = 10_809;
/// The default port of UDP probes: traceroute's, on which no service listens.
pub const UDP_PORT: u16 = 33_434;

cheetah_kit::named! {
    /// A part of a measurement, in the order of measuring.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Aspect {
        /// `rtt`: round trips, jitter and loss.
        RoundTrip = "rtt",
        /// `mtu`: the largest packet that passes.
        Mtu = "mtu",
        /// `hops`: the routers.
        Hops = "hops",
        /// `capacity`: of the narrowest link.
        Capacity = "capacity",
        /// `available`: the available bandwidth.
        Available = "available",
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a word that is no [`Aspect`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' cannot be measured; there are rtt, mtu, hops, capacity and available")]
pub struct BadAspect(String);

impl FromStr for Aspect {
    type Err = BadAspect;

    fn from_str(text: &str) -> Result<Self, BadAspect> {
        Self::of_name(text).ok_or_else(|| BadAspect(text.chars().take(80).collect()))
    }
}

/// The options of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What to measure. The order does not matter.
    pub aspects: Vec<Aspect>,
    /// How the host is made to answer; `None` tries every method. [`Method::Far`] is none of them.
    pub method: Option<Method>,
    /// The port for TCP.
    pub tcp_port: u16,
    /// The port for UDP, which should be closed.
    pub udp_port: u16,
    /// The limits on sending.
    pub limits: Limits,
    /// How packets are sent on time.
    pub send: send::Options,
    /// The bound on gap errors; trains that exceed it are discarded.
    pub gap_error_max: Duration,
    /// Probes for the round trip, from 1.
    pub probes: u32,
    /// The time between them.
    pub interval: Duration,
    /// The time-out of answers.
    pub timeout: Duration,
    /// Whether to use raw sockets where permitted.
    pub raw: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            aspects: Aspect::ALL.to_vec(),
            method: None,
            tcp_port: TCP_PORT,
            udp_port: UDP_PORT,
            limits: Limits::default(),
            send: send::Options::default(),
            gap_error_max: Duration::from_micros(10),
            probes: 20,
            interval: Duration::from_millis(50),
            timeout: Duration::from_secs(1),
            raw: true,
        }
    }
}

/// A progress event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A measurement begins.
    Begins(Aspect),
    /// A measurement progressed.
    Progress {
        /// The measurement.
        aspect: Aspect,
        /// The steps done.
        done: u32,
        /// The most steps there may be.
        of: u32,
    },
}
