//! SHA-256 of files behind a link, made of the bytes that are read for their content.
//!
//! An E01 image is read from start to end, except for its tables, so nearly every byte of its segments passes once, in order.
//! Pieces that come early are held; the few bytes that the content does not need are read when held pieces wait for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use cheetah_device::{ByteRange, DynDevice, Error as DeviceError};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::digest::common::hazmat::{SerializableState as _, SerializedState};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use crate::hash::{hex, unhex};

/// The maximum size of all pieces held, in bytes: more than are in flight at a time.
const HELD_MAX: u64 = 32 << 20;
/// The largest gap that is read while the content passes, in bytes: chunk tables with their copies.
const GAP_MAX: u64 = 4 << 20;
/// The maximum number of bytes that are read only for the hashes, once the content has passed: this many, or the
/// [`READ_ONLY_FOR_HASHES_SHARE`] of all files if that is more.
const READ_ONLY_FOR_HASHES_MAX: u64 = 256 << 20;
/// A 256th: tables are a 2048th of an image, twice, and a hash that was kept lags behind by up to [`KEPT_EVERY`] a file.
const READ_ONLY_FOR_HASHES_SHARE: u64 = 256;
/// The number of bytes that are then read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// The number of files of which that is done at a time.
const FILES_AT_A_TIME: usize = 8;

/// A hash is kept anew once this many bytes were added to it: more than are read of each file when the image is opened.
const KEPT_EVERY: u64 = 256 << 10;

/// The hash of the first bytes of a file, kept so that another run goes on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedStart {
    /// The index of the file in the image.
    pub file: usize,
    /// Its size in bytes.
    pub size: u64,
    /// The number of bytes hashed.
    pub at: u64,
    /// The state of SHA-256 after them, in hexadecimal.
    pub state: String,
}

/// Why there is no hash of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHashed {
    /// Too much of it was not read.
    #[error("it is behind a link, and {missing_bytes} bytes of it did not pass, too many to read them for a hash")]
    TooMuchMissing {
        /// The number of bytes that were not read.
        missing_bytes: u64,
    },
    /// What was missing cannot be read.
    #[error("reading it for its hash: {0}")]
    Read(#[from] DeviceError),
}

/// The hashes of the files of one image, while they are made.
pub struct HashedFiles {
    /// Shared with the same files as they were opened before.
    shared: Mutex<Arc<Shared>>,
}

struct Shared {
    devices: Mutex<Vec<DynDevice>>,
    files: Vec<Mutex<Progress>>,
    held_bytes: AtomicU64,
    /// Whether pieces are held: not while the image is opened, which reads tables from all over the files.
    holds: AtomicBool,
}

/// One file.
struct Progress {
    sha256: Sha256,
    size: u64,
    /// All bytes before this offset are hashed.
    at: u64,
    /// Those before this offset were, when the hash was last kept.
    kept_at: u64,
    /// Pieces beyond it, by offset.
    held: BTreeMap<u64, Bytes>,
    /// Whether a thread reads the gap before the first of them.
    is_filling: bool,
    /// Whether a gap was too large, so that pieces are no longer held.
    has_gap: bool,
}

impl HashedFiles {
    /// Of files that are read through these devices.
    pub(crate) fn new(devices: Vec<DynDevice>) -> Self {
        let files = devices.iter().map(|device| Mutex::new(Progress::new(device.geometry().size))).collect();
        let shared = Shared {
            devices: Mutex::new(devices),
            files,
            held_bytes: AtomicU64::new(0),
            holds: AtomicBool::new(false),
        };
        Self { shared: Mutex::new(Arc::new(shared)) }
    }

    /// Goes on with the hashes that were made before the files were lost and opened again. Files of other sizes begin anew.
    pub fn go_on_from(&self, before: &Self) {
        let (now, before) = (self.shared.lock().clone(), before.shared.lock().clone());
        let sizes = |shared: &Shared| shared.files.iter().map(|file| file.lock().size).collect::<Vec<_>>();
        if !Arc::ptr_eq(&now, &before) && sizes(&now) == sizes(&before) {
            let devices = now.devices.lock().clone();
            *before.devices.lock() = devices;
            *self.shared.lock() = before;
        }
    }

