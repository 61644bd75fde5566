//! The files of a source, from before the first byte of them is read to a last question when all of them were.
//!
//! The readers of images look at times and at the kernel's reports with each read, or a few times a second. What changes after
//! the last read, or within that time, is found here, as are changes of the files of virtual disks, which another program reads.
//!
//! A program that has mapped a file and has written to a page of it before can write to that page again unnoticed, until the
//! kernel has stored the page. The kernel is therefore asked to store such pages first: each page's next write then changes the
//! file's times. File systems in memory store nothing, so there it stays unnoticed.

use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result};
use cheetah_kit::file::{FileId, Status};

use crate::os::{Watch, store_pages};
use crate::raw::{Stamp, stamp_of};
use crate::regular;
use crate::source::SourceFile;

/// The maximum number of files for which the kernel is asked to report writes; the times of all are compared.
const WATCHED_MAX: usize = 64;

/// How a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Change {
    /// There is no such file.
    #[error("was removed")]
    Removed,
    /// Another file has its name.
    #[error("was replaced")]
    Replaced,
    /// It has another size, or other times.
    #[error("was written to (its size or its times say so)")]
    Stamp,
    /// The kernel says so.
    #[error("was written to (a report of the kernel says so)")]
    Reported,
}

/// The files of a source, watched until this is dropped.
#[derive(Debug, Default)]
pub struct Watching {
    files: Vec<WatchedFile>,
}

#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    /// Which file it is, whatever its name is.
    id: FileId,
    stamp: Stamp,
    watch: Option<Watch>,
}

impl Watching {
    /// Starts with the local files of a source. Blocks while the kernel stores what a program wrote to them and has not stored
    /// yet. A file that cannot be opened is not watched; reading it fails, too.
    pub fn start(files: &[SourceFile]) -> Self {
        let local = files.iter().filter(|file| !file.is_remote());
        let watched = local.enumerate().filter_map(|(index, file)| WatchedFile::start(&file.path, index));
        Self { files: watched.collect() }
    }

    /// Asks the kernel once more.
    ///
    /// # Errors
    ///
    /// `Kind::Evidence` if one of the files was written to, replaced or removed since the start.
    pub fn check(&self) -> Result<()> {
        self.files.iter().try_for_each(WatchedFile::check)
    }
}

impl WatchedFile {
    fn start(path: &Path, index: usize) -> Option<Self> {
        // The user named the first; a link to it is followed.
        let file = if index == 0 { regular::open_file(path) } else { regular::open_beside(path) }.ok()?;
        let watch = (index < WATCHED_MAX).then(|| Watch::start(&file));
        if watch.as_ref().is_none_or(Watch::may_have_writer) {
            store_pages(&file);
        }
        let found = Status::of(&file).ok()?;
        Some(Self { path: path.to_owned(), id: found.id, stamp: stamp_of(&found), watch })
    }

    fn check(&self) -> Result<()> {
        let how = match Status::at(&self.path) {
            Err(_) => Change::Removed,
            Ok(now) if now.id != self.id => Change::Replaced,
            Ok(now) if stamp_of(&now) != self.stamp => Change::Stamp,
            Ok(_) if self.watch.as_ref().is_some_and(Watch::is_written) => Change::Reported,
            Ok(_) => return Ok(()),
        };
        let path = self.path.display();
        Err(Error::evidence(format!(
            "{path} {how} while it was read; stop the program that writes to it, and start again"
        ))
        .because(how))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use cheetah_kit::file::FileExt as _;

    use super::*;

    fn watched(path: &Path) -> Watching {
        let size = path.metadata().unwrap().len();
        Watching::start(&[SourceFile { path: path.to_owned(), size }])
    }

    #[test]
    fn a_change_after_the_last_read_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.raw");
        let fresh = || std::fs::write(&path, [7; 9000]).unwrap();
        const WRITTEN: &[Change] = &[Change::Stamp, Change::Reported];
        let changes: [(&[Change], &dyn Fn()); 4] = [
            (WRITTEN, &|| {
                // The time of modification is put back.
                let file = File::options().write(true).open(&path).unwrap();
                let then = file.metadata().unwrap().modified().unwrap();
                file.write_all_at(b"x", 0).unwrap();
                file.set_modified(then).unwrap();
            }),
            (WRITTEN, &|| File::options().write(true).open(&path).unwrap().set_len(1).unwrap()),
            (&[Change::Replaced], &|| {
                std::fs::rename(&path, dir.path().join("away")).unwrap();
                fresh();
            }),
            (&[Change::Removed], &|| std::fs::remove_file(&path).unwrap()),
        ];
        for (how, change) in changes {
            fresh();
            let watching = watched(&path);
            watching.check().unwrap();
            std::fs::read(&path).unwrap();
            watching.check().unwrap();
            change();
            let error = watching.check().unwrap_err();
            assert!(error.is_evidence() && error.cause().is_some_and(|change| how.contains(change)), "{error}");
        }
    }

    /// A page that a program has mapped and written to before is written to again, without a system call.
    #[test]
    #[allow(unsafe_code, reason = "a mapping has no safe wrapper")]
    fn a_write_through_an_old_mapping_is_found() {
        use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

        const TMPFS: i64 = 0x0102_1994;
        let dir = tempfile::tempdir().unwrap();
        if rustix::fs::statfs(dir.path()).unwrap().f_type as i64 == TMPFS {
            return cheetah_testing::skip("needs a folder for temporary files on a disk");
        }
        let path = dir.path().join("disk.raw");
        std::fs::write(&path, [7; 8192]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, and only this test uses the mapping.
        let mapped = unsafe { mmap(std::ptr::null_mut(), 8192, protection, MapFlags::SHARED, &file, 0) }.unwrap();
        let write = |byte: u8| {
            // SAFETY: the mapping has 8192 bytes.
            unsafe { mapped.cast::<u8>().write_volatile(byte) };
        };
        write(1);
        let watching = watched(&path);
        watching.check().unwrap();
        write(2);
        let error = watching.check().unwrap_err();
        assert_eq!(error.cause(), Some(&Change::Stamp), "{error}");
        // SAFETY: it was mapped above.
        unsafe { munmap(mapped, 8192) }.unwrap();
    }

    #[test]
    fn files_at_the_other_end_of_a_link_are_not_looked_for() {
        let file = SourceFile { path: "https://lab/disk.raw".into(), size: 1 };
        Watching::start(&[file]).check().unwrap();
    }
}
