//! Gives a complete file its final name, and makes sure that it is that file.
//!
//! While an image is written, its files are called `NAME.partial`. Another process may put another file under that name
//! meanwhile. Therefore the file is identified by device and inode: the old name is checked before the renaming, and
//! the new name after it. A file that is not ours is renamed back. In between, for microseconds, another file may have
//! the final name. An exchange after the last check is like one at any later time; the hashes in the custody log show
//! it.

use std::io::{self, ErrorKind};
use std::path::Path;

use cheetah_error::Error;
use cheetah_error::next::Acquisition;
use cheetah_kit::file::{FileId, replace, sync_folder};
use cheetah_kit::rename_new;
use tempfile::NamedTempFile;

/// The reason that a file was not renamed.
#[derive(Debug)]
pub enum Unpublished {
    /// There is a file of that name.
    Exists,
    /// The file under the old name is not the one that was written.
    Exchanged,
    /// The operating system refused.
    Io(io::Error),
}

impl Unpublished {
    /// Returns the user's error for the file that was written as `from`.
    pub fn error(self, from: &Path, to: &Path, exists: impl FnOnce() -> Error) -> Error {
        match self {
            Self::Exists => exists(),
            Self::Exchanged => Error::evidence(format!(
                "{} is not the file that was written: it was exchanged, so it is not renamed to {}",
                from.display(),
                to.display()
            ))
            .next(Acquisition::FindOutAndBeginAgain),
            Self::Io(error) => Error::io(format_args!("renaming {} to {}", from.display(), to.display()), &error),
        }
    }
}

/// Renames `from` to `to` if it is the file `id`. A file that is there already is replaced only with `may_replace`.
///
/// # Errors
///
/// See [`Unpublished`]. After an error no other file has the new name, except one that could not be renamed back.
pub fn publish(from: &Path, to: &Path, id: FileId, may_replace: bool) -> Result<(), Unpublished> {
    if FileId::at(from).map_err(Unpublished::Io)? != Some(id) {
        return Err(Unpublished::Exchanged);
    }
    let renamed = if may_replace { replace(from, to) } else { rename_new(from, to) };
    match renamed {
        Err(error) if !may_replace && error.kind() == ErrorKind::AlreadyExists => return Err(Unpublished::Exists),
        renamed => renamed.map_err(Unpublished::Io)?,
    }
    if FileId::at(to).map_err(Unpublished::Io)? == Some(id) {
        return Ok(());
    }
    if let Err(error) = rename_new(to, from) {
        tracing::error!("{} is not the file that was written, and could not be renamed back: {error}", to.display());
    }
    Err(Unpublished::Exchanged)
}

/// Makes the entries of the directory of `path` durable.
///
/// # Errors
///
/// The system's.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_folder(folder)
}

/// Gives a temporary file its name. A file that has it is replaced, also while programs have it open, on every system.
///
/// # Errors
///
/// The system's; the temporary file is then removed.
pub fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    let (file, temporary) = file.keep().map_err(|error| error.error)?;
    drop(file);
    replace(&temporary, path).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn only_the_file_that_was_written_gets_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let (partial, image) = (dir.path().join("x.raw.partial"), dir.path().join("x.raw"));
        let written = File::create(&partial).unwrap();
        let id = FileId::of(&written).unwrap();
        fs::write(&image, "older").unwrap();
        assert!(matches!(publish(&partial, &image, id, false), Err(Unpublished::Exists)));
        fs::rename(&partial, dir.path().join("away")).unwrap();
        fs::write(&partial, "foreign").unwrap();
        for replace in [false, true] {
            assert!(matches!(publish(&partial, &image, id, replace), Err(Unpublished::Exchanged)));
        }
        assert_eq!(fs::read(&image).unwrap(), b"older");
        fs::remove_file(&partial).unwrap();
        assert!(matches!(publish(&partial, &image, id, true), Err(Unpublished::Exchanged)));
        fs::rename(dir.path().join("away"), &partial).unwrap();
        publish(&partial, &image, id, true).unwrap();
        assert_eq!((FileId::at(&image).unwrap(), FileId::at(&partial).unwrap()), (Some(id), None));
    }
}
