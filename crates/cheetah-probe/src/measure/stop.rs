//! Why a measurement ends before it is done.

use crate::capture::CaptureError;
use crate::route::RouteError;
use crate::send::SendError;

/// Why nothing more is measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    /// Somebody wants it to end.
    #[error("it was interrupted")]
    Cancelled,
    /// There is no way.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// Nothing can be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Nothing can be received.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// No more may be sent.
    #[error("the limit of packets and bytes is reached; more would have to be allowed")]
    Exhausted,
    /// No port, no random number.
    #[error("this machine lacks what a probe needs: {0}")]
    Io(#[from] std::io::Error),
}

impl Stop {
    /// Whether it is for lack of the right to raw sockets, so that others may do.
    pub(super) const fn is_lack_of_right(&self) -> bool {
        matches!(self, Self::Send(SendError::NotPermitted) | Self::Capture(CaptureError::NotPermitted))
    }
}
