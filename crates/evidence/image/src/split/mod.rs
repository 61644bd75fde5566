//! A raw image split into files (`disk.001`, `disk.002` …), as one device.

mod name;
mod set;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::linear::Linear;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Extent, Geometry, Io};
use parking_lot::Mutex;

pub use self::name::{Notation, PartName};
pub use self::set::{Found, look};

use crate::raw::{RawFile, Stamp};
use crate::source::SourceFile;
use cheetah_error::{Error, Result};

/// The maximum number of open files, well below the limit of a process.
const OPEN_MAX: usize = 64;

/// A raw image split into files.
pub struct Split {
    whole: Linear,
    files: Vec<SourceFile>,
}

impl Split {
    /// Opens the image in these files, in this order, as [`look`] found them.
    ///
    /// # Errors
    ///
    /// If a part is not a regular file, or one other than the last differs in size from the first. Missing last parts cannot
    /// be detected.
    pub fn open(paths: Vec<PathBuf>) -> Result<Self> {
        let pool = Arc::new(Pool { parts: open_all(paths)?, open: Mutex::default() });
        let part = |(index, part): (usize, &PartFile)| {
            let file = SourceFile { path: part.path.clone(), size: part.stamp.0 };
            (file, Arc::new(Part { pool: pool.clone(), index }) as DynDevice)
        };
        Self::of(pool.parts.iter().enumerate().map(part).collect())
    }

    /// Opens the image in these parts, in this order: the files, and the devices that they are read through.
    ///
    /// # Errors
    ///
    /// If a part other than the last differs in size from the first.
    pub(crate) fn of(parts: Vec<(SourceFile, DynDevice)>) -> Result<Self> {
        let (files, devices): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let (first, last) = files.first().zip(files.last()).ok_or_else(|| Error::failed("an image without parts"))?;
        let others = &files[..files.len() - 1];
        let is_odd = |part: &&SourceFile| part.size != first.size;
        if let Some(odd) = others.iter().find(is_odd).or((last.size > first.size).then_some(last)) {
            return Err(Error::evidence(format!(
                "{} has {} bytes, but the first part has {}: one of them is cut short, or belongs to another image; \
                 if they do belong together, join them with cat",
                odd.path.display(),
                odd.size,
                first.size
            )));
        }
        let joining = format!("joining the parts of {}", first.path.display());
        let whole = Linear::new(devices).map_err(Error::device(joining))?;
        Ok(Self { whole, files })
    }

    /// The parts, in order.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }
}

/// Opens each part once, to learn its size. The user named the first; the others must be regular files themselves.
fn open_all(paths: Vec<PathBuf>) -> Result<Vec<PartFile>> {
    let mut start = 0u64;
    let mut parts = Vec::with_capacity(paths.len());
    for (index, path) in paths.into_iter().enumerate() {
        let file = open_part(&path, index)?;
        let stamp = file
            .stamp()
            .ok_or_else(|| Error::misuse(format!("{} is a disk, not a part of an image", path.display())))?;
        parts.push(PartFile { path, stamp, start });
        start = start.saturating_add(stamp.0);
    }
    Ok(parts)
}

fn open_part(path: &Path, index: usize) -> Result<RawFile> {
    if index == 0 { RawFile::open(path) } else { RawFile::open_beside(path) }
}

/// A part: its file need not be open.
struct PartFile {
    path: PathBuf,
    /// Its size when the image was opened.
    stamp: Stamp,
    /// Its offset in the image.
    start: u64,
}

/// The parts, and the open files of the most recently read ones.
struct Pool {
    parts: Vec<PartFile>,
    /// By the part's index, the most recently used last.
    open: Mutex<VecDeque<(usize, RawFile)>>,
}

impl Pool {
    fn file(&self, index: usize) -> cheetah_device::Result<RawFile> {
        let mut open = self.open.lock();
        if let Some(found) = open.iter().position(|(part, _)| *part == index).and_then(|at| open.remove(at)) {
            let file = found.1.clone();
            open.push_back(found);
            return Ok(file);
        }
        let part = &self.parts[index];
        let file = open_part(&part.path, index).map_err(|error| DeviceError::Invalid(error.to_string().into()))?;
        if file.stamp() != Some(part.stamp) {
            let why = format!("{} changed while it was read; start again", part.path.display());
            return Err(DeviceError::Invalid(why.into()));
        }
        if open.len() >= OPEN_MAX {
            open.pop_front();
        }
        open.push_back((index, file.clone()));
        Ok(file)
    }
}

/// One part as a device. Errors name offsets in the image, not in the part.
struct Part {
    pool: Arc<Pool>,
    index: usize,
}

impl Part {
    fn in_image(&self, error: DeviceError) -> DeviceError {
        let start = self.pool.parts[self.index].start;
        match error {
            DeviceError::Unreadable { device, range, why } => {
                DeviceError::Unreadable { device, range: range.shifted(start), why }
            }
            other => other,
        }
    }
}

impl Device for Part {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.pool.parts[self.index].stamp.0, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            let file = self.pool.file(self.index)?;
            file.read(range).await.map_err(|error| self.in_image(error))
        })
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        Io::later(async move { self.pool.file(self.index)?.extents(range).await })
    }
}

