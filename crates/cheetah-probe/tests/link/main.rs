//! Sending, routes and capture over a link between two namespaces.

mod capture;
mod route;
mod send;

/// What the tests of measurements run in.
#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "../measure/net.rs"]
mod net;
