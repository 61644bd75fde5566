//! Drive files on disk: read within limits, written atomically.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use super::DriveFile;
use super::codec::{self, FILE_BYTES_MAX};
use crate::refused::Refused;
use cheetah_error::{Error, Result, next};
use cheetah_image::publish::persist;
use cheetah_image::regular;
use cheetah_kit::file::{FileId, Status, as_the_umask_allows, if_there, sync_folder, try_lock};

/// The longest wait for another process's change of a drive file, which takes milliseconds.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);
/// The pause between attempts to lock it.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Why a drive file is not written: a clause about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum NotWritten {
    /// There is a file of its name, which is not to be replaced.
    #[error("exists already")]
    Exists,
    /// Another drive has the file by now.
    #[error("is the file of another drive by now")]
    OtherDrive,
}

impl DriveFile {
    /// Reads and checks the drive file at `path`. If a symbolic link is there, [`DriveFile::path`] is that of the file
    /// itself: the file is changed there, and the files beside it are found there. The error says whether it is
    /// missing, damaged, edited, foreign, or newer than this program.
    pub fn load(path: &Path) -> Result<Self> {
        let reading = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => Error::failed(format!("{}: there is no such drive file", path.display()))
                .next(next::Drive::FindDriveFile),
            _ => Error::io(format_args!("reading the drive file {}", path.display()), &error),
        };
        let path = &resolved(path).map_err(reading)?;
        let file = regular::open_file(path).map_err(reading)?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(reading)?;
        let text =
            String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= FILE_BYTES_MAX).ok_or_else(|| {
                let path = path.display();
                Error::failed(format!("{path}: not a Cheetah drive file")).next(next::Drive::NameDriveFile)
            })?;
        codec::decode(&text, path)
    }

    /// Changes the file at [`DriveFile::path`] under a lock that other processes' changes wait for. `change` gets the
    /// current content of the file, which another process may have changed since it was read. A file that was removed
    /// is created again. Atomic: a crash leaves the old file or the new one. Blocks for at most [`LOCK_WAIT`].
    ///
    /// # Errors
    ///
    /// If the file now belongs to another drive, another process keeps the lock, or it cannot be written.
    pub fn update(&mut self, change: impl FnOnce(&mut Self)) -> Result<()> {
        self.change(false, change)
    }

    /// The same, and fails if the file was removed: a destroyed drive stays destroyed.
    pub(crate) fn update_existing(&mut self, change: impl FnOnce(&mut Self)) -> Result<()> {
        self.change(true, change)
    }

    fn change(&mut self, must_exist: bool, change: impl FnOnce(&mut Self)) -> Result<()> {
        // The file may have been moved since it was read, and a link put in its place.
        self.path = resolved(&self.path).map_err(|error| {
            Error::io(format_args!("following the link {}", self.path.display()), &error).because(error)
        })?;
        let lock = Lock::take(&self.path)?;
        if must_exist && lock.is_none() {
            return Err(Error::failed(format!("{} was removed meanwhile; nothing was changed", self.path.display())));
        }
        let now = if lock.is_some() { Self::load(&self.path)? } else { self.clone() };
        if now.id != self.id {
            let path = self.path.display();
            let why = NotWritten::OtherDrive;
            return Err(Error::failed(format!("{path} {why}; nothing was written to it")).because(why));
        }
        let mut changed = now.clone();
        change(&mut changed);
        if lock.is_none() || changed != now {
            changed.write(true)?;
        }
        *self = changed;
        Ok(())
    }

    /// Refuses a file with several names (hard links). A change replaces the file at one name; the other names would
    /// keep the old file, which does not record lost nodes.
    pub(crate) fn check_one_name(&self) -> Result<()> {
        match Status::at(&self.path).map(|status| status.names) {
            Ok(names) if names > 1 => Err(Refused::SeveralNames { path: self.path.clone(), names }.into()),
            _ => Ok(()),
        }
    }

    /// Writes the file at [`DriveFile::path`], which must not exist.
    pub fn save_new(&self) -> Result<()> {
        self.write(false)
    }

    fn write(&self, replace: bool) -> Result<()> {
        self.check().map_err(|why| Error::failed(format!("{}: not written, because {why}", self.path.display())))?;
        let text = codec::encode(self)?;
        write_atomically(&self.path, text.as_bytes(), replace)
    }
}

/// An exclusive lock on a drive file (flock), released when dropped.
struct Lock(#[expect(dead_code, reason = "it is held, not used")] File);

impl Lock {
    /// Locks the file at `path`; `None` if there is none.
    fn take(path: &Path) -> Result<Option<Self>> {
        let failed = |error: &std::io::Error| Error::io(format_args!("locking {}", path.display()), error);
        let begun = Instant::now();
        loop {
            // Opened for writing: over NFS, only that allows an exclusive lock.
            let opened = if_there(File::options().read(true).write(true).open(path));
            let Some(file) = opened.map_err(|error| failed(&error))? else { return Ok(None) };
            // Another process may have replaced the file before it released its lock.
            if try_lock(&file).map_err(|error| failed(&error))? && is_at(&file, path) {
                return Ok(Some(Self(file)));
            }
            if begun.elapsed() > LOCK_WAIT {
                let path = path.display();
                return Err(Error::failed(format!("{path} is locked by another process, which does not release it")));
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }
}

/// The path of the file that a symbolic link at `path` leads to; `path` itself if there is no link. Renaming a file to
/// the path of the link would replace the link, and leave the file behind the link unchanged.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    if path.is_symlink() { path.canonicalize() } else { Ok(path.to_owned()) }
}

/// Whether this open file is currently the one at `path` itself, not behind a link there.
fn is_at(file: &File, path: &Path) -> bool {
    FileId::of(file).is_ok_and(|open| FileId::at(path).is_ok_and(|there| there == Some(open)))
}

/// Writes `bytes` to a temporary file beside `path`, and renames it once it is on stable storage.
///
/// # Errors
///
/// If it cannot be written, or there is a file already and it is not to be replaced.
pub fn write_atomically(path: &Path, bytes: &[u8], replace: bool) -> Result<()> {
    let failed = |error: &std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let (path, why) = (path.display(), NotWritten::Exists);
            Error::failed(format!("{path} {why}; choose another name, or destroy that drive first")).because(why)
        }
        _ => Error::io(format_args!("writing {}", path.display()), error),
    };
    let dir = directory(path);
    let mut file = temporary_in(dir).map_err(|error| failed(&error))?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(|error| failed(&error))?;
    give_name(file, path, replace).map_err(|error| failed(&error))?;
    sync_folder(dir).map_err(|error| failed(&error))
}

