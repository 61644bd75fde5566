//! Reads back the content of a partial set before an acquisition is resumed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Geometry, Io, Result as DeviceResult};
use cheetah_kit::file::FileExt as _;
use libdeflater::{Decompressor, adler32};
use parking_lot::Mutex;

use super::checkpoint::Checkpoint;
use super::files::check_only_name;
use super::names::Names;
use super::options::CHUNK_BYTES_MAX;
use super::sections::{COMPRESSED, ENTRIES_MAX, TABLE_HEADER_BYTES};
use super::walk::{self, walk};
use crate::regular;
use cheetah_error::{Error, Result};

/// The evidence before a checkpoint, as a device. Each chunk read is checked with the image's own checksums.
#[derive(Clone)]
pub struct Partial {
    inner: Arc<Inner>,
}

struct Inner {
    size: u64,
    chunk_bytes: u64,
    segments: Vec<Segment>,
    /// Sorted by their place in the evidence.
    tables: Vec<Table>,
    /// The most recently used table.
    recent: Mutex<Option<(usize, Arc<Vec<u32>>)>>,
}

struct Segment {
    file: File,
    path: PathBuf,
}

/// A table, and the place of its chunks.
struct Table {
    /// The index of its first chunk.
    chunk: u64,
    count: usize,
    /// Index in `segments`.
    segment: usize,
    /// The offset that entries are relative to.
    base: u64,
    /// Where the last chunk ends.
    end: u64,
    entries: Entries,
}

enum Entries {
    /// The entries are at this offset of the segment.
    At(u64),
    /// The entries come from the checkpoint, in which the table was open.
    Here(Arc<Vec<u32>>),
}

