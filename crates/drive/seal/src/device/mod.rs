//! The sealed device: content above, ciphertext below.
//!
//! * A read fetches whole units in one request for each run of units, and opens them. Units that are holes are not
//!   fetched.
//! * A write seals whole units, each with a stamp of its own, and sends them in one request for each piece. A unit that
//!   is written in part is read first. Writes to the same unit follow each other.
//! * The **stamps** in memory say which version of each unit is the right one. They are stored with the record at each
//!   flush, and when the drive is closed. Whatever the device below returns for a unit, it is content only if it opens
//!   with that very stamp.
//! * A reader follows the record that a writer elsewhere stores: what it returns is as of the last flush, or an error.
//! * A crash while a unit is written in two parts, to two members, would lose both versions of it. A copy of each such
//!   unit is therefore stored behind the record before it is overwritten.
//! * A unit that is not authentic is read from the other members, or computed from them, if there are any
//!   ([`Alternatives`]); the member that returned it is named.
//!
//! A write is a task of its own: it completes even if its caller is gone, so that the stamps in memory stay those of the
//! units below.

mod adopt;
mod changed;
mod read;
mod received;
mod recover;
mod save;
mod turns;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use cheetah_device::error::Withheld;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Extent, Geometry, Io, Result, Zeroing, try_io};
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};

use crate::epoch::Epoch;
use crate::error::SealError;
use crate::key::{DriveKey, random};
use crate::log;
use crate::record::Record;
use crate::stamp::Stamp;
use crate::unit::{DriveBinding, EpochKey};
use crate::units::Units;
use changed::Changed;
use turns::Turns;

/// Identifies what is stored: another record, or more behind it, has another version.
pub type Version = [u64; 4];

/// Where the record of a drive is stored, and the log behind it. Its functions may block.
pub trait RecordStore: Send + Sync {
    /// Returns the stored record and its log.
    fn load(&self) -> std::io::Result<Vec<u8>>;

    /// Replaces the stored record and its log, atomically and durably. Returns the version of what was stored.
    fn store(&self, record: &[u8]) -> std::io::Result<Version>;

    /// Appends to what this process has stored last, even if another process has replaced that since. It is durable when
    /// this returns, if `durable`; otherwise it outlives this process only. Returns the version.
    /// If it fails, [`Self::undo_append`] follows.
    fn append(&self, entry: &[u8], durable: bool) -> std::io::Result<Version>;

    /// Removes what an append that failed has left behind what this process has stored before, even if another process has
    /// replaced that since. Returns the version of that. `None` if there is nothing to remove, or it cannot be removed: the
    /// record must then be stored as a whole.
    fn undo_append(&self) -> Option<Version> {
        None
    }

    /// The version of what is stored now; `None` if that is unknown.
    fn version(&self) -> Option<Version>;
}

/// The other ways to read what a member returned wrong: copies, and computing from redundancy.
pub trait Alternatives: Send + Sync {
    /// Reads a range without one of the members that hold it, once for each of these members. Those that cannot be done
    /// without are left out.
    fn read(&self, range: ByteRange) -> BoxFuture<'_, Vec<Alternative>>;

    /// Puts the right content of a range back on a member that returned it wrong. Redundancy is left as it is.
    fn restore(&self, range: ByteRange, data: Data, member: usize) -> BoxFuture<'_, Result<()>>;
}

/// A range, read without one member.
#[derive(Debug, Clone)]
pub struct Alternative {
    /// The number of the member that was left out.
    pub without: usize,
    /// Its name.
    pub name: Arc<str>,
    /// The range without it.
    pub data: Data,
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
    /// Bytes of content. If the record has fewer, the drive was enlarged since: the units that it lacks are holes.
    pub size: u64,
    /// The newest epoch that is known. A record without it is older than the drive, and is refused.
    pub epoch: u32,
    /// The drive's name, for errors.
    pub name: Arc<str>,
    /// Whether to open it for writing. The caller sees to it that there is no other writer.
    pub writable: bool,
    /// The device below goes on to another member at multiples of this many bytes; `None` if it never does.
    pub boundary: Option<u64>,
    /// The other ways to read a unit; `None` if there are none.
    pub alternatives: Option<Arc<dyn Alternatives>>,
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
    accept_unverified: AtomicBool,
    boundary: Option<u64>,
    alternatives: Option<Arc<dyn Alternatives>>,
    /// Units that a member returned wrong, and that another one had right, by the member's name.
    altered: Mutex<BTreeMap<Arc<str>, u64>>,
    /// Units that were accepted unverified.
    accepted: AtomicU64,
    /// The stored record that the state is of. Held while it is stored or read again.
    stored: tokio::sync::Mutex<Stored>,
    /// Changes of the stamps so far.
    changes: AtomicU64,
    /// Whether the record could not be stored last time: nothing is written before it can.
    is_stuck: AtomicBool,
    /// The first reason for which a unit was refused, for the log.
    refused: Mutex<Option<String>>,
}

