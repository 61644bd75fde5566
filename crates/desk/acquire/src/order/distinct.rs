//! Checks that several destinations are different files, under any names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cheetah_drive::DriveFile;
use cheetah_error::{Error, Result};
use cheetah_kit::file::{FileId, Status};

use super::{Destination, Form};

/// Fails if two destinations are the same file or the same drive: by name, or through symbolic links, hard links or
/// relative paths.
pub fn check(destinations: &[Destination]) -> Result<()> {
    let identities: Vec<_> = destinations.iter().map(DestinationIdentity::of).collect();
    for (index, identity) in identities.iter().enumerate() {
        let Some(same) = identities[..index].iter().position(|other| identity.overlaps(other)) else { continue };
        let (first, second) = (&destinations[same], &destinations[index]);
        return Err(Error::misuse(if first.object != second.object {
            let path = first.path.display();
            format!(
                "{first} and {second} would share the files {path}.custody and so on; acquire into one of them only"
            )
        } else if first.path == second.path {
            format!("{first} is named twice as a destination; name each destination once")
        } else {
            format!("{first} and {second} are the same destination; name each destination once")
        }));
    }
    Ok(())
}

/// The properties by which two names of one destination are recognized.
struct DestinationIdentity {
    /// The folder, with symbolic links resolved where it exists, and the name in it.
    name: (PathBuf, Option<OsString>),
    /// The existing file, with symbolic links followed.
    file: Option<FileId>,
    /// Of a drive: its id, the same in every copy of the drive file.
    drive: Option<String>,
}

impl DestinationIdentity {
    fn of(destination: &Destination) -> Self {
        let path = &destination.path;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().or_else(|_| std::path::absolute(folder)).unwrap_or_else(|_| folder.into());
        let drive = (destination.form == Form::Drive).then(|| DriveFile::load(path).ok()).flatten();
        Self {
            name: (folder, path.file_name().map(ToOwned::to_owned)),
            file: Status::at(path).ok().map(|status| status.id),
            drive: drive.map(|drive| drive.id),
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.name == other.name
            || self.file.is_some() && self.file == other.file
            || self.drive.is_some() && self.drive == other.drive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_same_destination_under_two_names_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        symlink(at("folder"), at("alias")).unwrap();
        fs::write(at("there.raw"), "").unwrap();
        fs::hard_link(at("there.raw"), at("hard.raw")).unwrap();
        symlink("there.raw", at("soft.raw")).unwrap();
        let check = |names: &[&str]| {
            let to: Vec<Destination> = names.iter().map(|name| at(name).to_str().unwrap().parse().unwrap()).collect();
            check(&to)
        };
        check(&["a.raw", "a.E01", "folder/a.raw", "there.raw", "missing/a.raw"]).unwrap();
        for same in [
            ["a.raw", "a.raw"],
            ["a.raw", "./a.raw"],
            ["a.raw", "folder/../a.raw"],
            ["folder/a.raw", "alias/a.raw"],
            ["there.raw", "hard.raw"],
            ["there.raw", "soft.raw"],
            ["missing/a.raw", "missing/./a.raw"],
        ] {
            let error = check(&["b.E01", same[0], same[1]]).unwrap_err();
            assert!(error.is_misuse(), "{error}");
        }
    }
}
