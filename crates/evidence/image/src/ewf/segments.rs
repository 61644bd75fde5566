//! Access to the bytes of segments.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_kit::file::{FileExt as _, Status};
use parking_lot::Mutex;

use super::defect::{BadSegment, Defect};
use super::naming;
use crate::os::read_cached;
use crate::regular;
use crate::unpack::Blocking;
use cheetah_error::{Error, Result};

/// The maximum number of open segments. A set may have 14,971, more than a process may open.
const OPEN_MAX: usize = 128;

/// The segments of one image, numbered from 0, readable at any offset. Parsers use only this trait, so tests can supply
/// any bytes.
pub(super) trait Segments: Send + Sync {
    /// The number of segments.
    fn count(&self) -> usize;

    /// The name of a segment in a message; one beyond the last is the missing one.
    fn name(&self, segment: usize) -> String;

    /// The size of a segment, in bytes.
    fn len(&self, segment: usize) -> u64;

    /// Fills `buf` from `offset`. False if that would block and may not.
    fn read(&self, segment: usize, offset: u64, buf: &mut [u8], blocking: Blocking) -> IoResult<bool>;

    /// The paths of the segments, if they are files.
    fn paths(&self) -> Vec<PathBuf> {
        (0..self.count()).map(|segment| self.name(segment).into()).collect()
    }
}

/// Segments in files.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    /// The properties that identify unchanged files.
    stamps: Vec<Status>,
    missing: String,
    /// Open segments, the most recently used last.
    open: Mutex<VecDeque<(usize, Arc<File>)>>,
}

fn status_of(file: &File) -> IoResult<Status> {
    if !file.metadata()?.is_file() {
        return Err(IoError::new(ErrorKind::InvalidInput, "it is not a file"));
    }
    Status::of(file)
}

impl Files {
    /// Finds all segments of the set that starts with `first`.
    pub(super) fn find(first: &Path) -> Result<Self> {
        let (paths, missing) = naming::find(first)?;
        let stamps = paths.iter().enumerate().map(|(segment, path)| {
            // Not kept open: most sets have more segments than are in use at once.
            open_segment(path, segment).and_then(|file| status_of(&file)).map_err(|error| match error.kind() {
                ErrorKind::NotFound => Error::misuse(format!("{}: no such image", path.display())).because(error),
                ErrorKind::InvalidInput => {
                    Error::misuse(format!("{} is not a segment of an image: {error}", path.display())).because(error)
                }
                _ => Error::io(format_args!("opening {}", path.display()), &error),
            })
        });
        Ok(Self { stamps: stamps.collect::<Result<_>>()?, paths, missing, open: Mutex::default() })
    }

    fn file(&self, segment: usize) -> IoResult<Arc<File>> {
        let mut open = self.open.lock();
        if let Some(at) = open.iter().rposition(|(of, _)| *of == segment)
            && let Some(found) = open.remove(at)
        {
            let file = found.1.clone();
            open.push_back(found);
            return Ok(file);
        }
        drop(open);
        let file = Arc::new(open_segment(&self.paths[segment], segment)?);
        let mut open = self.open.lock();
        open.push_back((segment, file.clone()));
        while open.len() > OPEN_MAX {
            open.pop_front();
        }
        Ok(file)
    }
}

/// Opens a segment. The user named the first; the others must be regular files themselves.
fn open_segment(path: &Path, segment: usize) -> IoResult<File> {
    if segment == 0 { regular::open_named(path) } else { regular::open_beside(path) }
}

impl Segments for Files {
    fn count(&self) -> usize {
        self.paths.len()
    }

    fn name(&self, segment: usize) -> String {
        self.paths.get(segment).map_or_else(|| self.missing.clone(), |path| path.display().to_string())
    }

    fn len(&self, segment: usize) -> u64 {
        self.stamps[segment].len
    }