/// The state of each unit.
struct State {
    record: Record,
    /// Stamps that a unit may have besides its own, because a write failed and may have taken effect.
    doubtful: HashMap<u64, Vec<Stamp>>,
    /// Units whose stamps changed since the record was stored.
    changed: Changed,
    /// Copies of units that a crash or a failed write may have torn. A writer stores them with each record.
    copies: HashMap<u64, Bytes>,
}

impl State {
    /// The epoch of a unit that is newer than the record, if its writer never closed the drive; `own` is the epoch of
    /// this writer.
    fn is_unverified(&self, stamp: Stamp, expected: Stamp, own: Option<u32>) -> bool {
        stamp > expected
            && Some(stamp.epoch()) != own
            && self.record.epoch(stamp.epoch()).is_some_and(|epoch| epoch.open)
    }

    /// Sets the stamps of units from `first` that the device below holds: copies of them are of no use any more.
    fn set_written(&mut self, first: u64, stamps: &[Stamp]) {
        if !self.copies.is_empty() {
            let range = first..first + stamps.len() as u64;
            self.copies.retain(|index, _| !range.contains(index));
        }
        self.set(first, stamps);
    }

    /// Sets the stamps of units from `first`.
    fn set(&mut self, first: u64, stamps: &[Stamp]) {
        let range = first..first + stamps.len() as u64;
        self.record.stamps[position(range.start)..position(range.end)].copy_from_slice(stamps);
        if !self.doubtful.is_empty() {
            self.doubtful.retain(|index, _| !range.contains(index));
        }
        self.changed.add(range);
    }
}

struct Writer {
    epoch: u32,
    key: Arc<EpochKey>,
    /// The last counter that was used.
    counter: AtomicU64,
}

/// The stored record and its log.
struct Stored {
    changes: u64,
    version: Option<Version>,
    /// The root of the last entry.
    root: log::Root,
    /// Bytes of the log.
    log_bytes: u64,
    /// Whether it must be replaced as a whole.
    whole: bool,
}

