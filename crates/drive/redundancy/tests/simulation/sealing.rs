//! The sealed device over the simulated drive: the examiner's disk with the seal record, and the key.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cheetah_device::{ByteRange, Data, DynDevice};
use cheetah_redundancy::Redundant;
use cheetah_seal::device::{Alternative, Alternatives, Opening, RecordStore, Version};
use cheetah_seal::unit::DriveBinding;
use cheetah_seal::{DriveKey, Record, Sealed, Units};
use futures::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;

use crate::network::{Process, World};
use crate::process::Shape;

pub const UNIT: u64 = 4096;
const ID: [u8; 16] = *b"simulated drive!";

/// A file, which another file of the same name may have replaced.
#[derive(Clone)]
struct StoredFile {
    number: u64,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl StoredFile {
    fn version(&self) -> Version {
        [self.number, self.bytes.lock().len() as u64, 0, 0]
    }
}

/// The key, and the record on the examiner's disk.
pub struct Sealing {
    key: DriveKey,
    units: Units,
    boundary: u64,
    record: Arc<Mutex<StoredFile>>,
}

impl Sealing {
    pub fn new(shape: &Shape) -> Self {
        let size = Units::fitting(UNIT, shape.size());
        let units = Units::new(UNIT, size).unwrap();
        let key = DriveKey::random().unwrap();
        let bytes = Arc::new(Mutex::new(Record::new(ID, units, false).encode(&key).unwrap()));
        let record = Arc::new(Mutex::new(StoredFile { number: 1, bytes }));
        Self { key, units, boundary: shape.unit, record }
    }

    /// Bytes of content.
    pub fn size(&self) -> u64 {
        self.units.size()
    }

    /// Opens the sealed device over a drive, in a process.
    pub async fn open(
        &self,
        world: &Arc<World>,
        process: &Arc<Process>,
        below: &Arc<Redundant>,
        writable: bool,
    ) -> Result<Sealed, String> {
        let store = ProcessStore {
            world: world.clone(),
            process: process.clone(),
            record: self.record.clone(),
            own: Mutex::default(),
        };
        below.set_authenticated();
        let opening = Opening {
            below: below.clone() as DynDevice,
            key: self.key.clone(),
            store: Arc::new(store),
            binding: DriveBinding { drive: ID, unit_bytes: UNIT },
            size: self.size(),
            epoch: 0,
            name: "drive".into(),
            writable,
            boundary: Some(self.boundary),
            alternatives: Some(Arc::new(OtherMembers(below.clone()))),
        };
        Sealed::open(opening).await.map_err(|error| error.to_string())
    }
}

/// The record, as one process reaches it. The process may die at each change.
struct ProcessStore {
    world: Arc<World>,
    process: Arc<Process>,
    record: Arc<Mutex<StoredFile>>,
    /// The file that this process stored last.
    own: Mutex<Option<StoredFile>>,
}

impl ProcessStore {
    /// Whether the process lives to make this change.
    fn lives(&self) -> bool {
        if let Some(left) = &mut self.world.state.lock().writes_left {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => self.process.alive.store(false, Ordering::Relaxed),
            }
        }
        self.process.is_alive()
    }

    fn gone<T>() -> std::io::Result<T> {
        Err(std::io::Error::other("the process is gone"))
    }
}

impl RecordStore for ProcessStore {
    fn load(&self) -> std::io::Result<Vec<u8>> {
        let record = self.record.lock().clone();
        Ok(record.bytes.lock().clone())
    }

    fn store(&self, record: &[u8]) -> std::io::Result<Version> {
        if !self.lives() {
            return Self::gone();
        }
        let mut current = self.record.lock();
        *current = StoredFile { number: current.number + 1, bytes: Arc::new(Mutex::new(record.to_vec())) };
        *self.own.lock() = Some(current.clone());
        Ok(current.version())
    }

    fn append(&self, entry: &[u8], _durable: bool) -> std::io::Result<Version> {
        let Some(own) = self.own.lock().clone() else { return Self::gone() };
        let was_alive = self.process.is_alive();
        if !self.lives() {
            // It dies in the middle of the change.
            let part = self.world.state.lock().random.below(entry.len() as u64) as usize;
            own.bytes.lock().extend_from_slice(&entry[..if was_alive { part } else { 0 }]);
            return Self::gone();
        }
        own.bytes.lock().extend_from_slice(entry);
        Ok(own.version())
    }

    fn version(&self) -> Option<Version> {
        Some(self.record.lock().version())
    }
}

/// What the members hold besides what a read returns.
struct OtherMembers(Arc<Redundant>);

impl Alternatives for OtherMembers {
    fn read(&self, range: ByteRange) -> BoxFuture<'_, Vec<Alternative>> {
        async move {
            let found = self.0.alternatives(range).await.into_iter();
            let name = |member| self.0.members().name(member).clone();
            found
                .map(|found| Alternative { without: found.without, name: name(found.without), data: found.data })
                .collect()
        }
        .boxed()
    }

    fn restore(&self, range: ByteRange, data: Data, member: usize) -> BoxFuture<'_, cheetah_device::Result<()>> {
        self.0.restore(range, data, member).boxed()
    }
}
