//! The bytes of the drive: a sparse file, or memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The bytes.
#[derive(Debug)]
pub struct Store {
    file: File,
}

impl Store {
    /// Uses a file, which is made or enlarged as needed; without one, memory.
    pub fn open(path: Option<&Path>, size_bytes: u64) -> io::Result<Self> {
        let file = match path {
            Some(path) => OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?,
            None => in_memory()?,
        };
        file.set_len(size_bytes)?;
        Ok(Self { file })
    }

    /// Returns the bytes of a range that is within the drive.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Writes bytes to a range that is within the drive.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }
}

fn in_memory() -> io::Result<File> {
    // SAFETY: a plain system call with a terminated name.
    let number = unsafe { libc::memfd_create(c"lab-disk".as_ptr(), libc::MFD_CLOEXEC) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_the_rest_is_zero() {
        let store = Store::open(None, 1 << 40).unwrap();
        store.write(1 << 39, b"abc").unwrap();
        assert_eq!(store.read((1 << 39) - 1, 5).unwrap(), b"\0abc\0");
        assert!(store.read(1 << 40, 1).is_err());
    }
}