/// Makes a temporary file whose permissions, once it is renamed, are those that the umask allows.
pub(crate) fn temporary_in(dir: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".cheetah-partial-");
    if let Some(permissions) = as_the_umask_allows() {
        builder.permissions(permissions);
    }
    builder.tempfile_in(dir)
}

/// Gives a temporary file its name. A file that has it is replaced, or is an error.
pub(crate) fn give_name(file: NamedTempFile, path: &Path, replace: bool) -> std::io::Result<()> {
    match replace {
        true => persist(file, path),
        false => file.persist_noclobber(path).map(drop).map_err(|error| error.error),
    }
}

/// The directory that contains `path`.
pub(crate) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::file::tests::{example, redundant};

    #[test]
    fn a_file_is_written_atomically_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = example();
        file.path = dir.path().join("case42.drive");
        file.save_new().unwrap();
        assert_eq!(file.save_new().unwrap_err().cause(), Some(&NotWritten::Exists));
        file.update(|file| file.name = "renamed".into()).unwrap();
        assert_eq!(file.name, "renamed");
        assert_eq!(DriveFile::load(&file.path).unwrap(), file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_file_opened_through_a_symbolic_link_is_changed_itself() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link, second) =
            (dir.path().join("case42.drive"), dir.path().join("link.drive"), dir.path().join("b"));
        DriveFile { path: real.clone(), ..example() }.save_new().unwrap();
        symlink("case42.drive", &link).unwrap();
        symlink("link.drive", &second).unwrap();
        let mut file = DriveFile::load(&second).unwrap();
        assert_eq!(file.path, real.canonicalize().unwrap(), "the files beside it are looked for there");
        file.update(|file| file.name = "renamed".into()).unwrap();
        assert!(link.is_symlink() && second.is_symlink() && !real.is_symlink());
        assert_eq!(DriveFile::load(&real).unwrap().name, "renamed");
        std::fs::remove_file(&real).unwrap();
        assert!(DriveFile::load(&link).unwrap_err().has_next(next::Drive::FindDriveFile));
    }

    #[test]
    fn a_file_that_was_moved_behind_a_link_is_changed_itself() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = example();
        file.path = dir.path().join("case42.drive");
        file.save_new().unwrap();
        let (link, moved) = (file.path.clone(), dir.path().join("moved.drive"));
        std::fs::rename(&link, &moved).unwrap();
        symlink(&moved, &link).unwrap();
        file.update(|file| file.name = "renamed".into()).unwrap();
        assert!(link.is_symlink());
        assert_eq!(DriveFile::load(&moved).unwrap().name, "renamed");
        std::fs::remove_file(&moved).unwrap();
        std::fs::remove_file(&link).unwrap();
        symlink(&moved, &link).unwrap();
        file.path = link.clone();
        let refusal = file.update(|file| file.name = "again".into()).unwrap_err();
        let why = refusal.cause::<std::io::Error>().map(std::io::Error::kind);
        assert_eq!(why, Some(ErrorKind::NotFound), "{refusal}");
        assert!(link.is_symlink() && !moved.exists());
    }

    #[test]
    fn concurrent_changes_are_all_kept() {
        const THREADS: usize = 4;
        const CHANGES: usize = 10;
        let dir = tempfile::tempdir().unwrap();
        let mut file = redundant();
        file.path = dir.path().join("case42.drive");
        file.save_new().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                // Each process has the file as it was created.
                let mut own = file.clone();
                scope.spawn(move || {
                    for change in 0..CHANGES {
                        own.update(|file| file.spares.push(format!("spare-{thread}-{change}"))).unwrap();
                    }
                });
            }
        });
        assert_eq!(DriveFile::load(&file.path).unwrap().spares.len(), THREADS * CHANGES);
    }

    #[test]
    fn the_file_of_another_drive_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = example();
        file.path = dir.path().join("case42.drive");
        DriveFile { id: "f".repeat(32), ..file.clone() }.save_new().unwrap();
        let refusal = file.update(|file| file.name = "renamed".into()).unwrap_err();
        assert_eq!(refusal.cause(), Some(&NotWritten::OtherDrive), "{refusal}");
        assert_eq!(DriveFile::load(&file.path).unwrap().name, "case42");
    }

    #[test]
    fn unreadable_files_are_refused_in_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("case42.drive");
        let refusal = || DriveFile::load(&path).unwrap_err();
        assert!(refusal().has_next(next::Drive::FindDriveFile));
        std::fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
        assert!(refusal().has_next(next::Drive::NameDriveFile));
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(refusal().has_next(next::Drive::NameDriveFile));
    }
}
