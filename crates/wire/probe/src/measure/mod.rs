//! Measurements of a path: which packets to send, in which order, and when to stop.
//!
//! First, small probes of every kind, or of the chosen kind, show which kinds the host answers (`probers`). Those kinds
//! measure the rest: `round_trip`, the largest packet that passes (`mtu`), the routers (`hops`), the narrowest link by
//! packets sent back to back (`capacity`), and the available bandwidth by packets sent at a rate (`available`).
//!
//! Trains are checked after they left ([`train`]); those that did not leave on time are discarded and sent again, up to
//! a limit. Everything is within [`Limits`], and every wait has a time-out, so a host that never answers costs a few
//! seconds. Each measurement that failed is a [`Problem`]. Without raw sockets, `plain` measures with
//! ordinary ones.
//!
//! [`Limits`]: crate::limits::Limits

mod available;
mod capacity;
mod hops;
mod mtu;
mod options;
mod plain;
mod plain_mtu;
mod probe;
mod prober;
mod probers;
mod problem;
mod round_trip;
mod stop;
pub mod train;
mod wire;

pub use options::{Aspect, BadAspect, Event, Options, TCP_PORT, UDP_PORT};
pub use probe::{Measured, Probe};
pub use prober::ProbeKind;
pub use problem::{AvailableProblem, CapacityProblem, MtuProblem, NoCapacity, Problem, RoundTripProblem};
pub use stop::Stop;
