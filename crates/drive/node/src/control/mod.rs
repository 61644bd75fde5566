//! The server of the control API (see [`cheetah_control`]).

mod metrics;
pub(crate) mod server;
