//! Recognises drive files.

use std::io::Read;
use std::path::{Path, PathBuf};

use cheetah_image::regular;

/// The first bytes of every drive file.
const DRIVE_FILE_BEGINS: &[u8] = b"# A Cheetah drive";

/// Whether the file at `path` is a drive file, by its name or its content.
pub fn is_drive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "drive") || begins_like_a_drive(path)
}

/// Returns the path of the drive file that `text` names, if it names one.
pub(crate) fn drive_file(text: &str) -> Option<PathBuf> {
    let (path, _) = cheetah_image::spec::path_of(text).filter(|(_, is_raw)| !is_raw)?;
    is_drive(&path).then_some(path)
}

fn begins_like_a_drive(path: &Path) -> bool {
    let mut start = [0; DRIVE_FILE_BEGINS.len()];
    let read = regular::open_file(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == DRIVE_FILE_BEGINS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_file_is_recognised_by_name_or_content() {
        let dir = tempfile::tempdir().expect("a folder");
        let (renamed, image) = (dir.path().join("case42"), dir.path().join("case42.raw"));
        std::fs::write(&renamed, b"# A Cheetah drive: keep it\n").expect("written");
        std::fs::write(&image, b"# A Cheetah").expect("written");
        assert!(is_drive(Path::new("no/such/case42.drive")));
        assert!(is_drive(&renamed));
        assert!(!is_drive(&image));
        assert_eq!(drive_file("nbd://host/case42.drive"), None);
    }
}
