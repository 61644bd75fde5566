//! Whole measurements of a path: what is sent, in which order, and when to stop.
//!
//! First the host is asked in every way there is, or in the one that was chosen, which it answers (`ways`): small probes, so that
//! nothing is taken for granted. What answers decides by what the rest is measured: `round_trip`, then the largest packet that
//! passes (`mtu`), the routers (`hops`), the narrowest link by packets sent back to back (`capacity`), and what other
//! traffic leaves of it by packets sent at a rate (`available`).
//!
//! Trains are checked after they left ([`train`]); those that did not leave as they were due are not measured with, but sent
//! again, up to a limit. Everything is within [`Limits`], and every wait has an end, so a host that never answers costs a few
//! seconds. What could not be measured is a sentence in the report. Without the right to raw sockets `plain` does what can be
//! done with ordinary ones.
//!
//! [`Limits`]: crate::limits::Limits

mod available;
mod capacity;
mod hops;
mod interface;
mod mtu;
mod options;
mod plain;
mod plain_mtu;
mod probe;
mod round_trip;
mod stop;
pub mod train;
mod way;
mod ways;
mod wire;

pub use options::{Aspect, BadAspect, Event, Options, TCP_PORT, UDP_PORT};
pub use probe::Probe;
