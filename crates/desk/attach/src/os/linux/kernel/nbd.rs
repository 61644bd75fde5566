//! Requests to the kernel's NBD client, over generic netlink.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

use super::netlink::{Answer, Connect, Serving, answers, connect, disconnect, get_family, reconfigure};
use crate::{Error, Result};

/// Longer than any answer of the kernel's to the requests made here.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// A connection to the kernel's NBD client.
pub(crate) struct Kernel {
    socket: OwnedFd,
    family: u16,
}

impl Kernel {
    /// Finds the kernel's NBD client.
    ///
    /// # Errors
    ///
    /// [`Error::NotRoot`] without root's rights, [`Error::NoNbd`] if the module is not loaded.
    pub(crate) fn open() -> Result<Self> {
        let failed = |errno: Errno| Error::Io { context: "asking the kernel for nbd".to_owned(), error: errno.into() };
        if !rustix::process::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let generic = Some(netlink::GENERIC);
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, generic).map_err(failed)?;
        let mut kernel = Self { socket, family: 0 };
        let found = kernel.ask(&get_family()).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Error::NoNbd,
            _ => Error::Io { context: "asking the kernel for nbd".to_owned(), error },
        })?;
        kernel.family = found
            .into_iter()
            .find_map(|answer| match answer {
                Answer::Family(number) => Some(number),
                _ => None,
            })
            .ok_or(Error::NoNbd)?;
        Ok(kernel)
    }

    /// Makes a device.
    ///
    /// # Errors
    ///
    /// The kernel's, such as [`io::ErrorKind::ResourceBusy`] if the device is connected already.
    pub(crate) fn connect(&self, settings: &Connect<'_>) -> io::Result<()> {
        self.ask(&connect(self.family, settings)).map(drop)
    }

    /// Gives a device, whose connections are dead, new ones.
    ///
    /// # Errors
    ///
    /// The kernel's: invalid input if the device is not connected, or connected to something else, and no space if its
    /// connections live.
    pub(crate) fn reconfigure(&self, index: u32, serving: &Serving<'_>) -> io::Result<()> {
        self.ask(&reconfigure(self.family, index, serving)).map(drop)
    }

    /// Ends a device. Its requests fail from now on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub(crate) fn disconnect(&self, index: u32) -> io::Result<()> {
        self.ask(&disconnect(self.family, index)).map(drop)
    }

    /// Sends a request, and returns the answers before the acknowledgement.
    fn ask(&self, request: &[u8]) -> io::Result<Vec<Answer>> {
        // Without an address, the message goes to the kernel.
        send(&self.socket, request, SendFlags::empty())?;
        let (mut found, mut buffer) = (Vec::new(), vec![0; ANSWER_BYTES_MAX]);
        loop {
            let (len, _) = match recv(&self.socket, buffer.as_mut_slice(), RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                received => received?,
            };
            for answer in answers(&buffer[..len.min(ANSWER_BYTES_MAX)]) {
                match answer {
                    Answer::Family(_) => found.push(answer),
                    ending => return ending.into_result().map(|()| found),
                }
            }
        }
    }
}
