//! Errors of sending.

use std::io;

use super::Backend;

/// The reason a train was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Raw sockets are not permitted.
    #[error(
        "sending packets on time needs the right to raw sockets: run it as root, or grant it with \
         'setcap cap_net_raw,cap_sys_nice,cap_ipc_lock+ep' on the cheetah program"
    )]
    NotPermitted,
    /// No backend exists for this system.
    #[error("this system cannot send packets at exact times, which Linux can")]
    NotOffered,
    /// The backend is not available here.
    #[error("the backend {backend} is not available here: {why}")]
    Unavailable {
        /// The backend.
        backend: Backend,
        /// The reason.
        why: String,
    },
    /// No backend is available here; this is the error of the last one tried.
    #[error("packets cannot be sent on time here: {0}")]
    NoneAvailable(#[source] Box<Self>),
    /// A frame is too long.
    #[error("a frame of {bytes} bytes is too long: {bytes_max} is the most here, so send smaller packets")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest frame possible.
        bytes_max: usize,
    },
    /// The train is invalid: too many packets, another number of times, or times that go back.
    #[error("{0}")]
    Train(&'static str),
    /// The interface is gone or down.
    #[error("the interface {interface} is down or gone: bring it up and try again")]
    Down {
        /// Its name.
        interface: String,
    },
    /// The kernel refused.
    #[error("the kernel does not send packets through {interface}: {error}")]
    Io {
        /// The interface's name.
        interface: String,
        /// Why.
        #[source]
        error: io::Error,
    },
}

impl SendError {
    pub(crate) fn unavailable(backend: Backend, why: impl ToString) -> Self {
        Self::Unavailable { backend, why: why.to_string() }
    }
}
