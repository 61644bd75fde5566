//! Measurements of paths in network namespaces of their own: real kernels as hosts and routers, and hosts that misbehave.

#![allow(clippy::unwrap_used)]

mod hosts;
mod net;
mod paths;
mod played;
mod rights;
mod steady;
