//! Appending to a file such that an append that fails leaves the file as it was.
//!
//! A disk that becomes full takes the beginning of an append. What it took is removed at once or, if that fails, too,
//! before the next append: an incomplete record may only be the last one, where a crash leaves it.

use std::fs::File;
use std::io::{Result, Write as _};

use crate::own_file::LockedFile;

/// What an [`Appender`] needs of a file. Tests have one that becomes full.
pub trait Storage {
    /// Writes all of `bytes` at the end, or a part of them and fails.
    ///
    /// # Errors
    ///
    /// Those of write(2).
    fn write_all(&mut self, bytes: &[u8]) -> Result<()>;

    /// Cuts the file to this many bytes.
    ///
    /// # Errors
    ///
    /// Those of ftruncate(2).
    fn set_len(&mut self, bytes: u64) -> Result<()>;

    /// Waits until everything written is on stable storage.
    ///
    /// # Errors
    ///
    /// Those of fdatasync(2).
    fn sync(&mut self) -> Result<()>;
}

impl Storage for File {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        std::io::Write::write_all(self, bytes).and_then(|()| self.flush())
    }

    fn set_len(&mut self, bytes: u64) -> Result<()> {
        cheetah_kit::file::set_len(self, bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.sync_data()
    }
}

impl Storage for LockedFile {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        Storage::write_all(&mut **self, bytes)
    }

    fn set_len(&mut self, bytes: u64) -> Result<()> {
        Storage::set_len(&mut **self, bytes)
    }

    fn sync(&mut self) -> Result<()> {
        Storage::sync(&mut **self)
    }
}

/// A file that is only appended to, and that was opened for appending.
#[derive(Debug)]
pub struct Appender<F = LockedFile> {
    file: F,
    /// Its length without what an append that failed left.
    end: u64,
    /// Whether such bytes may follow.
    torn: bool,
}

impl<F: Storage> Appender<F> {
    /// Appends from `end` on, the length of the file in bytes.
    pub const fn new(file: F, end: u64) -> Self {
        Self { file, end, torn: false }
    }

    /// Cuts off everything after the first `end` bytes, and appends from there.
    ///
    /// # Errors
    ///
    /// Those of ftruncate(2).
    pub fn cut(mut file: F, end: u64) -> Result<Self> {
        file.set_len(end)?;
        Ok(Self::new(file, end))
    }

    /// Appends from `end` on, the length of the file in bytes, as [`Self::new`].
    pub const fn set_end(&mut self, end: u64) {
        self.end = end;
    }

    /// Cuts off everything after the first `end` bytes.
    ///
    /// # Errors
    ///
    /// Those of ftruncate(2) and fdatasync(2).
    pub fn cut_back(&mut self, end: u64) -> Result<()> {
        (self.end, self.torn) = (end, true);
        self.mend()
    }

    /// The file.
    pub const fn file(&self) -> &F {
        &self.file
    }

    /// The file, to do something else with it.
    pub fn into_file(self) -> F {
        self.file
    }

    /// Appends `bytes`; they are on stable storage when this returns, if `durable`.
    ///
    /// # Errors
    ///
    /// If they cannot be written or flushed: the file is then as before, and the append may be tried again.
    pub fn append(&mut self, bytes: &[u8], durable: bool) -> Result<()> {
        self.mend()?;
        let written = self.file.write_all(bytes).and_then(|()| if durable { self.file.sync() } else { Ok(()) });
        match written {
            Ok(()) => self.end += bytes.len() as u64,
            Err(_) => {
                self.torn = true;
                // Otherwise before the next append.
                let _ = self.mend();
            }
        }
        written
    }

    /// Removes what an append that failed left.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn mend(&mut self) -> Result<()> {
        if self.torn {
            self.file.set_len(self.end)?;
            self.file.sync()?;
            self.torn = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file on a disk with room for this many more bytes.
    #[derive(Default)]
    struct Disk {
        content: Vec<u8>,
        room: usize,
        /// Operations other than writes that fail.
        failing: u32,
    }

    fn full() -> std::io::Error {
        std::io::ErrorKind::StorageFull.into()
    }

    impl Disk {
        fn may_fail(&mut self) -> Result<()> {
            match self.failing {
                0 => Ok(()),
                _ => {
                    self.failing -= 1;
                    Err(full())
                }
            }
        }
    }

    impl Storage for Disk {
        fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
            let part = bytes.len().min(self.room);
            self.content.extend_from_slice(&bytes[..part]);
            self.room -= part;
            if part < bytes.len() { Err(full()) } else { Ok(()) }
        }

        fn set_len(&mut self, bytes: u64) -> Result<()> {
            self.may_fail()?;
            let bytes = usize::try_from(bytes).unwrap();
            self.room += self.content.len() - bytes;
            self.content.truncate(bytes);
            Ok(())
        }

        fn sync(&mut self) -> Result<()> {
            self.may_fail()
        }
    }

    #[test]
    fn an_append_that_a_full_disk_cuts_off_at_any_byte_leaves_the_file_as_it_was() {
        let record = b"a record\n";
        for room in 0..record.len() {
            for failing in 0..4 {
                let mut appender = Appender::new(Disk { room: record.len(), ..Disk::default() }, 0);
                appender.append(record, true).unwrap();
                (appender.file.room, appender.file.failing) = (room, failing);
                appender.append(record, true).unwrap_err();
                if failing == 0 {
                    assert_eq!(appender.file.content, record, "{room}");
                }
                // The next ones fail, too, until there is space; then it goes on.
                while appender.append(record, true).is_err() {
                    appender.file.room = record.len();
                }
                assert_eq!(appender.file.content, record.repeat(2), "{room} {failing}");
            }
        }
    }

    #[test]
    fn an_append_that_cannot_be_made_durable_is_taken_back() {
        let mut appender = Appender::new(Disk { room: 100, failing: 1, ..Disk::default() }, 0);
        appender.append(b"lost", true).unwrap_err();
        assert_eq!(appender.file.content, b"");
        appender.append(b"kept", true).unwrap();
        assert_eq!((appender.file.content.as_slice(), appender.end), (&b"kept"[..], 4));
    }
}
