//! Neither system has a switch that refuses writes to a disk from now on.

use std::fs::File;
use std::path::Path;

use cheetah_device::path_text::path_to_text;
use cheetah_image::disk::known_of;
use cheetah_kit::storage::mounts;

use super::super::Protection;
use super::super::in_use::of_disk;
use super::SYSTEM;
use super::users::{device_name, users};

pub(crate) fn protect(device: &Path, _wanted: bool) -> (Protection, Option<File>) {
    let not = |why: String| (Protection::Not(why), None);
    if !is_device(device) {
        return not("it is a file, not a disk".to_owned());
    }
    if let Some(user) = users_of(device).and_then(|users| users.into_iter().next()) {
        return not(format!("it is in use: {user}"));
    }
    let known = File::open(device).and_then(|disk| known_of(&disk));
    match known.ok().and_then(|(_, disk)| disk.write_protected) {
        Some(true) => (Protection::Found, None),
        _ => not(format!("{SYSTEM} has no switch for that; use a write blocker")),
    }
}

pub(crate) fn remarks(device: &Path) -> Vec<String> {
    match is_device(device) {
        true => of_disk(&path_to_text(device), users_of(device)).iter().map(ToString::to_string).collect(),
        false => Vec::new(),
    }
}

/// What uses a device; `None` if nothing was found, which does not say that nothing does.
fn users_of(device: &Path) -> Option<Vec<String>> {
    let found = users(&device_name(device)?, &mounts().ok()?);
    (!found.is_empty()).then_some(found)
}

fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_not_protected_and_nothing_is_said_of_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(protect(file.path(), true), (Protection::Not(_), None)));
        assert!(remarks(file.path()).is_empty());
    }
}