    /// Goes on with the hashes that an earlier run kept. Those of files with other sizes begin anew.
    pub fn go_on_with<'a>(&self, kept: impl IntoIterator<Item = &'a HashedStart>) {
        let shared = self.shared.lock().clone();
        for start in kept {
            if let Some(mut progress) = shared.files.get(start.file).map(Mutex::lock) {
                shared.counting(&mut progress, |progress| progress.go_on_with(start));
            }
        }
    }

    /// The hashes to keep: of each file of which 256 KiB, or the rest, were hashed since the last call.
    pub fn advanced(&self) -> Vec<HashedStart> {
        let shared = self.shared.lock().clone();
        let files = shared.files.iter().enumerate();
        files.filter_map(|(file, progress)| progress.lock().advanced(file)).collect()
    }

    /// Begins to hold pieces: the image is open, and its content is read from now on.
    pub(crate) fn hold(&self) {
        self.shared.lock().holds.store(true, Ordering::Relaxed);
    }

    /// Takes bytes of a file into its hash. Blocks.
    pub(crate) fn note(&self, file: usize, offset: u64, bytes: &Bytes, runtime: &Handle) {
        let shared = self.shared.lock().clone();
        shared.note(file, offset, bytes, runtime);
    }

    /// The hash of each file, in order, or why there is none. Reads what was not read, unless it is too much.
    pub async fn finish(&self) -> Vec<Result<String, NotHashed>> {
        let shared = self.shared.lock().clone();
        let devices = shared.devices.lock().clone();
        let size: u64 = shared.files.iter().map(|file| file.lock().size).sum();
        let mut budget = READ_ONLY_FOR_HASHES_MAX.max(size / READ_ONLY_FOR_HASHES_SHARE);
        let finishing = devices.iter().zip(&shared.files).map(|(device, file)| {
            let missing_bytes = file.lock().missing_bytes();
            let left = budget.checked_sub(missing_bytes);
            budget = left.unwrap_or(budget);
            async move {
                match left {
                    Some(_) => finish(device, file).await,
                    None => Err(NotHashed::TooMuchMissing { missing_bytes }),
                }
            }
        });
        let finishing: Vec<_> = finishing.collect();
        stream::iter(finishing).buffered(FILES_AT_A_TIME).collect().await
    }
}

impl Shared {
    fn note(&self, file: usize, offset: u64, bytes: &Bytes, runtime: &Handle) {
        let gap = {
            let mut progress = self.files[file].lock();
            self.counting(&mut progress, |progress| progress.take(offset, bytes, self.holds.load(Ordering::Relaxed)));
            if self.held_bytes.load(Ordering::Relaxed) <= HELD_MAX || progress.is_filling {
                return;
            }
            let gap = progress.gap();
            if gap.len > GAP_MAX {
                self.counting(&mut progress, Progress::give_up);
                return;
            }
            progress.is_filling = !gap.is_empty();
            gap
        };
        if gap.is_empty() {
            return;
        }
        let device = self.devices.lock()[file].clone();
        let read = runtime.block_on(async { device.read(gap).await });
        let mut progress = self.files[file].lock();
        progress.is_filling = false;
        self.counting(&mut progress, |progress| match read {
            Ok(data) => progress.take(gap.offset, &data.into_bytes(), false),
            // What is missing is read again in the end.
            Err(_) => progress.give_up(),
        });
    }

