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
    /// The kernel does not take packets that come to itself from itself by a raw socket.
    #[error("the host is this machine: there is no link, only the kernel's way back to itself")]
    Loopback,
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
    /// An ordinary socket does not send, e.g. because the interface is down.
    #[error("packets cannot be sent any more: {0}")]
    Unsent(std::io::Error),
    /// No port, no random number.
    #[error("this machine lacks what a probe needs: {0}")]
    Io(#[from] std::io::Error),
}

impl Stop {
    /// Whether ordinary sockets may do nonetheless.
    pub(super) const fn is_of_raw_sockets(&self) -> bool {
        matches!(
            self,
            Self::Loopback
                | Self::Route(RouteError::NotEthernet(_))
                | Self::Send(SendError::NotPermitted)
                | Self::Capture(CaptureError::NotPermitted)
        )
    }

    /// Whether nothing else need be tried.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Cancelled | Self::Exhausted)
    }
}

/// What was learnt, and whether it ended before it was done: what is known by then is kept.
pub(super) type Learnt<T> = (Option<T>, Result<(), Stop>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_sockets_do_over_tunnels() {
        assert!(Stop::Route(RouteError::NotEthernet("wg0".into())).is_of_raw_sockets());
        assert!(!Stop::Exhausted.is_of_raw_sockets());
    }
}
