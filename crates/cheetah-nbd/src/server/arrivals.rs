//! Receiving straight into a device's memory.
//!
//! A write that passes through a buffer is copied twice: out of the socket, and into the device. A device that lends its memory
//! ([`Device::lend_mut`](cheetah_device::Device::lend_mut)) saves the second copy. It must not wait for the client meanwhile, and
//! digests whole blocks only; so no more is received than has arrived, in whole blocks.

use std::io::{self, IoSliceMut};

use cheetah_tls::Secured;
use smallvec::SmallVec;
use tokio::net::{TcpStream, UnixStream};

/// A stream that may say how many bytes have arrived, and hand them out without waiting.
pub(super) trait Arrivals {
    /// The number of bytes that can be received at once; 0 if the stream cannot say.
    fn arrived(&self) -> usize {
        0
    }

    /// Whether it can say how many bytes have arrived.
    fn says_arrivals(&self) -> bool {
        false
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
    fn arrived(&self) -> usize {
        rustix::io::ioctl_fionread(self).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
    }

    fn says_arrivals(&self) -> bool {
        true
    }

    fn try_receive(&self, runs: &mut [&mut [u8]]) -> io::Result<usize> {
        self.try_read_vectored(&mut slices(runs))
    }
}

impl Arrivals for UnixStream {
    fn arrived(&self) -> usize {
        rustix::io::ioctl_fionread(self).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
    }

    fn says_arrivals(&self) -> bool {
        true
    }

    fn try_receive(&self, runs: &mut [&mut [u8]]) -> io::Result<usize> {
        self.try_read_vectored(&mut slices(runs))
    }
}

/// Bytes are decrypted into a buffer.
impl<S> Arrivals for Secured<S> {}

#[cfg(test)]
impl Arrivals for tokio::io::DuplexStream {}

impl<S: Arrivals + ?Sized> Arrivals for &mut S {
    fn arrived(&self) -> usize {
        (**self).arrived()
    }

    fn says_arrivals(&self) -> bool {
        (**self).says_arrivals()
    }

    fn try_receive(&self, runs: &mut [&mut [u8]]) -> io::Result<usize> {
        (**self).try_receive(runs)
    }
}
