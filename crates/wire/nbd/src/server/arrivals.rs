//! Receiving straight into a device's memory.
//!
//! A write that passes through a buffer is copied twice: out of the socket, and into the device. A device that lends its memory
//! ([`Device::lend_mut`](cheetah_device::Device::lend_mut)) saves the second copy. It must not wait for the client meanwhile, and
//! digests whole blocks only; so no more is received than has arrived, in whole blocks.

use std::io::{self, IoSliceMut};

use cheetah_kit::socket::arrived_bytes;
use cheetah_tls::Secured;
use smallvec::SmallVec;
use tokio::net::TcpStream;

use crate::os::UnixStream;

/// A stream that may say how many bytes have arrived, and hand them out without waiting.
pub(super) trait Arrivals {
    /// Whether it says how many bytes have arrived.
    const KNOWN: bool = false;

    /// The number of bytes that can be received at once; 0 if that is not known.
    fn arrived(&self) -> usize {
        0
    }

    /// Receives into the runs, without waiting.
    fn try_receive(&self, runs: &mut [&mut [u8]]) -> io::Result<usize> {
        let _ = runs;
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Runs as the system calls take them.
fn slices<'a>(runs: &'a mut [&mut [u8]]) -> SmallVec<[IoSliceMut<'a>; 4]> {
    runs.iter_mut().map(|run| IoSliceMut::new(run)).collect()
}

impl Arrivals for TcpStream {
    const KNOWN: bool = true;

    fn arrived(&self) -> usize {
        arrived_bytes(self)
    }

    fn try_receive(&self, runs: &mut [&mut [u8]]) -> io::Result<usize> {
        self.try_read_vectored(&mut slices(runs))
    }
}

impl Arrivals for UnixStream {
    const KNOWN: bool = true;

    fn arrived(&self) -> usize {
        arrived_bytes(self)
    }

    fn try_receive(&self, runs: &mut [&mut [u8]]) -> io::Result<usize> {
        self.try_read_vectored(&mut slices(runs))
    }
}

/// Bytes are decrypted into a buffer.
impl<S> Arrivals for Secured<S> {}

#[cfg(test)]
impl Arrivals for tokio::io::DuplexStream {}

impl<S: Arrivals> Arrivals for &mut S {
    const KNOWN: bool = S::KNOWN;

    fn arrived(&self) -> usize {
        (**self).arrived()
    }

    fn try_receive(&self, runs: &mut [&mut [u8]]) -> io::Result<usize> {
        (**self).try_receive(runs)
    }
}