impl Partial {
    /// Opens the partial set whose first segment will be called `path`.
    pub fn open(path: &Path, checkpoint: &Checkpoint) -> Result<Self> {
        let names = Names::new(path)?;
        if !(1..=CHUNK_BYTES_MAX).contains(&checkpoint.shape.chunk_bytes()) {
            return Err(Error::evidence("the checkpoint is damaged; start again".to_owned()));
        }
        let mut inner = Inner {
            size: checkpoint.offset,
            chunk_bytes: checkpoint.shape.chunk_bytes(),
            segments: Vec::new(),
            tables: Vec::new(),
            recent: Mutex::default(),
        };
        let mut chunk = 0;
        for number in 1..=checkpoint.open.segment {
            let end = (number == checkpoint.open.segment).then_some(checkpoint.open.end);
            chunk = inner.add(&names, number, checkpoint, chunk, end)?;
        }
        let entries = &checkpoint.open.entries;
        if !entries.is_empty() {
            let (base, end) = (checkpoint.open.section, checkpoint.open.end);
            let segment = inner.segments.len() - 1;
            let count = entries.len();
            let entries = Entries::Here(Arc::new(entries.clone()));
            inner.tables.push(Table { chunk, count, segment, base, end, entries });
            chunk += count as u64;
        }
        if chunk != inner.size.div_ceil(inner.chunk_bytes) {
            let path = path.display();
            return Err(Error::evidence(format!(
                "{path}: the partial image does not match the checkpoint; start again"
            )));
        }
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Inner {
    /// Adds the closed tables of segment `number`, whose first chunk is `chunk`; up to `end`, if it is the open
    /// segment. Returns the first chunk of the next table.
    fn add(
        &mut self,
        names: &Names,
        number: u16,
        checkpoint: &Checkpoint,
        mut chunk: u64,
        end: Option<u64>,
    ) -> Result<u64> {
        let segment = Segment::open(names, number)?;
        if walk::guid(&segment.file) != Some(checkpoint.shape.guid) {
            let path = segment.path.display();
            return Err(Error::evidence(format!("{path}: belongs to another image than the one to resume")));
        }
        let mut sectors_end = 0;
        for found in walk(&segment.file).take_while(|found| end.is_none_or(|end| found.next <= end)) {
            match found.kind.as_str() {
                "sectors" => sectors_end = found.next,
                "table" => {
                    let mut header = [0; TABLE_HEADER_BYTES as usize];
                    let read = segment.file.read_exact_at(&mut header, found.content);
                    read.map_err(|error| Error::io(format_args!("reading {}", segment.path.display()), &error))?;
                    let count = le(&header[..4]);
                    if adler32(&header[..20]) as u64 != le(&header[20..]) || count > ENTRIES_MAX as u64 {
                        let path = segment.path.display();
                        return Err(Error::evidence(format!("{path}: a table is damaged; start again")));
                    }
                    let entries = Entries::At(found.content + TABLE_HEADER_BYTES);
                    let (segment, base) = (self.segments.len(), le(&header[8..16]));
                    // At most ENTRIES_MAX.
                    self.tables.push(Table { chunk, count: count as usize, segment, base, end: sectors_end, entries });
                    chunk += count;
                }
                _ => {}
            }
        }
        self.segments.push(segment);
        Ok(chunk)
    }

    fn read(&self, range: ByteRange) -> DeviceResult<Data> {
        let mut data = Data::new();
        let mut decompressor = Decompressor::new();
        for piece in range.split_at_multiples(self.chunk_bytes) {
            let index = piece.offset / self.chunk_bytes;
            let chunk = self.chunk(index, &mut decompressor)?;
            data.append(Data::from(chunk).slice(piece.offset % self.chunk_bytes, piece.len));
        }
        Ok(data)
    }

    /// Reads the content of chunk `index`.
    fn chunk(&self, index: u64, decompressor: &mut Decompressor) -> DeviceResult<Vec<u8>> {
        let range = ByteRange::new(index * self.chunk_bytes, self.chunk_bytes);
        let len = (self.size - range.offset).min(self.chunk_bytes);
        let (segment, at, packed_len, compressed) = self.locate(index)?;
        let corrupt = || DeviceError::Corrupt { device: segment.path.display().to_string().into(), range };
        // Compressed or stored, a chunk takes no more room than this.
        if packed_len > self.chunk_bytes + 4 {
            return Err(corrupt());
        }
        // Not truncated: both are at most a chunk and four bytes.
        let mut packed = vec![0; packed_len as usize];
        segment.read(&mut packed, at)?;
        if compressed {
            let mut bytes = vec![0; len as usize];
            let unpacked = decompressor.zlib_decompress(&packed, &mut bytes).map_err(|_| corrupt())?;
            return if unpacked == bytes.len() { Ok(bytes) } else { Err(corrupt()) };
        }
        let sum = packed.split_off(packed.len().saturating_sub(4));
        let right = packed.len() as u64 == len && adler32(&packed).to_le_bytes()[..] == sum;
        if right { Ok(packed) } else { Err(corrupt()) }
    }

    /// Returns segment, offset, length and kind of chunk `index`.
    fn locate(&self, index: u64) -> DeviceResult<(&Segment, u64, u64, bool)> {
        let number = self.tables.partition_point(|table| table.chunk <= index).saturating_sub(1);
        let outside = || DeviceError::Invalid("a chunk that is in no table of the partial image".into());
        let table = self.tables.get(number).ok_or_else(outside)?;
        let entries = self.entries(number, table)?;
        // Less than the number of entries, or there is no such entry.
        let within = (index - table.chunk) as usize;
        let entry = *entries.get(within).ok_or_else(outside)?;
        let place = |entry: u32| table.base.saturating_add(u64::from(entry & !COMPRESSED));
        let end = entries.get(within + 1).map_or(table.end, |next| place(*next));
        let (start, compressed) = (place(entry), entry & COMPRESSED != 0);
        Ok((&self.segments[table.segment], start, end.saturating_sub(start), compressed))
    }

    fn entries(&self, number: usize, table: &Table) -> DeviceResult<Arc<Vec<u32>>> {
        let at = match &table.entries {
            Entries::Here(entries) => return Ok(entries.clone()),
            Entries::At(at) => *at,
        };
        if let Some((_, entries)) = self.recent.lock().as_ref().filter(|(recent, _)| *recent == number) {
            return Ok(entries.clone());
        }
        let segment = &self.segments[table.segment];
        let mut bytes = vec![0; 4 * table.count + 4];
        segment.read(&mut bytes, at)?;
        let (entries, sum) = bytes.split_at(4 * table.count);
        if adler32(entries).to_le_bytes() != *sum {
            let range = ByteRange::new(table.chunk * self.chunk_bytes, table.count as u64 * self.chunk_bytes);
            return Err(DeviceError::Corrupt { device: segment.path.display().to_string().into(), range });
        }
        // Four bytes each.
        let entries: Arc<Vec<u32>> = Arc::new(entries.chunks_exact(4).map(|entry| le(entry) as u32).collect());
        *self.recent.lock() = Some((number, entries.clone()));
        Ok(entries)
    }
}

impl Segment {
    /// Opens it under its partial name, or under its final one if finishing was interrupted.
    fn open(names: &Names, number: u16) -> Result<Self> {
        let (partial, whole) = (names.partial(number)?, names.whole(number)?);
        let open = |path: PathBuf| -> std::io::Result<Self> {
            let file = regular::open_beside(&path)?;
            Ok(Self { file, path })
        };
        // A name that anything has is not passed over.
        let path = if partial.symlink_metadata().is_ok() { partial } else { whole };
        let shown = path.display().to_string();
        let segment = open(path).map_err(|error| Error::io(format_args!("reading back {shown}"), &error))?;
        check_only_name(&segment.file, &segment.path)?;
        Ok(segment)
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> DeviceResult<()> {
        let read = self.file.read_exact_at(bytes, at);
        read.map_err(|error| DeviceError::io(self.path.display().to_string(), &error))
    }
}

/// Reads up to eight bytes as a little-endian number.
fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl Device for Partial {
    fn geometry(&self) -> Geometry {
        // A power of two, and not above 16 MiB.
        let block_preferred = u32::try_from(self.inner.chunk_bytes).unwrap_or(1 << 15).max(1 << 20);
        Geometry { size: self.inner.size, writable: false, block_preferred }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match self.check(range) {
            Err(error) => return Io::fail(error),
            Ok(()) if range.is_empty() => return Io::ok(Data::new()),
            Ok(()) => {}
        }
        let inner = self.inner.clone();
        Io::later(async move {
            let read = cheetah_device::supervise::spawn_blocking(move || inner.read(range)).await;
            read.unwrap_or_else(|error| Err(DeviceError::Invalid(format!("reading back: {error}").into())))
        })
    }
}
