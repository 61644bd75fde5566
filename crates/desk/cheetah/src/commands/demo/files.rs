//! Chooses some of the machine's own files, the same ones each time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Context, Result};

/// The largest file that is copied, so that there are many.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// The most files from each root, so that copying takes seconds.
const FILES_MAX: usize = 1500;

/// The number of copied files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copied {
    /// Regular files.
    pub files: usize,
    /// Their total size in bytes.
    pub bytes: u64,
}

/// Returns the first regular files below `root`, by name, that fit in `budget_bytes`.
///
/// Skips unreadable files, links and special files.
fn select(root: &Path, budget_bytes: u64) -> Vec<(PathBuf, u64)> {
    let mut chosen = Vec::new();
    let mut left = budget_bytes;
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let mut entries: Vec<_> = fs::read_dir(&directory).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut below = Vec::new();
        for entry in entries {
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            if meta.is_dir() {
                below.push(entry.path());
            } else if meta.is_file() && (1..=FILE_BYTES_MAX.min(left)).contains(&meta.len()) && plain(&entry) {
                left -= meta.len();
                chosen.push((entry.path(), meta.len()));
            }
            if chosen.len() == FILES_MAX {
                return chosen;
            }
        }
        directories.extend(below.into_iter().rev());
    }
    chosen
}

/// Returns whether every file system can store the name.
fn plain(entry: &fs::DirEntry) -> bool {
    entry
        .file_name()
        .to_str()
        .is_some_and(|name| name.bytes().all(|b| b.is_ascii_graphic() && !b"\\:*?\"<>|".contains(&b)))
}

/// Copies up to `budget_bytes` of the files below `roots`, in order, into `to`, until `stop` is set.
pub fn copy_some(roots: &[&str], to: &Path, budget_bytes: u64, stop: &AtomicBool) -> Result<Copied> {
    let mut copied = Copied::default();
    for root in roots {
        for (path, bytes) in select(Path::new(root), budget_bytes.saturating_sub(copied.bytes)) {
            if stop.load(Ordering::Relaxed) {
                return Ok(copied);
            }
            let target = to.join(path.strip_prefix("/").unwrap_or(&path));
            let parent = target.parent().unwrap_or(to);
            fs::create_dir_all(parent).context(format_args!("cannot create {}", parent.display()))?;
            // Skips files that this user cannot read.
            if fs::copy(&path, &target).is_ok() {
                copied.files += 1;
                copied.bytes += bytes;
            }
        }
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_selected_in_order_within_the_budget() {
        let dir = tempfile::tempdir().unwrap();
        for (name, len) in [("b", 10), ("a", 10), ("c", 10), ("empty", 0), ("od:d", 1)] {
            fs::write(dir.path().join(name), vec![1; len]).unwrap();
        }
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/d"), [1; 5]).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let chosen = select(dir.path(), 25);
        let names: Vec<_> = chosen.iter().map(|(p, _)| p.strip_prefix(dir.path()).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a", "b", "below/d"]);
    }
}
