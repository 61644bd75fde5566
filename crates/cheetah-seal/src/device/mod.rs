//! The sealed device: content above, ciphertext below.
//!
//! * A read fetches whole units in one request for each run of units, and opens them. Units that are holes are not
//!   fetched.
//! * A write seals whole units, each with a stamp of its own, and sends them in one request for each piece. A unit that
//!   is written in part is read first. Writes to the same unit follow each other.
//! * The **stamps** in memory say which version of each unit is the right one. They are stored with the record at each
//!   flush, and when the drive is closed. Whatever the device below returns for a unit, it is content only if it opens
//!   with that very stamp.
//!
//! A write is a task of its own: it completes even if its caller is gone, so that the stamps in memory stay those of the
//! units below.

mod read;
mod save;
mod turns;
mod write;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Extent, Geometry, Io, Result, Zeroing};
use parking_lot::{Mutex, RwLock};

use crate::error::SealError;
use crate::key::{DriveKey, random};
use crate::record::{Epoch, Record};
use crate::stamp::Stamp;
use crate::unit::{DriveBinding, EpochKey};
use crate::units::Units;
use turns::Turns;

/// Where the record of a drive is stored. Its functions may block.
pub trait RecordStore: Send + Sync {
    /// Returns the stored record.
    fn load(&self) -> std::io::Result<Vec<u8>>;

    /// Replaces the stored record, atomically and durably.
    fn store(&self, record: &[u8]) -> std::io::Result<()>;

    /// A value that differs once another record is stored; `None` if that is unknown.
    fn version(&self) -> Option<[u64; 3]>;
}

/// What a sealed device is opened with.
pub struct Opening {
    /// The device below, at least as large as [`Units::sealed_bytes`].
    pub below: DynDevice,
    /// The drive's key.
    pub key: DriveKey,
    /// Where its record is.
    pub store: Arc<dyn RecordStore>,
    /// The drive's id and the units, by which a record of another drive is refused.
    pub binding: DriveBinding,
    /// The drive's name, for errors.
    pub name: Arc<str>,
    /// Whether to open it for writing. The caller sees to it that there is no other writer.
    pub writable: bool,
}

/// A sealed device. If it is open for writing, call [`Sealed::close`].
pub struct Sealed {
    inner: Arc<Inner>,
}

struct Inner {
    below: DynDevice,
    key: DriveKey,
    store: Arc<dyn RecordStore>,
    binding: DriveBinding,
    units: Units,
    holes: bool,
    name: Arc<str>,
    state: RwLock<State>,
    /// The keys of epochs, by number; made when they are first needed.
    keys: RwLock<HashMap<u32, Arc<EpochKey>>>,
    turns: Turns,
    writer: Option<Writer>,
    /// The stored record that the state is of. Held while it is stored or read again.
    stored: tokio::sync::Mutex<Stored>,
    /// Changes of the stamps so far.
    changes: AtomicU64,
    /// The first reason for which a unit was refused, for the log.
    refused: Mutex<Option<String>>,
}

/// The state of each unit.
struct State {
    record: Record,
    /// Stamps that a unit may have besides its own, because a write failed and may have taken effect.
    doubtful: HashMap<u64, Vec<Stamp>>,
}

struct Writer {
    epoch: u32,
    key: Arc<EpochKey>,
    /// The last counter that was used.
    counter: AtomicU64,
}

/// The stored record.
struct Stored {
    changes: u64,
    version: Option<[u64; 3]>,
}

impl Sealed {
    /// Opens a sealed device: loads its record and checks it. A writer begins its epoch, which is stored before this
    /// returns.
    ///
    /// # Errors
    ///
    /// If the record cannot be read, is not authentic, or is that of another drive.
    pub async fn open(opening: Opening) -> std::result::Result<Self, SealError> {
        let Opening { below, key, store, binding, name, writable } = opening;
        let version = store.version();
        let mut record = load(&store, &key, binding).await?;
        let units = record.units;
        if below.geometry().size < units.sealed_bytes() {
            return Err(SealError::Malformed("its nodes hold less than its seal record says"));
        }
        let mut writer = None;
        if writable {
            let epoch = record.begin_epoch(*random::<32>()?)?;
            let epoch_key = Arc::new(EpochKey::derive(&key, binding, &epoch)?);
            writer = Some(Writer { epoch: epoch.number, key: epoch_key, counter: AtomicU64::new(0) });
        }
        let holes = record.holes;
        let inner = Inner {
            below,
            key,
            store,
            binding,
            units,
            holes,
            name,
            state: RwLock::new(State { record, doubtful: HashMap::new() }),
            keys: RwLock::default(),
            turns: Turns::default(),
            writer,
            stored: tokio::sync::Mutex::new(Stored { changes: 0, version }),
            changes: AtomicU64::new(0),
            refused: Mutex::default(),
        };
        if writable {
            // No unit of an epoch may exist that the record does not know.
            inner.changed();
            inner.save().await?;
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Stores the record and ends the epoch: from now on, nothing is newer than the record. Flush first. Nothing can be
    /// written any more.
    pub async fn close(&self) -> Result<()> {
        self.inner.close().await
    }

    /// Whether a writer has not closed the drive: units may be newer than the record.
    pub fn has_open_epoch(&self) -> bool {
        let own = self.inner.writer.as_ref().map(|writer| writer.epoch);
        self.inner.state.read().record.epochs.iter().any(|epoch| epoch.open && Some(epoch.number) != own)
    }
}

/// Loads and checks a drive's record.
async fn load(
    store: &Arc<dyn RecordStore>,
    key: &DriveKey,
    binding: DriveBinding,
) -> std::result::Result<Record, SealError> {
    let (store, key) = (store.clone(), key.clone());
    let task = tokio::task::spawn_blocking(move || {
        let bytes = store.load().map_err(|error| SealError::system("its seal record cannot be read", &error))?;
        Record::decode(&bytes, &key)
    });
    let record = task.await.map_err(|_| SealError::System("reading its seal record broke off".into()))??;
    if record.binding() != binding {
        return Err(SealError::NotAuthentic("its seal record is that of another drive"));
    }
    Ok(record)
}

impl Inner {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.units.size(),
            writable: self.writer.is_some() && self.below.geometry().writable,
            block_preferred: u32::try_from(self.units.bytes()).unwrap_or(u32::MAX),
        }
    }

