//! What to measure, and how.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::limits::Limits;
use crate::path::Method;
use crate::send;

/// Where TCP probes go if nothing else is said: where nodes and agents listen for NBD. A closed port answers as well.
pub const TCP_PORT: u16 = 10_809;
/// Where UDP probes go if nothing else is said: where traceroute sends them, since nobody listens there.
pub const UDP_PORT: u16 = 33_434;

/// Something that can be learnt of a path, in the order it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aspect {
    /// `rtt`: round trips, jitter and loss.
    RoundTrip,
    /// `mtu`: the largest packet that passes.
    Mtu,
    /// `hops`: the routers.
    Hops,
    /// `capacity`: of the narrowest link.
    Capacity,
    /// `available`: what other traffic leaves.
    Available,
}

impl Aspect {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::RoundTrip, Self::Mtu, Self::Hops, Self::Capacity, Self::Available];

    const fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "rtt",
            Self::Mtu => "mtu",
            Self::Hops => "hops",
            Self::Capacity => "capacity",
            Self::Available => "available",
        }
    }

    /// As one says it in a sentence.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::RoundTrip => "round trips",
            Self::Mtu => "the path's MTU",
            Self::Hops => "routers",
            Self::Capacity => "the capacity",
            Self::Available => "the available bandwidth",
        }
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names nothing to measure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' cannot be measured; there are rtt, mtu, hops, capacity and available")]
pub struct BadAspect(String);

impl FromStr for Aspect {
    type Err = BadAspect;

    fn from_str(text: &str) -> Result<Self, BadAspect> {
        let named = Self::ALL.into_iter().find(|aspect| aspect.name() == text);
        named.ok_or_else(|| BadAspect(text.chars().take(80).collect()))
    }
}

/// How to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What to learn. The order does not matter.
    pub aspects: Vec<Aspect>,
    /// How the host is made to answer; `None` tries every method. [`Method::Far`] is none of them.
    pub method: Option<Method>,
    /// The port for TCP.
    pub tcp_port: u16,
    /// The port for UDP, which should be closed.
    pub udp_port: u16,
    /// What may be sent in all.
    pub limits: Limits,
    /// How packets are sent on time.
    pub send: send::Options,
    /// Most by which a gap of a train may be off. Trains with a gap that is off by more are spoiled.
    pub gap_error_max: Duration,
    /// Probes for the round trip, from 1.
    pub probes: u32,
    /// From one of them to the next.
    pub interval: Duration,
    /// An answer that takes longer does not count.
    pub timeout: Duration,
    /// Whether raw sockets are used where they are permitted.
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

/// What happens meanwhile, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// This is measured now.
    Begins(Aspect),
    /// So much of it is done.
    Progress {
        /// What.
        aspect: Aspect,
        /// How much of it.
        done: u32,
        /// Of how much, at most.
        of: u32,
    },
}
