//! Measurements of paths in network namespaces of their own: real kernels as hosts and routers, and hosts that misbehave.

mod hosts;
mod net;
mod paths;
mod played;
mod rights;
