//! Windows has no switch that refuses writes to a disk from now on, without a change on the disk itself.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use cheetah_device::path_text::path_to_text;
use cheetah_error::{Error, Result};
use cheetah_kit::process::is_privileged;
use cheetah_windows::disks::{disks, facts};
use cheetah_windows::name::Name;
use cheetah_windows::volumes;

use super::super::Protection;

pub(crate) fn protect(device: &Path, _wanted: bool) -> (Protection, Option<File>) {
    let not = |why: String| (Protection::Not(why), None);
    let Some(name) = Name::of(&path_to_text(device)) else { return not("it is a file, not a disk".to_owned()) };
    let protected = File::open(device).ok().and_then(|device| facts(&device).write_protected);
    if protected == Some(true) {
        return (Protection::Found, None);
    }
    match user(&name) {
        Some(user) => not(format!("it is in use: {user}")),
        None => not("Windows has no switch for that; use a write blocker".to_owned()),
    }
}

pub(crate) fn check_rights(device: &Path) -> Result<()> {
    let text = path_to_text(device);
    let is_refused = || File::open(device).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if Name::of(&text).is_none() || is_privileged() || !is_refused() {
        return Ok(());
    }
    Err(Error::failed(format!(
        "reading {text} takes an administrator's rights: start the console with \"Run as administrator\", and run this again"
    )))
}

/// What uses a disk or a volume, if anything does.
fn user(name: &Name) -> Option<String> {
    let mounted = volumes().unwrap_or_default();
    match name {
        Name::Disk(number) => disks().iter().find(|disk| disk.number == *number)?.users(&mounted).into_iter().next(),
        Name::Letter(letter) => Some(format!("it is mounted on {letter}:\\")),
        Name::Volume => Some("it is a volume of this system".to_owned()),
        Name::ShadowCopy(_) | Name::Other(_) => None,
    }
}
