//! Reasons to end a measurement early.

use crate::capture::CaptureError;
use crate::route::RouteError;
use crate::send::SendError;
use cheetah_error::Next;
use cheetah_error::next::Measure;

/// The reason a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The caller cancelled it.
    #[error("it was interrupted")]
    Cancelled,
    /// The kernel does not accept packets to this host from a raw socket on it.
    #[error("the host is this machine: there is no link, only the kernel's way back to itself")]
    Loopback,
    /// There is no route.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// Nothing can be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Nothing can be received.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The limits are reached.
    #[error("the limit of packets and bytes is reached")]
    Exhausted,
    /// An ordinary socket does not send, e.g. because the interface is down.
    #[error("packets cannot be sent any more: {0}")]
    Unsent(std::io::Error),
    /// There is no port, or no random number.
    #[error("this machine lacks a resource that probes need: {0}")]
    Io(#[from] std::io::Error),
}

impl Stop {
    /// Returns whether ordinary sockets may still work.
    pub(super) const fn is_of_raw_sockets(&self) -> bool {
        matches!(
            self,
            Self::Loopback
                | Self::Route(RouteError::NotEthernet(_) | RouteError::NotOffered)
                | Self::Send(SendError::NotPermitted | SendError::NotOffered | SendError::NoneAvailable(_))
                | Self::Capture(CaptureError::NotPermitted | CaptureError::NotOffered)
        )
    }

    /// What the user can do, if there is something.
    pub(super) fn next(&self) -> Option<Next> {
        matches!(self, Self::Exhausted).then(|| Measure::AllowMorePackets.into())
    }

    /// Returns whether other methods would fail as well.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Cancelled | Self::Exhausted)
    }
}

/// A result as far as it is known, and whether the measurement ended early.
pub(super) type Outcome<T> = (Option<T>, Result<(), Stop>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::Backend;

    #[test]
    fn ordinary_sockets_do_over_tunnels() {
        assert!(Stop::Route(RouteError::NotEthernet("wg0".into())).is_of_raw_sockets());
        assert!(!Stop::Exhausted.is_of_raw_sockets());
    }

    #[test]
    fn ordinary_sockets_do_without_any_backend_but_not_without_the_one_asked_for() {
        let missing = || SendError::Unavailable { backend: Backend::Ring, why: String::new() };
        assert!(Stop::Send(SendError::NoneAvailable(Box::new(missing()))).is_of_raw_sockets());
        assert!(!Stop::Send(missing()).is_of_raw_sockets());
    }
}
