//! Digests of the source's bytes, computed as they arrive, in any order.
//!
//! A drive's digests are BLAKE3 of whole chunks of 1 MiB, but a chunk may arrive in parts, hours and a restart apart.
//! BLAKE3 is a tree: the *chaining value* of each aligned 64 KiB grain can be computed by itself, and merging those of
//! its grains gives a chunk's digest ("BLAKE3", section 2.1, and `blake3::hazmat`). The value recorded when a grain
//! arrived is thus part of the chunk's digest, with which the drive is compared at the end. The check is end to end,
//! from the source's connection to the last read.
//!
//! The file beside the drive file has 32 bytes for each grain, in order. It is sparse; an entry is written before the
//! map records the grain as read. A grain that arrived in smaller pieces, around a bad sector, has no entry (zeros).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use blake3::hazmat::{ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};
use cheetah_device::copy_on_read::GRAIN;
use cheetah_device::{ByteRange, Data};
use cheetah_error::{Error, Result};
use cheetah_image::own_file::OwnFile;
use cheetah_kit::file::{FileExt as _, Status, make_sparse};
use parking_lot::Mutex;

use crate::file::digests::{CHUNK_BYTES, ChunkDigest};
use crate::recognise::Pieces;

/// The file beside the drive file. Its content does not identify it.
pub(super) const GRAINS: OwnFile = OwnFile { name: "file of partial digests", begins: |_| true };
/// Bytes of one entry.
const ENTRY_BYTES: usize = 32;
/// Entries read at once when looking for values: 1 MiB of them.
const SCANNED_AT_ONCE: usize = 32768;
/// The entry of a grain without a value.
const NONE: ChainingValue = [0; ENTRY_BYTES];

/// The chaining values of an image's grains.
pub(super) struct Grains {
    file: File,
    path: PathBuf,
    size: u64,
    /// Values added since the last [`Grains::sync`].
    fresh: Mutex<BTreeMap<u64, ChainingValue>>,
}

impl Grains {
    /// Opens the file at `path`, or creates it, for an image of `size` bytes.
    pub(super) fn open(path: &Path, size: u64) -> Result<Self> {
        let failed = |error| Error::io(format_args!("opening {}", path.display()), &error);
        let options = &mut File::options();
        let file = GRAINS.open_with(path, options.read(true).write(true).create(true).truncate(false))?;
        let file = file.ok_or_else(|| failed(ErrorKind::NotFound.into()))?;
        let status = Status::of(&file).map_err(failed)?;
        let len = size.div_ceil(GRAIN) * ENTRY_BYTES as u64;
        // Its content does not identify it; no file of another length, or with another name, is changed.
        if status.names > 1 || ![0, len].contains(&status.len) {
            return Err(Error::misuse(format!(
                "{} is not the file of partial digests of this drive, and is left alone; move it away, or choose another \
                 name for the drive",
                path.display()
            )));
        }
        // Otherwise it only takes more space.
        let _ = make_sparse(&file);
        file.set_len(len).map_err(failed)?;
        Ok(Self { file, path: path.to_owned(), size, fresh: Mutex::default() })
    }

    /// Adds the values of the whole grains in data from the source.
    pub(super) fn note(&self, range: ByteRange, data: &Data) {
        for grain in range.split_at_multiples(GRAIN).filter(|grain| self.is_whole(*grain)) {
            let content = data.slice(grain.offset - range.offset, grain.len);
            let value = self.value(grain, &content);
            self.fresh.lock().insert(grain.offset / GRAIN, value);
        }
    }

    fn is_whole(&self, grain: ByteRange) -> bool {
        grain.offset.is_multiple_of(GRAIN) && (grain.len == GRAIN || grain.end() == self.size)
    }

    /// The chunk that contains a byte.
    fn chunk(&self, offset: u64) -> ByteRange {
        let start = offset - offset % CHUNK_BYTES;
        ByteRange::between(start, (start + CHUNK_BYTES).min(self.size))
    }

    /// The value of a whole grain with this content.
    pub(super) fn value(&self, grain: ByteRange, content: &Data) -> ChainingValue {
        let chunk = self.chunk(grain.offset);
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(grain.offset - chunk.offset);
        for run in content.runs() {
            hasher.update(run);
        }
        // A chunk with a single grain is the root of its tree.
        if chunk.len == grain.len { *hasher.finalize().as_bytes() } else { hasher.finalize_non_root() }
    }

    /// The recorded value of a whole grain, if it has one and was synced. Blocks.
    pub(super) fn known(&self, grain: ByteRange) -> Result<Option<ChainingValue>> {
        let mut value = [NONE];
        self.read(&mut value, grain.offset)?;
        let [value] = value;
        Ok((value != NONE).then_some(value))
    }

    /// The runs of those of `grains`, pieces of [`GRAIN`], that have values that were synced. Blocks.
    pub(super) fn known_runs(&self, grains: &Pieces) -> Result<Vec<ByteRange>> {
        let mut known: Vec<ByteRange> = Vec::new();
        let mut values = vec![NONE; SCANNED_AT_ONCE];
        for part in grains.runs().flat_map(|run| run.split_at_multiples(SCANNED_AT_ONCE as u64 * GRAIN)) {
            let values = &mut values[..part.len.div_ceil(GRAIN) as usize];
            self.read(values, part.offset)?;
            for (grain, value) in part.split_at_multiples(GRAIN).zip(&*values) {
                if *value != NONE {
                    grain.append_to(&mut known);
                }
            }
        }
        Ok(known)
    }

