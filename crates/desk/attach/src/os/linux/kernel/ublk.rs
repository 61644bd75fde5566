//! Commands to the kernel's ublk driver, through `/dev/ublk-control`.

#![allow(unsafe_code, reason = "the kernel reads and writes a command's buffer through its address")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::uapi::{
    ADD_DEV, DEL_DEV_ASYNC, F_CMD_IOCTL_ENCODE, F_USER_COPY, GET_FEATURES, SET_PARAMS, START_DEV, STOP_DEV, Settings,
};
use crate::{Error, Result};

/// The length of the part of a submission that belongs to the driver.
const COMMAND_BYTES: usize = 80;

/// A connection to the kernel's ublk driver.
pub(crate) struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Finds the kernel's ublk driver.
    ///
    /// # Errors
    ///
    /// [`Error::NotRoot`] without root's rights, [`Error::NoUblk`] if the module is not loaded.
    pub(crate) fn open() -> Result<Self> {
        let failed = |error| Error::Io { context: "asking the kernel for ublk".to_owned(), error };
        if !rustix::process::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let opened = OpenOptions::new().read(true).write(true).open("/dev/ublk-control");
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoUblk,
            _ => failed(error),
        })?;
        let ring = IoUring::builder().build(1).map_err(failed)?;
        Ok(Self { file, ring })
    }

    /// Fails if the driver cannot do what [`Settings`] asks for.
    pub(crate) fn check(&mut self) -> Result<()> {
        let mut features = [0; 8];
        // A driver from before Linux 6.5 does not know the command.
        let asked = self.ask(GET_FEATURES, u32::MAX, &mut features, 0);
        let needed = F_USER_COPY | F_CMD_IOCTL_ENCODE;
        match asked {
            Ok(()) if u64::from_ne_bytes(features) & needed == needed => Ok(()),
            _ => Err(Error::OldUblk),
        }
    }

    /// Makes a device with this number, or with the first free one. Returns the number.
    pub(crate) fn add(&mut self, index: Option<u32>, settings: &Settings) -> io::Result<u32> {
        let mut info = settings.info(index);
        self.ask(ADD_DEV, index.unwrap_or(u32::MAX), &mut info, 0)?;
        Ok(Settings::index(&info))
    }

    /// Sets the size and the attributes of a device.
    pub(crate) fn set(&mut self, index: u32, settings: &Settings) -> io::Result<()> {
        self.ask(SET_PARAMS, index, &mut settings.parameters(), 0)
    }

    /// Shows a device, once its requests are served by a thread of this process.
    pub(crate) fn start(&mut self, index: u32) -> io::Result<()> {
        self.ask(START_DEV, index, &mut [], u64::from(std::process::id()))
    }

    /// Ends a device: its requests fail from now on.
    pub(crate) fn stop(&mut self, index: u32) -> io::Result<()> {
        self.ask(STOP_DEV, index, &mut [], 0)
    }

    /// Frees the number of a device, when its last user has ended.
    pub(crate) fn delete(&mut self, index: u32) -> io::Result<()> {
        self.ask(DEL_DEV_ASYNC, index, &mut [], 0)
    }

    /// Runs a command, and returns when it has ended.
    fn ask(&mut self, command: u32, index: u32, buffer: &mut [u8], argument: u64) -> io::Result<()> {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0..4].copy_from_slice(&index.to_ne_bytes());
        // No queue of the device.
        bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        if !buffer.is_empty() {
            // Not truncated: at most 64 bytes.
            bytes[6..8].copy_from_slice(&(buffer.len() as u16).to_ne_bytes());
            bytes[8..16].copy_from_slice(&(buffer.as_mut_ptr() as u64).to_ne_bytes());
        }
        bytes[16..24].copy_from_slice(&argument.to_ne_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), command).cmd(bytes).build();
        // SAFETY: the buffer and the file live until the command has ended, for which this function waits below.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        loop {
            let waited = self.ring.submit_and_wait(1);
            if let Some(ended) = self.ring.completion().next() {
                return match ended.result() {
                    error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
                    _ => Ok(()),
                };
            }
            if let Err(error) = waited
                && error.kind() != io::ErrorKind::Interrupted
            {
                // The kernel may still write to the buffer, which is gone once this returns.
                std::process::abort();
            }
        }
    }
}
