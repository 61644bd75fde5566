//! The system's errors of sending, as those of [`SendError`].

use std::io;

use rustix::io::Errno;

use crate::send::{Backend, SendError};

impl SendError {
    /// Converts an error of sending through `interface`.
    pub(super) fn sending(interface: &str, error: io::Error) -> Self {
        let interface = interface.to_owned();
        match Errno::from_io_error(&error) {
            Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => Self::Down { interface },
            _ => Self::Io { interface, error },
        }
    }

    /// Converts an error of opening a backend.
    pub(super) fn opening(backend: Backend, interface: &str, error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => Self::NotPermitted,
            Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => Self::Down { interface: interface.to_owned() },
            _ => Self::unavailable(backend, error),
        }
    }
}
