//! Saving a drive: to a sparse file, or to another device.

use std::path::Path;
use std::sync::Arc;

use cheetah_device::{ByteRange, DynDevice, Size};
use serde::Serialize;

use crate::copy::sparse_file::SparseFile;
use crate::copy::{CopyProgress, DeviceCopy};
use crate::file::digests::Digests;
use crate::file::disk::{directory, give_name, temporary_in};
use cheetah_error::{Error, Result, next};
use cheetah_image::hash::{HashChoice, Hashes};
use cheetah_image::space;
use cheetah_kit::file::{make_sparse, sync_folder};

/// The maximum number of differing ranges named in an error; verify lists them all.
const RANGES_SHOWN_MAX: usize = 8;

/// What a user can do if there may be too little space: zeros take none.
pub(super) fn instead_of_space() -> next::Files {
    next::Files::MakeSpaceOrSkipZeros
}

/// How to save.
#[derive(Debug, Clone, Default)]
pub struct SaveOptions {
    /// Replace the file if it exists.
    pub force: bool,
    /// Fail before anything is written if the file system may have too little space.
    pub check_space: bool,
    /// The hashes to compute of the saved bytes.
    pub hashes: HashChoice,
    /// Save only this many bytes from the start (the image's size); all if `None`.
    pub size: Option<u64>,
    /// The expected hashes; if one differs, nothing is saved. Only those also in `hashes` are compared.
    pub expected: Hashes,
    /// The expected digests of the image's chunks; if one differs, nothing is saved.
    pub digests: Option<Digests>,
}

/// The result of a save.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// The number of bytes saved.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// Their hashes.
    pub hashes: Hashes,
}

/// Copies `device` to a sparse file, which gets the name `path` only once it is whole and on stable storage.
pub async fn save(
    device: DynDevice,
    path: &Path,
    options: SaveOptions,
    progress: impl FnMut(CopyProgress) + Send,
) -> Result<Saved> {
    let shown = path.display();
    let failed = |error: std::io::Error| Error::io(format_args!("writing {shown}"), &error);
    let exists = || Error::misuse(format!("{shown} exists already")).next(next::Files::Replace);
    if !options.force && path.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let size = options.size.unwrap_or_else(|| device.geometry().size);
    if options.check_space {
        space::check(&[(path.to_owned(), size)], instead_of_space())?;
    }
    let dir = directory(path);
    let partial = temporary_in(dir).map_err(failed)?;
    // Otherwise only the zeros take space.
    let _ = make_sparse(partial.as_file());
    partial.as_file().set_len(size).map_err(failed)?;
    let file = partial.as_file().try_clone().map_err(failed)?;
    let shown_name = shown.to_string();
    let to: DynDevice = Arc::new(SparseFile::new(file, shown_name.as_str(), size));
    let saved = save_to(device, (to, &shown_name), &options, progress).await?;
    give_name(partial, path, options.force).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(),
        _ => failed(error),
    })?;
    sync_folder(dir).map_err(failed)?;
    Ok(saved)
}

/// Copies `device` to the start of `to`, which errors call `name`, flushes it, and compares what was read with the expected
/// digests and hashes.
///
/// # Errors
///
/// `Kind::Evidence` if a digest or a hash differs. What was written must then be discarded.
pub async fn save_to(
    device: DynDevice,
    (to, name): (DynDevice, &str),
    options: &SaveOptions,
    progress: impl FnMut(CopyProgress) + Send,
) -> Result<Saved> {
    let size = options.size.unwrap_or_else(|| device.geometry().size);
    let (from_name, hashes) = ("the drive".into(), options.hashes);
    let copy = DeviceCopy { from: device, from_name, to, to_name: name.into(), size, hashes };
    let hashes = match &options.digests {
        Some(loaded) => {
            let mut read = Digests::new(loaded.size())?;
            let hashes = copy.run(Some(&mut read), progress).await?;
            check_chunks(&loaded.differing(&read))?;
            hashes
        }
        None => copy.run(None, progress).await?,
    };
    check_expected(&hashes, &options.expected)?;
    Ok(Saved { size, hashes })
}

fn check_chunks(differing: &[ByteRange]) -> Result<()> {
    if differing.is_empty() {
        return Ok(());
    }
    let mut named: Vec<_> = differing.iter().take(RANGES_SHOWN_MAX).map(ToString::to_string).collect();
    if differing.len() > RANGES_SHOWN_MAX {
        named.push(format!("and {} more", differing.len() - RANGES_SHOWN_MAX));
    }
    let ranges = named.join(", ");
    let sentence = format!("what was read differs from what was loaded, in {ranges}; nothing was saved");
    Err(Error::evidence(sentence).next(next::Drive::SeeDifferences))
}

