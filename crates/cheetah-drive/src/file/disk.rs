//! Drive files on disk: read within limits, written atomically.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

use super::DriveFile;
use super::codec::{self, FILE_BYTES_MAX};
use cheetah_error::{Error, Result};

impl DriveFile {
    /// Reads and checks the drive file at `path`. The error says whether it is missing, damaged, edited, foreign, or newer
    /// than this program.
    pub fn load(path: &Path) -> Result<Self> {
        let reading = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => {
                Error::failed(format!("{}: there is no such drive file; see `cheetah create`", path.display()))
            }
            _ => Error::io(format_args!("reading the drive file {}", path.display()), &error),
        };
        let file = File::open(path).map_err(reading)?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(reading)?;
        let text =
            String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= FILE_BYTES_MAX).ok_or_else(|| {
                let path = path.display();
                Error::failed(format!("{path}: not a Cheetah drive file; name the file that `cheetah create` wrote"))
            })?;
        codec::decode(&text, path)
    }

    /// Replaces the file at [`DriveFile::path`], atomically: a crash leaves the old one or the new one.
    pub fn save(&self) -> Result<()> {
        self.write(true)
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

/// Writes `bytes` to a temporary file beside `path`, and renames it once it is on stable storage.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8], replace: bool) -> Result<()> {
    let failed = |error: &std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => Error::failed(format!(
            "{} exists already; choose another name, or destroy that drive first",
            path.display()
        )),
        _ => Error::io(format_args!("writing {}", path.display()), error),
    };
    let dir = directory(path);
    let mut file = temporary_in(dir).map_err(|error| failed(&error))?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(|error| failed(&error))?;
    let persisted = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    persisted.map_err(|error| failed(&error.error))?;
    sync_directory(dir).map_err(|error| failed(&error))
}

/// Makes a temporary file whose permissions, once it is renamed, are those that the umask allows.
pub(crate) fn temporary_in(dir: &Path) -> std::io::Result<NamedTempFile> {
    let permissions = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".cheetah-partial-").permissions(permissions).tempfile_in(dir)
}

/// Puts the directory's entries on stable storage.
pub(crate) fn sync_directory(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
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
    use super::*;
    use crate::file::tests::example;

    #[test]
    fn a_file_is_written_atomically_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = example();
        file.path = dir.path().join("case42.drive");
        file.save_new().unwrap();
        let refusal = file.save_new().unwrap_err().to_string();
        assert!(refusal.contains("exists already"), "{refusal}");
        file.name = "renamed".into();
        file.save().unwrap();
        assert_eq!(DriveFile::load(&file.path).unwrap(), file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn unreadable_files_are_refused_in_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("case42.drive");
        let refusal = || DriveFile::load(&path).unwrap_err().to_string();
        assert!(refusal().contains("there is no such drive file"));
        std::fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
        assert!(refusal().contains("not a Cheetah drive file"));
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(refusal().contains("not a Cheetah drive file"));
    }
}
