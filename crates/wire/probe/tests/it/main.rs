//! Measurements in network namespaces with real kernels as hosts and routers; far ends on loopback; recorded trains.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

mod capture;
mod far;
mod hosts;
mod net;
mod paths;
mod played;
mod rights;
mod route;
mod send;
mod traces;