    /// Notes that stamps have changed since the record was stored.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The key of an epoch; `None` if the record does not know the epoch.
    fn epoch_key(&self, number: u32) -> Option<Arc<EpochKey>> {
        if let Some(writer) = self.writer.as_ref().filter(|writer| writer.epoch == number) {
            return Some(writer.key.clone());
        }
        if let Some(key) = self.keys.read().get(&number) {
            return Some(key.clone());
        }
        let epoch = self.epoch(number)?;
        let key = Arc::new(EpochKey::derive(&self.key, self.binding, &epoch).ok()?);
        self.keys.write().insert(number, key.clone());
        Some(key)
    }

    fn epoch(&self, number: u32) -> Option<Epoch> {
        let state = self.state.read();
        let at = state.record.epochs.binary_search_by_key(&number, |epoch| epoch.number).ok()?;
        state.record.epochs.get(at).cloned()
    }

    /// The stamps of the units from `first` up to, not including, `end`.
    fn stamps(&self, first: u64, end: u64) -> Vec<Stamp> {
        self.state.read().record.stamps[position(first)..position(end)].to_vec()
    }

    /// An error about a unit.
    fn unreadable(&self, index: u64, why: impl Into<Arc<str>>) -> Error {
        let range = self.units.content_range(index, index + 1);
        Error::Unreadable { device: self.name.clone(), range, why: why.into() }
    }
}

/// The position of a unit in the list of stamps, which is in memory.
fn position(unit: u64) -> usize {
    usize::try_from(unit).unwrap_or(usize::MAX)
}

impl Device for Sealed {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        if range.is_empty() {
            return Io::ok(Data::new());
        }
        let (first, end) = self.inner.units.touched(range);
        let stamps = self.inner.stamps(first, end);
        if stamps.iter().all(|stamp| stamp.is_hole()) {
            return Io::ok(Data::zeros(range.len));
        }
        Io::later(self.inner.read(range, first, stamps))
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let range = ByteRange::new(offset, data.len());
        if let Err(error) = self.may_write(range) {
            return Io::fail(error);
        }
        Io::later(write::write(self.inner.clone(), range, data, fua))
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        if let Err(error) = self.may_write(range) {
            return Io::fail(error);
        }
        if self.inner.holes && !how.keep_allocated {
            return Io::later(write::punch(self.inner.clone(), range, how));
        }
        match how.fast_only {
            true => Io::fail(Error::Unsupported("fast zeroing of a sealed drive, whose zeros are sealed like content")),
            false => Io::later(write::write(self.inner.clone(), range, Data::zeros(range.len), how.fua)),
        }
    }

    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        match self.may_write(range) {
            Err(error) => Io::fail(error),
            // Nodes do not learn which units are in use.
            Ok(()) if !self.inner.holes => Io::ok(()),
            Ok(()) => {
                let unit = self.inner.units.bytes();
                let end = if range.end() == self.inner.units.size() { range.end() } else { range.end() / unit * unit };
                let whole = ByteRange::between(range.offset.next_multiple_of(unit), end);
                Io::later(write::punch(self.inner.clone(), whole, Zeroing::default()))
            }
        }
    }

    fn flush(&self) -> Io<'_, ()> {
        match self.inner.writer {
            Some(_) => Io::later(self.inner.flush()),
            None => Io::ok(()),
        }
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        match self.check(range) {
            Err(error) => Io::fail(error),
            Ok(()) if range.is_empty() => Io::ok(()),
            Ok(()) => {
                let (first, end) = self.inner.units.touched(range);
                self.inner.below.cache(self.inner.units.sealed_range(first, end))
            }
        }
    }

    /// From the stamps alone: nodes have no say in it.
    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        let mut extents = Vec::new();
        let state = self.inner.state.read();
        for piece in range.split_at_multiples(self.inner.units.bytes()) {
            let is_hole = state.record.stamps[position(piece.offset / self.inner.units.bytes())].is_hole();
            if is_hole { Extent::hole(piece.len) } else { Extent::data(piece.len) }.push(&mut extents);
        }
        Io::ok(extents)
    }
}

impl Sealed {
    fn may_write(&self, range: ByteRange) -> Result<()> {
        if !self.inner.geometry().writable {
            return Err(Error::ReadOnly);
        }
        self.check(range)
    }
}