    /// Passes on the entries of these pieces of [`GRAIN`] that were synced, in order. Blocks.
    pub(super) fn each(&self, grains: &Pieces, mut each: impl FnMut(&[u8])) -> Result<()> {
        let mut values = vec![NONE; SCANNED_AT_ONCE];
        for part in grains.runs().flat_map(|run| run.split_at_multiples(SCANNED_AT_ONCE as u64 * GRAIN)) {
            let values = &mut values[..part.len.div_ceil(GRAIN) as usize];
            self.read(values, part.offset)?;
            each(values.as_flattened());
        }
        Ok(())
    }

    /// Reads the entries of the grains from the one at `offset`.
    fn read(&self, values: &mut [ChainingValue], offset: u64) -> Result<()> {
        self.file
            .read_exact_at(values.as_flattened_mut(), offset / GRAIN * ENTRY_BYTES as u64)
            .map_err(|error| Error::io(format_args!("reading {}", self.path.display()), &error))
    }

    /// Puts the values that were added on stable storage. Blocks.
    pub(super) fn sync(&self) -> Result<()> {
        let fresh = std::mem::take(&mut *self.fresh.lock());
        let written = fresh
            .iter()
            .try_for_each(|(grain, value)| self.file.write_all_at(value, grain * ENTRY_BYTES as u64))
            .and_then(|()| self.file.sync_data());
        written.map_err(|error| {
            let mut newer = self.fresh.lock();
            for (grain, value) in fresh {
                newer.entry(grain).or_insert(value);
            }
            Error::io(format_args!("writing {}", self.path.display()), &error)
        })
    }

    /// The digest of the source's chunk that starts at `offset`, if all of its grains have values that were synced.
    /// Blocks.
    pub(super) fn digest(&self, offset: u64) -> Result<Option<ChunkDigest>> {
        let chunk = self.chunk(offset);
        let mut values = [NONE; (CHUNK_BYTES / GRAIN) as usize];
        // At most 16 grains.
        let values = &mut values[..chunk.len.div_ceil(GRAIN) as usize];
        self.read(values, chunk.offset)?;
        Ok((!values.contains(&NONE)).then(|| merged(values)))
    }
}

/// Merges the values of a chunk's grains into the chunk's digest.
fn merged(values: &[ChainingValue]) -> ChunkDigest {
    match values {
        [only] => *only,
        _ => {
            let (left, right) = halves(values);
            *merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash).as_bytes()
        }
    }
}

fn subtree(values: &[ChainingValue]) -> ChainingValue {
    match values {
        [only] => *only,
        _ => {
            let (left, right) = halves(values);
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// Merges a subtree. Its left half is the largest power of two that leaves something for the right.
fn halves(values: &[ChainingValue]) -> (&[ChainingValue], &[ChainingValue]) {
    values.split_at(values.len().next_power_of_two() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::digests::digest;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn grains_in_any_order_merge_into_chunk_digests(
            size in prop_oneof![1u64..2000, (1u64 << 20) - 3..(1 << 20) + 70_000, 1u64..3 << 20],
            order in any::<u64>(),
        ) {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
            let data = Data::from(bytes);
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("grains");
            let mut pieces: Vec<_> = ByteRange::new(0, size).split_at_multiples(GRAIN * (1 + order % 3)).collect();
            pieces.sort_by_key(|piece| (piece.offset ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for half in pieces.chunks(pieces.len().div_ceil(2)) {
                // Another process writes each half.
                let grains = Grains::open(&path, size).unwrap();
                half.iter().for_each(|piece| grains.note(*piece, &data.slice(piece.offset, piece.len)));
                grains.sync().unwrap();
            }
            let grains = Grains::open(&path, size).unwrap();
            for chunk in ByteRange::new(0, size).split_at_multiples(CHUNK_BYTES) {
                let expected = digest(&data.slice(chunk.offset, chunk.len));
                prop_assert_eq!(grains.digest(chunk.offset).unwrap(), Some(expected));
            }
        }
    }

    #[test]
    fn a_grain_read_in_pieces_leaves_its_chunk_without_a_digest() {
        let dir = tempfile::tempdir().unwrap();
        let grains = Grains::open(&dir.path().join("grains"), 3 * GRAIN).unwrap();
        grains.note(ByteRange::new(0, GRAIN), &Data::zeros(GRAIN));
        grains.note(ByteRange::new(GRAIN, 512), &Data::zeros(512));
        grains.note(ByteRange::new(GRAIN + 512, 2 * GRAIN - 512), &Data::zeros(2 * GRAIN - 512));
        grains.sync().unwrap();
        assert_eq!(grains.digest(0).unwrap(), None);
        grains.note(ByteRange::new(GRAIN, GRAIN), &Data::zeros(GRAIN));
        grains.sync().unwrap();
        assert_eq!(grains.digest(0).unwrap(), Some(digest(&Data::zeros(3 * GRAIN))));
    }
}
