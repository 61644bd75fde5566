//! The server of the control API (see [`cheetah_control`]).

mod jobs;
mod metrics;
mod request;
pub(crate) mod server;
