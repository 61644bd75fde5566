//! The backends, each a [`Sender`].
//!
//! If the kernel can hold packets until they are due, it gets the times with them ([`txtime`]). Otherwise the frames lie in
//! memory shared with the kernel; this thread sleeps until shortly before a packet is due, spins for the rest, and makes one
//! system call without arguments ([`spin`]). During a train, if permitted, the thread has real-time priority and stays on its
//! CPU ([`realtime`]), for a limited time even if the train is longer.

mod allowance;
pub(super) mod control;
mod errors;
mod lead;
mod memory;
mod packet;
mod queue;
mod quiet;
mod realtime;
mod ring;
mod spin;
mod stalls;
mod stamps;
mod txtime;
mod wait;
mod warm;
mod xdp;

pub(super) use packet::{PacketSocket, set_option};

use crate::route::Route;
use crate::send::{Backend, Options, SendError, Sender};

/// Opens the requested backend, or the best available.
///
/// # Errors
///
/// If raw sockets are not permitted, or the requested backend, or every backend, is unavailable.
pub fn open(route: &Route, options: Options) -> Result<Box<dyn Sender>, SendError> {
    match options.backend {
        Some(backend) => open_one(backend, route, options),
        None => first_available(|backend| open_one(backend, route, options)),
    }
}

/// Opens the best backend that is available.
fn first_available<S>(open: impl Fn(Backend) -> Result<S, SendError>) -> Result<S, SendError> {
    let mut last = SendError::NotPermitted;
    for backend in Backend::ALL {
        match open(backend) {
            Ok(sender) => return Ok(sender),
            // Without the right to raw sockets, every other backend fails as well.
            Err(SendError::NotPermitted) => return Err(SendError::NotPermitted),
            Err(error) => {
                tracing::debug!(%backend, %error, "the backend is not available");
                last = error;
            }
        }
    }
    Err(match last {
        unavailable @ SendError::Unavailable { .. } => SendError::NoneAvailable(Box::new(unavailable)),
        other => other,
    })
}

fn open_one(backend: Backend, route: &Route, options: Options) -> Result<Box<dyn Sender>, SendError> {
    Ok(match backend {
        Backend::TxtimeEtf | Backend::TxtimeFq => Box::new(txtime::Txtime::open(backend, route, options)?),
        Backend::Xdp => Box::new(xdp::open(route, options)?),
        Backend::Ring => Box::new(ring::open(route, options)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_any_backend_the_error_is_not_that_of_one() {
        let none = first_available::<()>(|backend| Err(SendError::unavailable(backend, "no such socket")));
        let Err(SendError::NoneAvailable(last)) = none else { panic!("{none:?}") };
        assert!(matches!(*last, SendError::Unavailable { backend: Backend::Ring, .. }), "{last}");
        let down = first_available::<()>(|_| Err(SendError::Down { interface: "eth0".into() }));
        assert!(matches!(down, Err(SendError::Down { .. })));
        let only_ring = first_available(|backend| match backend {
            Backend::Ring => Ok(()),
            other => Err(SendError::unavailable(other, "")),
        });
        assert!(only_ring.is_ok());
    }
}