fn check_expected(hashes: &Hashes, expected: &Hashes) -> Result<()> {
    let differs = hashes.iter().find(|(kind, digest)| expected.get(*kind).is_some_and(|other| other != *digest));
    differs.map_or(Ok(()), |(kind, digest)| {
        let sentence = format!(
            "the {} of what was read is {digest}, not the {} recorded at load; nothing was saved",
            kind.name(),
            expected.get(kind).unwrap_or_default()
        );
        Err(Error::evidence(sentence).next(next::Drive::SeeDifferences))
    })
}

/// Copies `from` to the start of `to`, and flushes it.
pub async fn copy(
    from: DynDevice,
    to: DynDevice,
    hashes: HashChoice,
    progress: impl FnMut(CopyProgress) + Send,
) -> Result<Saved> {
    let (size, room) = (from.geometry().size, to.geometry().size);
    if size > room {
        return Err(Error::failed(format!("{} do not fit into a device of {}", Size(size), Size(room))));
    }
    let copy = DeviceCopy { from, from_name: "the source".into(), to, to_name: "the target".into(), size, hashes };
    Ok(Saved { size, hashes: copy.run(None, progress).await? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_device::memory::Memory;
    use std::os::unix::fs::MetadataExt as _;

    fn device() -> DynDevice {
        let mut bytes = vec![0; (3 << 20) + 17];
        bytes[2 << 20..].fill(9);
        Arc::new(Memory::new(bytes))
    }

    #[tokio::test]
    async fn a_saved_file_is_complete_sparse_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.raw");
        let saved = save(device(), &path, SaveOptions::default(), |_| {}).await.unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, saved.size);
        assert_eq!(saved.hashes.blake3.as_deref(), Some(blake3::hash(&bytes).to_hex().as_str()));
        assert!(bytes[..2 << 20].iter().all(|byte| *byte == 0) && bytes[2 << 20..].iter().all(|byte| *byte == 9));
        assert!(path.metadata().unwrap().blocks() * 512 < 2 << 20, "the zeros take no space");
        let again = save(device(), &path, SaveOptions::default(), |_| {}).await.unwrap_err();
        assert_eq!(again.exit_code(), 2);
        save(device(), &path, SaveOptions { force: true, ..Default::default() }, |_| {}).await.unwrap();
    }

    #[tokio::test]
    async fn chunks_are_compared_even_without_hashes() {
        let dir = tempfile::tempdir().unwrap();
        // The image ends within a chunk, and the drive is longer.
        let image = 3 << 20 | 5;
        let path = dir.path().join("out.raw");
        let copied = |digests: Digests| {
            let options = SaveOptions { hashes: HashChoice::NONE, digests: Some(digests), ..Default::default() };
            save(device(), &path, options, |_| {})
        };
        let mut digests = Digests::new(image).unwrap();
        for chunk in ByteRange::new(0, image).split_at_multiples(1 << 20) {
            digests.set(chunk.offset, crate::file::digests::digest(&device().read(chunk).await.unwrap()));
        }
        let mut changed = digests.clone();
        changed.set(1 << 20, [1; 32]);
        changed.set(3 << 20, [1; 32]);
        let error = copied(changed).await.unwrap_err();
        assert_eq!(error.exit_code(), 3);
        let text = error.to_string();
        let ranges = [ByteRange::new(1 << 20, 1 << 20), ByteRange::new(3 << 20, 5)];
        assert!(ranges.iter().all(|range| text.contains(&range.to_string())), "{text}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing half-made is left");
        assert_eq!(copied(digests).await.unwrap().size, (3 << 20) + 17);
    }

    #[tokio::test]
    async fn nothing_is_written_where_the_image_has_no_room() {
        let dir = tempfile::tempdir().unwrap();
        let options = SaveOptions { size: Some(u64::MAX >> 2), check_space: true, ..Default::default() };
        let error = save(device(), &dir.path().join("out.raw"), options, |_| {}).await.unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.has_next(instead_of_space()), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_changed_drive_is_not_saved() {
        let dir = tempfile::tempdir().unwrap();
        let expected = Hashes { md5: Some("0".repeat(32)), ..Hashes::default() };
        let options = SaveOptions { expected, ..Default::default() };
        let error = save(device(), &dir.path().join("out.raw"), options, |_| {}).await.unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing half-made is left");
    }
}