impl Device for Split {
    fn geometry(&self) -> Geometry {
        self.whole.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.whole.read(range)
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        self.whole.extents(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(parts: &[(&str, usize)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let mut at = 0;
        for (name, len) in parts {
            // Each byte encodes its offset in the image.
            let content: Vec<u8> = (at..at + len).map(|at| (at as u8).wrapping_mul(7)).collect();
            at += len;
            fs::write(dir.path().join(name), content).unwrap();
        }
        dir
    }

    fn open(dir: &tempfile::TempDir, name: &str) -> Result<Split> {
        match look(&dir.path().join(name))? {
            Found::Parts(paths) => Split::open(paths),
            Found::Alone(_) => panic!("{name} is alone"),
        }
    }

    fn refusal(dir: &tempfile::TempDir, name: &str) -> Error {
        open(dir, name).err().unwrap()
    }

    #[tokio::test]
    async fn parts_are_joined_in_order() {
        for names in [
            ["d.001", "d.002", "d.003"],
            ["d.000", "d.001", "d.002"],
            ["d.aa", "d.ab", "d.ac"],
            ["d.0001", "d.0002", "d.0003"],
        ] {
            let parts: Vec<_> = names.iter().zip([1000, 1000, 17]).map(|(name, len)| (*name, len)).collect();
            let dir = folder(&parts);
            fs::write(dir.path().join("d.dd"), [0; 5000]).unwrap();
            fs::write(dir.path().join("e.004"), [0; 5000]).unwrap();
            let whole: Vec<u8> = names.iter().flat_map(|name| fs::read(dir.path().join(name)).unwrap()).collect();
            let split = open(&dir, names[0]).unwrap();
            assert_eq!((split.files().len(), split.geometry().size), (3, 2017));
            assert!(split.read(ByteRange::new(0, 2017)).await.unwrap() == whole[..]);
            assert!(split.read(ByteRange::new(990, 1020)).await.unwrap() == whole[990..2010]);
            assert!(split.read(ByteRange::new(2000, 18)).await.is_err());
        }
    }

    #[tokio::test]
    async fn more_parts_than_open_files_are_read() {
        let names: Vec<_> = (1..=1100).map(|number| format!("d.{number:03}")).collect();
        let parts: Vec<_> = names.iter().map(|name| (name.as_str(), 3)).collect();
        let dir = folder(&parts);
        let split = open(&dir, "d.001").unwrap();
        assert_eq!(split.files().len(), 1100);
        for _ in 0..2 {
            let data = split.read(ByteRange::new(0, 3300)).await.unwrap().into_bytes();
            assert!(data.iter().enumerate().all(|(at, byte)| *byte == (at as u8).wrapping_mul(7)));
        }
    }

    #[test]
    fn a_missing_part_is_named() {
        let dir = folder(&[("d.001", 9), ("d.002", 9), ("d.004", 9), ("d.006", 2)]);
        let refused = refusal(&dir, "d.001");
        assert_eq!(refused.exit_code(), 3);
        assert!(refused.to_string().contains("d.003") && refused.to_string().contains("d.005"), "{refused}");
        let dir = folder(&[("d.001", 9), ("d.500", 9)]);
        assert!(refusal(&dir, "d.001").is_evidence());
        let dir = folder(&[("d.ab", 9), ("d.ac", 9)]);
        assert!(refusal(&dir, "d.ab").is_evidence());
    }

    #[test]
    fn a_part_of_another_size_is_refused() {
        for sizes in [[9, 8, 9], [8, 9, 9], [9, 9, 10]] {
            let dir = folder(&[("d.001", sizes[0]), ("d.002", sizes[1]), ("d.003", sizes[2])]);
            let refused = refusal(&dir, "d.001");
            assert_eq!(refused.exit_code(), 3, "{refused}");
        }
        let dir = folder(&[("d.001", 9), ("d.002", 0)]);
        assert!(refusal(&dir, "d.001").to_string().contains("d.002"));
    }

    #[test]
    fn a_later_part_leads_to_the_first() {
        let dir = folder(&[("d.001", 9), ("d.002", 9), ("d.003", 1)]);
        let refused = refusal(&dir, "d.002");
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains("d.001"), "{refused}");
        let dir = folder(&[("d.000", 9), ("d.001", 9)]);
        assert!(refusal(&dir, "d.001").to_string().contains("d.000"));
    }

    #[tokio::test]
    async fn a_part_that_changes_is_refused() {
        let dir = folder(&[("d.001", 900), ("d.002", 900)]);
        let split = open(&dir, "d.001").unwrap();
        fs::write(dir.path().join("d.002"), [1; 800]).unwrap();
        assert!(split.read(ByteRange::new(0, 900)).await.is_ok());
        let error = split.read(ByteRange::new(900, 1)).await.unwrap_err();
        assert!(error.to_string().contains("d.002"), "{error}");
    }

    #[test]
    fn a_part_that_is_not_a_regular_file_is_refused_by_name() {
        for first in ["d.001", "d.aa"] {
            let dir = folder(&[(first, 9), ("secret", 9)]);
            let second = dir.path().join(if first == "d.001" { "d.002" } else { "d.ab" });
            std::os::unix::fs::symlink(dir.path().join("secret"), &second).unwrap();
            let refused = refusal(&dir, first).to_string();
            let path = second.to_str().unwrap();
            assert!(refused.contains(path), "{refused}");
            fs::remove_file(&second).unwrap();
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, &second, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            let refused = refusal(&dir, first).to_string();
            assert!(refused.contains(path), "{refused}");
        }
    }

    #[test]
    fn errors_name_ranges_of_the_image() {
        let dir = folder(&[("d.001", 900), ("d.002", 900)]);
        let parts = open_all(vec![dir.path().join("d.001"), dir.path().join("d.002")]).unwrap();
        let part = Part { pool: Arc::new(Pool { parts, open: Mutex::default() }), index: 1 };
        let error = DeviceError::Unreadable { device: "d.002".into(), range: ByteRange::new(5, 1), why: "".into() };
        assert!(
            matches!(part.in_image(error), DeviceError::Unreadable { range, .. } if range == ByteRange::new(905, 1))
        );
    }
}