    fn read(&self, segment: usize, offset: u64, buf: &mut [u8], blocking: Blocking) -> IoResult<bool> {
        let file = self.file(segment)?;
        let whole = match blocking {
            Blocking::Allowed => file.read_exact_at(buf, offset).map(|()| true),
            Blocking::Refused => read_cached(&file, offset, buf),
        };
        if Status::of(&file)? != self.stamps[segment] {
            return Err(IoError::other(
                "it changed while it was read; stop the program that writes to it, and start again",
            ));
        }
        whole
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.paths.clone()
    }
}

/// Segments in memory.
pub(super) struct Memory(pub(super) Vec<Vec<u8>>);

impl Segments for Memory {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn name(&self, segment: usize) -> String {
        format!("segment {}", segment + 1)
    }

    fn len(&self, segment: usize) -> u64 {
        self.0[segment].len() as u64
    }

    fn read(&self, segment: usize, offset: u64, buf: &mut [u8], _: Blocking) -> IoResult<bool> {
        let start = usize::try_from(offset).ok();
        let found = start.and_then(|start| self.0[segment].get(start..)?.get(..buf.len()));
        buf.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(true)
    }
}

/// The error if the segment `number`, from 0, is not there although the one before it is not the last.
pub(super) fn missing(segments: &dyn Segments, number: usize) -> Error {
    let why = Defect::Missing { name: segments.name(number), before: segments.name(number.saturating_sub(1)) };
    Error::evidence(why.to_string()).because(BadSegment { number: number + 1, why })
}

/// One segment, for parsers.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    pub(super) all: &'a dyn Segments,
    pub(super) number: usize,
}

impl Segment<'_> {
    pub(super) fn len(&self) -> u64 {
        self.all.len(self.number)
    }

    pub(super) fn name(&self) -> String {
        self.all.name(self.number)
    }

    /// Fills `buf` from `offset`, which must lie within the segment; `what` names the content in an error.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8], what: impl std::fmt::Display) -> Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(self.fault(format_args!(
                "{what} would reach from offset {offset} beyond the end of the file at {}",
                self.len()
            )));
        }
        let read = self.all.read(self.number, offset, buf, Blocking::Allowed);
        read.map(drop).map_err(|error| Error::io(format_args!("reading {what} of {}", self.name()), &error))
    }

    /// The error for a damaged segment.
    pub(super) fn fault(&self, what: impl std::fmt::Display) -> Error {
        Error::evidence(format!("{}: {what}; the image is damaged, look for another copy of it", self.name()))
    }

    /// The error for a segment with this defect.
    pub(super) fn defect(&self, why: Defect) -> Error {
        let error = if why.is_damage() { self.fault(&why) } else { self.refusal(&why) };
        error.because(BadSegment { number: self.number + 1, why })
    }

    /// The error for an unsupported segment.
    pub(super) fn refusal(&self, what: impl std::fmt::Display) -> Error {
        Error::misuse(format!("{}: {what}", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_may_have_more_segments_than_files_are_open() {
        let dir = tempfile::tempdir().unwrap();
        let first = dir.path().join("x.E01");
        std::fs::write(&first, 0u32.to_le_bytes()).unwrap();
        for number in 1..3 * OPEN_MAX as u32 {
            let (_, missing) = naming::find(&first).unwrap();
            std::fs::write(missing, number.to_le_bytes()).unwrap();
        }
        let files = Files::find(&first).unwrap();
        assert_eq!(files.count(), 3 * OPEN_MAX);
        for step in [1, 7, OPEN_MAX / 2, OPEN_MAX + 1] {
            for segment in (0..files.count()).step_by(step).chain([0, 0]) {
                let mut number = [0; 4];
                assert!(files.read(segment, 0, &mut number, Blocking::Allowed).unwrap());
                assert_eq!(u32::from_le_bytes(number) as usize, segment);
                assert!(files.open.lock().len() <= OPEN_MAX);
            }
        }
        assert!(files.read(0, 1, &mut [0; 4], Blocking::Allowed).is_err());
    }
}
