//! The coverage map beside a drive file: which parts of the image the drive has.
//!
//! It is a ddrescue mapfile, with the drive's id in a comment: a map left behind by another drive of the same name is
//! not used. Ranges that it calls read have been flushed by the nodes, so a lost or an old map can at worst cause
//! ranges to be read from the source again.

use std::path::{Path, PathBuf};

use cheetah_device::Coverage;
use cheetah_error::{Error, Result};

use super::{DriveFile, MapRef, beside, recorded_name};
use cheetah_image::own_file::OwnFile;

/// Why a map is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BadMap {
    /// It has the id of another drive.
    #[error("the map of another drive")]
    OtherDrive,
    /// It is not text, or too long.
    #[error("not a map file")]
    NotAMap,
    /// It is of an image of another size.
    #[error("a map of {0} bytes")]
    OtherSize(u64),
}

/// The map beside a drive file. A file with another beginning is not Cheetah's.
pub(crate) const MAP: OwnFile = OwnFile { name: "coverage map", begins: |head| head.starts_with(b"# Cheetah drive ") };
/// The maximum size of a map file, in bytes: millions of runs.
const MAP_BYTES_MAX: u64 = 256 << 20;

/// The path of a drive's map.
pub(crate) fn path(file: &DriveFile) -> PathBuf {
    beside(&file.path, "map")
}

/// The ranges of its image that a drive has; `None` unless it is being filled, or was and is incomplete.
pub(crate) fn recorded(file: &DriveFile) -> Result<Option<Coverage>> {
    let Some(image) = &file.image else { return Ok(None) };
    match (&file.fill, &file.map) {
        (Some(_), _) => load(file, image.size).map(Some),
        (None, Some(recorded)) => load_recorded(file, recorded, image.size).map(Some),
        (None, None) => Ok(None),
    }
}

/// Reads the map of a drive whose image has `size` bytes; without a map, everything is unread.
pub(crate) fn load(file: &DriveFile, size: u64) -> Result<Coverage> {
    let path = path(file);
    let Some(text) = read(&path)? else { return Ok(Coverage::new(size)) };
    if !text.lines().any(|line| line == stamp(&file.id)) {
        return Err(Error::evidence(format!(
            "{}: the map of another drive than {}; remove it to read everything from the source again",
            path.display(),
            file.name
        ))
        .because(BadMap::OtherDrive));
    }
    parse(&path, &text, size)
}

/// Reads the map that the drive file refers to, and checks its digest.
pub(crate) fn load_recorded(file: &DriveFile, recorded: &MapRef, size: u64) -> Result<Coverage> {
    let path = file.recorded(&recorded.file);
    let text = read(&path)?.filter(|text| blake3::hash(text.as_bytes()).to_hex().as_str() == recorded.blake3);
    let Some(text) = text else {
        return Err(Error::evidence(format!(
            "{}: not the map of what could be read of {}; put the original back beside the drive file",
            path.display(),
            file.name
        )));
    };
    parse(&path, &text, size)
}

/// Replaces the map of the drive with this id, atomically.
pub(crate) fn save(path: &Path, id: &str, coverage: &Coverage) -> Result<MapRef> {
    let text = format!("{}\n{coverage}", stamp(id));
    MAP.replace(path, text.as_bytes())?;
    Ok(MapRef { file: recorded_name(path), blake3: blake3::hash(text.as_bytes()).to_hex().to_string() })
}

fn stamp(id: &str) -> String {
    format!("# Cheetah drive {id}")
}

fn read(path: &Path) -> Result<Option<String>> {
    // Without a test of the beginning: a damaged map is an evidence problem.
    let map = OwnFile { begins: |_| true, ..MAP };
    let Some(bytes) = map.read(path, MAP_BYTES_MAX)? else { return Ok(None) };
    match String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= MAP_BYTES_MAX) {
        Some(text) => Ok(Some(text)),
        None => Err(Error::evidence(format!("{}: not a map file; remove it to read everything again", path.display()))
            .because(BadMap::NotAMap)),
    }
}

