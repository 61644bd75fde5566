//! A raw image split into files (`disk.001`, `disk.002` …), as one device.

mod name;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::linear::Linear;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Extent, Geometry, Io};
use parking_lot::Mutex;

pub use self::name::PartName;

use crate::open_behind::FileBehind;
use crate::raw::{RawFile, Stamp};
use cheetah_error::{Error, Result, list};

/// The maximum number of parts: 100 TiB in parts that fit a CD. Bounds the memory that a hostile folder can take.
const PARTS_MAX: usize = 200_000;

/// The maximum number of open files, well below the limit of a process.
const OPEN_MAX: usize = 64;

/// The number of missing parts named in an error; the rest are counted.
const NAMED_MAX: usize = 5;

/// A raw image split into files.
pub struct Split {
    whole: Linear,
    parts: usize,
}

impl Split {
    /// Whether the file at `path` is part of a split image, judging by its name and its neighbours.
    pub fn is_part(path: &Path) -> bool {
        let Some(name) = PartName::of(path) else { return false };
        name.is_first()
            || [name.number().checked_sub(1), name.number().checked_add(1)].into_iter().flatten().any(|number| {
                name.with_number(number).is_some_and(|neighbour| path.with_file_name(neighbour).is_file())
            })
    }

    /// Opens the image whose first part is at `path`; the other parts are beside it.
    ///
    /// # Errors
    ///
    /// If `path` is not the first part, a part is missing in the middle, or a part other than the last differs in size
    /// from the first. Missing last parts cannot be detected.
    pub fn open(path: &Path) -> Result<Self> {
        let name = PartName::of(path)
            .ok_or_else(|| Error::misuse(format!("{} is not named like a part of an image", path.display())))?;
        let first = name.firsts().into_iter().map(|first| path.with_file_name(first)).find(|first| first.is_file());
        if !name.is_first() || first.as_deref().is_some_and(|first| first != path) {
            return Err(not_the_first(path, first.as_deref()));
        }
        let pool = Arc::new(Pool { parts: find(path, &name)?, open: Mutex::default() });
        let size = pool.parts[0].stamp.0;
        let (last, others) = pool.parts.split_last().ok_or_else(|| Error::failed("an image without parts"))?;
        if let Some(odd) = others.iter().find(|part| part.stamp.0 != size).or((last.stamp.0 > size).then_some(last)) {
            return Err(Error::Evidence(format!(
                "{} has {} bytes, but the first part has {size}: one of them is cut short, or belongs to another image; \
                 if they do belong together, join them with cat",
                odd.path.display(),
                odd.stamp.0
            )));
        }
        let parts = pool.parts.len();
        let devices = (0..parts).map(|index| Arc::new(Part { pool: pool.clone(), index }) as DynDevice).collect();
        let whole = Linear::new(devices).map_err(Error::device(format!("joining the parts of {}", path.display())))?;
        Ok(Self { whole, parts })
    }

    /// Opens the image whose parts are on another machine, in order.
    ///
    /// # Errors
    ///
    /// If a part other than the last differs in size from the first.
    pub(crate) fn behind(files: Vec<FileBehind>) -> Result<Self> {
        let sizes: Vec<u64> = files.iter().map(|(_, device)| device.geometry().size).collect();
        let odd = (1..files.len()).find(|at| sizes[*at] > sizes[0] || sizes[*at] < sizes[0] && at + 1 < files.len());
        if let Some(odd) = odd {
            let (name, first) = (&files[odd].0, sizes[0]);
            return Err(Error::Evidence(format!(
                "{name} has {} bytes, but the first part has {first}: one of them is cut short, or belongs to another image",
                sizes[odd]
            )));
        }
        let (parts, names) = (files.len(), files.first().map_or_else(String::new, |(name, _)| name.clone()));
        let devices = files.into_iter().map(|(_, device)| device).collect();
        let whole = Linear::new(devices).map_err(Error::device(format!("joining the parts of {names}")))?;
        Ok(Self { whole, parts })
    }

    /// Its size, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.whole.geometry().size
    }

    /// The number of parts.
    pub fn parts(&self) -> usize {
        self.parts
    }
}

fn not_the_first(path: &Path, first: Option<&Path>) -> Error {
    let path = path.display();
    match first {
        Some(first) => {
            Error::misuse(format!("{path} is a later part of a split image; give its first part, {}", first.display()))
        }
        None => Error::Evidence(format!(
            "{path} is a later part of a split image, and the first part is missing; to read this file alone, \
             say raw:{path}"
        )),
    }
}

