//! Whether there is room for the files that a command is about to write.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cheetah_device::Size;
use cheetah_error::next::Files;
use cheetah_error::{Error, Result};
use cheetah_kit::file::{Status, free_bytes};

/// What each record beside an image or a drive may take at first: a custody log, a report, a journal, a drive file.
pub const RECORD_BYTES: u64 = 64 << 10;

/// Fails if the file systems of `files` have less room than the bytes that each may take. Changes nothing. Says nothing of
/// file systems that do not tell.
///
/// # Errors
///
/// `Kind::Failed`, with the next step.
pub fn check(files: &[(PathBuf, u64)], next: Files) -> Result<()> {
    let mut wanted: HashMap<u64, (&Path, u64)> = HashMap::new();
    for (path, bytes) in files {
        let Ok(folder) = Status::at(folder_of(path)) else { continue };
        let (_, sum) = wanted.entry(folder.id.volume).or_insert((path, 0));
        *sum = sum.saturating_add(*bytes);
    }
    for (path, bytes) in wanted.into_values() {
        let folder = folder_of(path);
        let Some(free) = free_bytes(folder).filter(|free| *free < bytes) else { continue };
        return Err(Error::failed(format!(
            "{} may take {}, and the file system of {} has {} free",
            path.display(),
            Size(bytes),
            folder.display(),
            Size(free)
        ))
        .next(next));
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_on_one_file_system_share_its_room() {
        let dir = tempfile::tempdir().unwrap();
        let free = free_bytes(dir.path()).unwrap();
        let file = |name: &str, bytes| (dir.path().join(name), bytes);
        check(&[file("a", 1), file("b", 1)], Files::MakeSpace).unwrap();
        let most = free / 2 + free / 4;
        check(&[file("a", most)], Files::MakeSpace).unwrap();
        let error = check(&[file("a", most), file("b", most)], Files::MakeSpace).unwrap_err();
        assert!(error.has_next(Files::MakeSpace), "{error}");
    }
}
