//! What differs by system. Each has the same modules, which [`capture`](crate::capture), [`route`](crate::route) and
//! [`send`](crate::send) pass on: Linux (`linux`) has raw sockets and backends that send on time; other systems (`plain`) have
//! ordinary sockets, and say what they cannot measure.

#[cfg(not(target_os = "linux"))]
mod plain;
#[cfg(not(target_os = "linux"))]
pub use plain::{capture, clock, route, send, socket};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::{capture, clock, route, send, socket};