/// All parts in order, starting with `path`, whose name is `first`.
fn find(path: &Path, first: &PartName) -> Result<Vec<PartFile>> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = folder.read_dir().map_err(|error| Error::io(format_args!("listing {}", folder.display()), &error))?;
    let siblings = entries.filter_map(|entry| PartName::of(&entry.ok()?.path())).filter(|name| name.same_image(first));
    let mut numbers: Vec<u64> = siblings.map(|name| name.number()).take(PARTS_MAX + 1).collect();
    numbers.sort_unstable();
    let alone = |number: u64| numbers.binary_search(&(number - 1)).is_err();
    // The original image may lie beside its parts: disk.dd beside disk.aa, disk.ab.
    let original = first.original().filter(|number| alone(*number));
    numbers.retain(|number| *number >= first.number() && Some(*number) != original);
    if numbers.len() > PARTS_MAX {
        return Err(Error::failed(format!("{}: more than {PARTS_MAX} parts", path.display())));
    }
    complain_of_gaps(path, first, &numbers)?;
    let part = |number| {
        let path = first.with_number(number).map_or_else(|| path.to_path_buf(), |name| path.with_file_name(name));
        let file = RawFile::open(&path)?;
        match file.stamp() {
            Some(stamp) => Ok(PartFile { path, stamp, start: stamp.0.saturating_mul(number - first.number()) }),
            None => Err(Error::misuse(format!("{} is a disk, not a part of an image", path.display()))),
        }
    };
    numbers.into_iter().map(part).collect()
}

fn complain_of_gaps(path: &Path, first: &PartName, numbers: &[u64]) -> Result<()> {
    let mut missing = Vec::new();
    let mut count = 0;
    for pair in numbers.windows(2) {
        let gap = pair[0] + 1..pair[1];
        count += gap.end - gap.start;
        let names = gap.take(NAMED_MAX - missing.len()).filter_map(|number| first.with_number(number));
        missing.extend(names.map(|name| name.to_string_lossy().into_owned()));
    }
    if count == 0 {
        return Ok(());
    }
    let more = count - missing.len() as u64;
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    Err(Error::Evidence(format!(
        "{}: {}{more} missing; put all parts of the image in one folder",
        path.display(),
        list(&missing)
    )))
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
        let file = RawFile::open(&part.path).map_err(|error| DeviceError::Invalid(error.to_string().into()))?;
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

    fn refusal(dir: &tempfile::TempDir, name: &str) -> Error {
        Split::open(&dir.path().join(name)).err().unwrap()
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
            let split = Split::open(&dir.path().join(names[0])).unwrap();
            assert_eq!((split.parts(), split.geometry().size), (3, 2017));
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
        let split = Split::open(&dir.path().join("d.001")).unwrap();
        assert_eq!(split.parts(), 1100);
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
        assert!(refused.to_string().contains("d.003 and d.005 missing"), "{refused}");
        let dir = folder(&[("d.001", 9), ("d.500", 9)]);
        assert!(refusal(&dir, "d.001").to_string().contains("and 493 more"));
        let dir = folder(&[("d.ab", 9), ("d.ac", 9)]);
        assert!(Split::is_part(&dir.path().join("d.ab")));
        assert!(refusal(&dir, "d.ab").to_string().contains("the first part is missing"));
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
        let split = Split::open(&dir.path().join("d.001")).unwrap();
        fs::write(dir.path().join("d.002"), [1; 800]).unwrap();
        assert!(split.read(ByteRange::new(0, 900)).await.is_ok());
        let error = split.read(ByteRange::new(900, 1)).await.unwrap_err();
        assert!(error.to_string().contains("d.002 changed while it was read"), "{error}");
    }

    #[test]
    fn unrelated_files_are_not_parts() {
        let dir = folder(&[("disk.dd", 9), ("disk.img", 9), ("report.2024", 9), (".001", 9), ("plain", 9)]);
        for name in ["disk.dd", "disk.img", "report.2024", ".001", "plain"] {
            assert!(!Split::is_part(&dir.path().join(name)), "{name}");
        }
    }

    #[test]
    fn errors_name_ranges_of_the_image() {
        let dir = folder(&[("d.001", 900), ("d.002", 900)]);
        let name = PartName::of(&dir.path().join("d.001")).unwrap();
        let parts = find(&dir.path().join("d.001"), &name).unwrap();
        let part = Part { pool: Arc::new(Pool { parts, open: Mutex::default() }), index: 1 };
        let error = DeviceError::Unreadable { device: "d.002".into(), range: ByteRange::new(5, 1), why: "".into() };
        assert!(
            matches!(part.in_image(error), DeviceError::Unreadable { range, .. } if range == ByteRange::new(905, 1))
        );
    }
}