    /// Keeps count of the bytes that are held.
    fn counting(&self, progress: &mut Progress, change: impl FnOnce(&mut Progress)) {
        let before = progress.held_bytes();
        change(progress);
        let now = progress.held_bytes();
        self.held_bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Progress {
    fn new(size: u64) -> Self {
        Self {
            sha256: Sha256::new(),
            size,
            at: 0,
            kept_at: 0,
            held: BTreeMap::new(),
            is_filling: false,
            has_gap: false,
        }
    }

    fn held_bytes(&self) -> u64 {
        self.held.values().map(|piece| piece.len() as u64).sum()
    }

    /// The number of bytes that are neither hashed nor held, unless held pieces overlap.
    fn missing_bytes(&self) -> u64 {
        (self.size - self.at).saturating_sub(self.held_bytes())
    }

    /// Hashes bytes at `offset` if they are next; otherwise holds them if that is wanted.
    fn take(&mut self, offset: u64, bytes: &Bytes, hold: bool) {
        let end = offset + bytes.len() as u64;
        if offset > self.at {
            let is_longer = self.held.get(&offset).is_none_or(|held| held.len() < bytes.len());
            if hold && is_longer && !self.has_gap {
                self.held.insert(offset, bytes.clone());
            }
            return;
        }
        self.hash(offset, end, bytes);
        self.take_held();
    }

    /// Hashes the pieces held that are next.
    fn take_held(&mut self) {
        while let Some(first) = self.held.first_entry().filter(|first| *first.key() <= self.at) {
            let (offset, bytes) = first.remove_entry();
            self.hash(offset, offset + bytes.len() as u64, &bytes);
        }
    }

    /// Hashes those of the bytes from `offset` to `end` that are not hashed.
    fn hash(&mut self, offset: u64, end: u64, bytes: &Bytes) {
        let known = usize::try_from(self.at - offset).unwrap_or(usize::MAX);
        if let Some(new) = bytes.get(known..).filter(|new| !new.is_empty()) {
            self.sha256.update(new);
            self.at = end;
        }
    }

    fn go_on_with(&mut self, start: &HashedStart) {
        let state = unhex(&start.state).and_then(|state| SerializedState::<Sha256>::try_from(&state[..]).ok());
        let sha256 = state.and_then(|state| Sha256::deserialize(&state).ok());
        if let Some(sha256) = sha256.filter(|_| start.size == self.size && (self.at..=self.size).contains(&start.at)) {
            (self.sha256, self.at, self.kept_at) = (sha256, start.at, start.at);
            self.take_held();
        }
    }

    fn advanced(&mut self, file: usize) -> Option<HashedStart> {
        let new = self.at - self.kept_at;
        let is_worth_it = new >= KEPT_EVERY || new > 0 && self.at == self.size;
        is_worth_it.then(|| {
            self.kept_at = self.at;
            HashedStart { file, size: self.size, at: self.at, state: hex(&self.sha256.serialize()) }
        })
    }

    /// The range that is missing before the first piece held, or before the end.
    fn gap(&self) -> ByteRange {
        ByteRange::between(self.at, self.held.keys().next().copied().unwrap_or(self.size).min(self.size).max(self.at))
    }

    fn give_up(&mut self) {
        self.has_gap = true;
        self.held.clear();
    }
}

/// Reads what is missing of a file.
async fn finish(device: &DynDevice, file: &Mutex<Progress>) -> Result<String, NotHashed> {
    loop {
        let gap = {
            let progress = file.lock();
            let gap = progress.gap();
            if gap.is_empty() {
                return Ok(hex(&progress.sha256.clone().finalize()));
            }
            ByteRange::new(gap.offset, gap.len.min(PIECE_BYTES))
        };
        let read = device.read(gap).await?;
        file.lock().take(gap.offset, &read.into_bytes(), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_device::memory::Memory;
    use proptest::prelude::*;

    fn files(content: &[u8]) -> Vec<DynDevice> {
        vec![Arc::new(Memory::new(content.to_vec()))]
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    /// Notes ranges of the content.
    fn note(hashed: &HashedFiles, content: &Bytes, ranges: &[(usize, usize)], runtime: &tokio::runtime::Runtime) {
        for &(from, to) in ranges {
            hashed.note(0, from as u64, &content.slice(from..to), runtime.handle());
        }
    }

    fn expected(content: &[u8]) -> Vec<Result<String, NotHashed>> {
        vec![Ok(hex(&Sha256::digest(content)))]
    }

    /// The state of SHA-256 after `ab`, as sha2 0.11 writes it: eight words, the number of blocks, and the bytes that wait for
    /// a whole block, after their number.
    fn state_of_ab() -> String {
        let words = "67e6096a85ae67bb72f36e3c3af54fa57f520e518c68059babd9831f19cde05b";
        format!("{words}{:0<16}{:0<128}", "", "026162")
    }

    proptest! {
        #[test]
        fn the_hash_is_that_of_the_file_whatever_was_read_in_which_order(
            content in proptest::collection::vec(any::<u8>(), 1..200),
            cuts in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..30),
            lost_at in any::<prop::sample::Index>(),
            is_another_run in any::<bool>(),
        ) {
            let (runtime, content) = (runtime(), Bytes::from(content));
            let ranges: Vec<_> = cuts.iter().map(|(one, other)| {
                let (one, other) = (one.index(content.len() + 1), other.index(content.len() + 1));
                (one.min(other), one.max(other))
            }).collect();
            let (before, after) = ranges.split_at(lost_at.index(ranges.len() + 1));
            let (first, second) = (HashedFiles::new(files(&content)), HashedFiles::new(files(&content)));
            first.hold();
            note(&first, &content, before, &runtime);
            if is_another_run {
                let kept = first.advanced();
                prop_assert!(kept.iter().all(|start| start.at == start.size), "a small file is kept as a whole only");
                second.hold();
                second.go_on_with(&kept);
            } else {
                second.go_on_from(&first);
            }
            note(&second, &content, after, &runtime);
            prop_assert_eq!(runtime.block_on(first.finish()), expected(&content));
        }
    }

    #[test]
    fn a_small_gap_is_read_while_pieces_behind_it_are_held_and_memory_is_bounded() {
        let (runtime, content) = (runtime(), Bytes::from(vec![7; 3 * HELD_MAX as usize]));
        let hashed = HashedFiles::new(files(&content));
        hashed.hold();
        let piece = 1 << 20;
        for at in (piece..content.len()).step_by(piece) {
            note(&hashed, &content, &[(at, at + piece)], &runtime);
            let shared = hashed.shared.lock().clone();
            assert!(shared.held_bytes.load(Ordering::Relaxed) <= HELD_MAX + piece as u64);
        }
        assert_eq!(hashed.shared.lock().files[0].lock().at, content.len() as u64, "nothing is left to read");
        assert_eq!(runtime.block_on(hashed.finish()), expected(&content));
    }

    #[test]
    fn another_run_goes_on_with_the_hash_kept_and_reads_nothing_before_it() {
        let (runtime, content) = (runtime(), Bytes::from(vec![7; 3 << 20]));
        let first = HashedFiles::new(files(&content));
        note(&first, &content, &[(0, (2 << 20) + 5)], &runtime);
        let kept: Vec<HashedStart> = serde_json::from_str(&serde_json::to_string(&first.advanced()).unwrap()).unwrap();
        assert_eq!((kept[0].at, first.advanced()), ((2 << 20) + 5, Vec::new()));
        // What was before is not read again: it is other bytes here.
        let mut other = vec![0; 2 << 20];
        other.extend_from_slice(&content[2 << 20..]);
        let second = HashedFiles::new(files(&other));
        second.go_on_with(&kept);
        assert_eq!(runtime.block_on(second.finish()), expected(&content));
    }

    /// Journals hold states. If another version of the library writes them differently, the journal needs another version, too.
    #[test]
    fn a_state_that_an_earlier_version_kept_is_understood() {
        let (runtime, content) = (runtime(), Bytes::from_static(b"abc"));
        let hashed = HashedFiles::new(files(&content));
        hashed.go_on_with([&HashedStart { file: 0, size: 3, at: 2, state: state_of_ab() }]);
        assert_eq!(hashed.shared.lock().files[0].lock().at, 2);
        assert_eq!(runtime.block_on(hashed.finish()), expected(&content));
    }

    #[test]
    fn a_hash_kept_of_a_file_of_another_size_or_damaged_is_not_gone_on_with() {
        let (runtime, content) = (runtime(), Bytes::from(vec![7; 3 << 20]));
        let first = HashedFiles::new(files(&content));
        note(&first, &content, &[(0, 2 << 20)], &runtime);
        let kept = first.advanced().remove(0);
        for wrong in [
            HashedStart { size: 4 << 20, ..kept.clone() },
            HashedStart { at: 4 << 20, ..kept.clone() },
            HashedStart { state: "00".to_owned(), ..kept.clone() },
            HashedStart { state: "é".to_owned(), ..kept.clone() },
            HashedStart { file: 1, ..kept },
        ] {
            let second = HashedFiles::new(files(&content));
            second.go_on_with([&wrong]);
            assert_eq!(runtime.block_on(second.finish()), expected(&content));
        }
    }

    #[test]
    fn a_large_gap_is_not_read_while_the_content_passes_and_a_huge_one_never() {
        let (runtime, size) = (runtime(), 2 * READ_ONLY_FOR_HASHES_MAX);
        let hashed = HashedFiles::new(files(&[]));
        hashed.hold();
        hashed.shared.lock().files[0].lock().size = size;
        let piece = Bytes::from(vec![0; 1 << 20]);
        for at in (size / 2 + 1..size).step_by(1 << 20) {
            hashed.note(0, at, &piece, runtime.handle());
        }
        assert_eq!(hashed.shared.lock().held_bytes.load(Ordering::Relaxed), 0);
        let hash = runtime.block_on(hashed.finish()).remove(0);
        assert!(matches!(hash, Err(NotHashed::TooMuchMissing { .. })), "{hash:?}");
    }
}