impl Sealed {
    /// Opens a sealed device: loads its record and checks it. A writer begins its epoch, which is stored before this
    /// returns.
    ///
    /// # Errors
    ///
    /// If the record cannot be read, is not authentic, or is that of another drive.
    pub async fn open(opening: Opening) -> std::result::Result<Self, SealError> {
        let Opening { below, key, store, binding, size, epoch, name, writable, boundary, alternatives } = opening;
        let version = store.version();
        let log::Stored { mut record, root, copies } = load(&store, &key, binding).await?;
        if record.epochs.last().map_or(0, |last| last.number) < epoch {
            return Err(SealError::OldRecord);
        }
        record.enlarge(size)?;
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
            state: RwLock::new(State { record, doubtful: HashMap::new(), changed: Changed::default(), copies }),
            keys: RwLock::default(),
            turns: Turns::default(),
            writer,
            accept_unverified: AtomicBool::new(false),
            boundary,
            alternatives,
            altered: Mutex::default(),
            accepted: AtomicU64::new(0),
            // A writer begins with a record of its own.
            stored: tokio::sync::Mutex::new(Stored { changes: 0, version, root, log_bytes: 0, whole: true }),
            changes: AtomicU64::new(0),
            is_stuck: AtomicBool::new(false),
            refused: Mutex::default(),
        };
        if writable {
            inner.restore_copies().await?;
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

    /// The epoch of this writer; `None` for a reader.
    pub fn epoch(&self) -> Option<u32> {
        self.inner.own_epoch()
    }

    /// Whether a writer has not closed the drive: units may be newer than the record.
    pub fn has_open_epoch(&self) -> bool {
        self.inner.has_open_epoch()
    }

    /// Takes units that a writer wrote after its last flush and never closed. Before anything else is done. A writer
    /// finds them and records them as verified; a reader takes them when it reads them.
    pub async fn accept_unverified(&self) -> Result<()> {
        if self.inner.writer.is_some() {
            return self.inner.adopt().await;
        }
        self.inner.accept_unverified.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the epochs of writers that never closed the drive. For a writer that has read every unit: none is newer than
    /// the record then. Takes effect when the drive is closed.
    pub async fn end_other_epochs(&self) {
        if self.inner.writer.is_some() && self.has_open_epoch() {
            self.inner.end_other_epochs().await;
        }
    }

    /// Units that were accepted although they are unverified, so far.
    pub fn accepted(&self) -> u64 {
        self.inner.accepted.load(Ordering::Relaxed)
    }

    /// Units that a member returned wrong, while others had them right, by the member's name.
    pub fn altered(&self) -> BTreeMap<Arc<str>, u64> {
        self.inner.altered.lock().clone()
    }

    /// The ranges of content that a writer wrote after its last flush and never closed. Reads all units.
    pub async fn unverified(&self) -> Result<Vec<ByteRange>> {
        self.inner.unverified().await
    }
}

/// Loads and checks a drive's record.
async fn load(
    store: &Arc<dyn RecordStore>,
    key: &DriveKey,
    binding: DriveBinding,
) -> std::result::Result<log::Stored, SealError> {
    let (store, key) = (store.clone(), key.clone());
    let task = tokio::task::spawn_blocking(move || {
        let bytes = store.load().map_err(|error| SealError::system("its seal record cannot be read", &error))?;
        log::decode(&bytes, &key)
    });
    let stored = task.await.map_err(|_| SealError::System("reading its seal record broke off".into()))??;
    if stored.record.binding() != binding {
        return Err(SealError::NotAuthentic("its seal record is that of another drive"));
    }
    Ok(stored)
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
        self.state.read().record.epoch(number).cloned()
    }

    /// The epoch of this writer.
    fn own_epoch(&self) -> Option<u32> {
        self.writer.as_ref().map(|writer| writer.epoch)
    }

    fn has_open_epoch(&self) -> bool {
        let own = self.own_epoch();
        self.state.read().record.epochs.iter().any(|epoch| epoch.open && Some(epoch.number) != own)
    }

    /// Whether this reader takes units that are newer than the record, also where the record has holes.
    fn accepts(&self) -> bool {
        self.accept_unverified.load(Ordering::Relaxed) && self.has_open_epoch()
    }

    /// The stamps of the units from `first` up to, not including, `end`.
    fn stamps(&self, first: u64, end: u64) -> Vec<Stamp> {
        self.state.read().record.stamps[position(first)..position(end)].to_vec()
    }

    /// The extents of a range, by the stamps.
    fn extents(&self, range: ByteRange) -> Vec<Extent> {
        let mut extents = Vec::new();
        let state = self.state.read();
        for piece in range.split_at_multiples(self.units.bytes()) {
            let is_hole = state.record.stamps[position(piece.offset / self.units.bytes())].is_hole();
            if is_hole { Extent::hole(piece.len) } else { Extent::data(piece.len) }.push(&mut extents);
        }
        extents
    }

    /// The error about a unit that is not handed out.
    fn withheld(&self, index: u64, reason: Withheld) -> Error {
        Error::Withheld { device: self.name.clone(), range: self.units.content_range(index, index + 1), reason }
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
        try_io!(self.check(range));
        if range.is_empty() {
            return Io::ok(Data::new());
        }
        let (first, end) = self.inner.units.touched(range);
        let stamps = self.inner.stamps(first, end);
        if self.inner.writer.is_some() && stamps.iter().all(|stamp| stamp.is_hole()) && !self.inner.accepts() {
            return Io::ok(Data::zeros(range.len));
        }
        Io::later(self.inner.read(range, first, stamps))
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let range = ByteRange::new(offset, data.len());
        try_io!(self.may_write(range));
        Io::later(write::write(self.inner.clone(), range, data, fua))
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        try_io!(self.may_write(range));
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
        try_io!(self.check(range));
        if self.inner.accepts() {
            return Io::ok(vec![Extent::data(range.len)]);
        }
        Io::later(async move {
            self.inner.follow().await?;
            Ok(self.inner.extents(range))
        })
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