fn parse(path: &Path, text: &str, size: u64) -> Result<Coverage> {
    let refuse = |why: String| {
        Error::evidence(format!("{}: {why}; remove it to read everything from the source again", path.display()))
    };
    let coverage: Coverage = text.parse().map_err(|error| refuse(format!("{error}")))?;
    if coverage.size() != size {
        let why = format!("a map of {} bytes, and the image has {size}", coverage.size());
        return Err(refuse(why).because(BadMap::OtherSize(coverage.size())));
    }
    Ok(coverage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::digests::Digests;
    use crate::file::tests::example;
    use cheetah_device::ByteRange;
    use cheetah_device::coverage::State;
    use cheetah_image::own_file::NotOurs;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_map_of_another_drive_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = DriveFile { path: dir.path().join("case42.drive"), ..example() };
        let mut coverage = Coverage::new(1 << 20);
        assert_eq!(load(&file, 1 << 20).unwrap(), coverage, "nothing is known yet");
        coverage.set(ByteRange::new(65536, 65536), State::Read);
        coverage.set(ByteRange::new(512, 512), State::Unreadable);
        let recorded = save(&path(&file), &file.id, &coverage).unwrap();
        assert_eq!(load(&file, 1 << 20).unwrap(), coverage);
        assert_eq!(load_recorded(&file, &recorded, 1 << 20).unwrap(), coverage);

        assert_eq!(load(&file, 2 << 20).unwrap_err().cause(), Some(&BadMap::OtherSize(1 << 20)));
        let other = DriveFile { id: "f".repeat(32), ..file.clone() };
        assert_eq!(load(&other, 1 << 20).unwrap_err().cause(), Some(&BadMap::OtherDrive));
        let edited = std::fs::read_to_string(path(&file)).unwrap().replace("-\n", "+\n");
        std::fs::write(path(&file), edited).unwrap();
        assert_eq!(load_recorded(&file, &recorded, 1 << 20).unwrap_err().exit_code(), 3);
        std::fs::write(path(&file), [0xff, 0xfe]).unwrap();
        assert_eq!(load(&file, 1 << 20).unwrap_err().cause(), Some(&BadMap::NotAMap));
        assert_eq!(save(&path(&file), &file.id, &coverage).unwrap_err().exit_code(), 2, "it is somebody else's");
    }

    #[test]
    fn the_files_beside_a_drive_file_are_never_reached_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = DriveFile { path: dir.path().join("case42.drive"), ..example() };
        let coverage = Coverage::new(1 << 20);
        let digests = Digests::new(1 << 20).unwrap();
        let recorded = save(&path(&file), &file.id, &coverage).unwrap();
        file.image.as_mut().unwrap().digests = Some(digests.save(&file.path).unwrap());
        let digests_ref = file.image.as_ref().unwrap().digests.clone().unwrap();
        for beside in [path(&file), file.digests_path()] {
            let elsewhere = dir.path().join("elsewhere").with_extension(beside.extension().unwrap());
            std::fs::rename(&beside, &elsewhere).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &beside).unwrap();
        }
        let before = std::fs::read(dir.path().join("elsewhere.digests")).unwrap();
        for refused in [
            load(&file, 1 << 20).map(drop),
            load_recorded(&file, &recorded, 1 << 20).map(drop),
            save(&path(&file), &file.id, &coverage).map(drop),
            Digests::load(&file, &digests_ref, 1 << 20).map(drop),
            digests.save(&file.path).map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.cause(), Some(&NotOurs::Link), "{error}");
        }
        assert_eq!(std::fs::read(dir.path().join("elsewhere.digests")).unwrap(), before);
        assert!(path(&file).is_symlink() && file.digests_path().is_symlink());
    }

    #[test]
    fn files_beside_a_drive_file_whose_name_is_not_utf8_are_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let coverage = Coverage::new(1 << 20);
        let drives = [&b"caf\xe9.drive"[..], b"caf\xea.drive"].map(|name| {
            let mut file = DriveFile { path: dir.path().join(OsStr::from_bytes(name)), ..example() };
            let digests = Digests::new(1 << 20).unwrap().save(&file.path).unwrap();
            assert!(digests.file.starts_with("bytes:caf%E") && digests.file.ends_with(".drive.digests"), "{digests:?}");
            file.image.as_mut().unwrap().digests = Some(digests);
            file.map = Some(save(&path(&file), &file.id, &coverage).unwrap());
            file
        });
        assert_ne!(drives[0].digests_path(), drives[1].digests_path());
        for file in drives {
            let digests = file.image.as_ref().unwrap().digests.clone().unwrap();
            Digests::load(&file, &digests, 1 << 20).unwrap();
            assert_eq!(load_recorded(&file, file.map.as_ref().unwrap(), 1 << 20).unwrap(), coverage);
        }
    }
}
