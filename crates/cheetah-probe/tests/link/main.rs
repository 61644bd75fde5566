//! Sending, routes and capture over a link between two namespaces.

// A test that cannot go on ends there and then.
#![allow(clippy::unwrap_used)]

mod capture;
mod route;
mod send;

/// What the tests of measurements run in.
#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "../measure/net.rs"]
mod net;

#[path = "../measure/steady.rs"]
mod steady;
