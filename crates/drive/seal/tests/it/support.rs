//! A sealed drive over memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Geometry, Io, Zeroing};
use cheetah_seal::device::{Opening, RecordStore, Version};
use cheetah_seal::unit::DriveBinding;
use cheetah_seal::{DriveKey, Record, SealError, Sealed, Units};
use parking_lot::Mutex;

pub const ID: [u8; 16] = *b"0123456789abcdef";

/// A record in memory, on a disk that may be full.
pub struct MemoryStore {
    /// Bytes that may still be appended; what is beyond is cut off.
    pub room: AtomicU64,
    /// The length before an append that failed.
    torn: Mutex<Option<usize>>,
    pub bytes: Mutex<Vec<u8>>,
    version: AtomicU64,
    pub fails: AtomicBool,
    /// Bytes written so far.
    pub written: AtomicU64,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            room: AtomicU64::new(u64::MAX),
            torn: Mutex::default(),
            bytes: Mutex::default(),
            version: AtomicU64::default(),
            fails: AtomicBool::default(),
            written: AtomicU64::default(),
        }
    }
}

impl MemoryStore {
    fn put(&self, change: impl FnOnce(&mut Vec<u8>), len: usize) -> std::io::Result<Version> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("the disk is full"));
        }
        change(&mut self.bytes.lock());
        self.written.fetch_add(len as u64, Ordering::Relaxed);
        Ok([self.version.fetch_add(1, Ordering::Relaxed) + 1, 0, 0, 0])
    }
}

impl RecordStore for MemoryStore {
    fn load(&self) -> std::io::Result<Vec<u8>> {
        Ok(self.bytes.lock().clone())
    }

    fn store(&self, record: &[u8]) -> std::io::Result<Version> {
        if self.room.load(Ordering::Relaxed) < record.len() as u64 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.put(|bytes| *bytes = record.to_vec(), record.len())
    }

    fn append(&self, entry: &[u8], _durable: bool) -> std::io::Result<Version> {
        let part = self.room.load(Ordering::Relaxed).min(entry.len() as u64) as usize;
        if part < entry.len() {
            let mut bytes = self.bytes.lock();
            *self.torn.lock() = Some(bytes.len());
            bytes.extend_from_slice(&entry[..part]);
            self.version.fetch_add(1, Ordering::Relaxed);
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.put(|bytes| bytes.extend_from_slice(entry), entry.len())
    }

    fn undo_append(&self) -> Option<Version> {
        let len = self.torn.lock().take()?;
        self.put(|bytes| bytes.truncate(len), 0).ok()
    }

    fn version(&self) -> Option<Version> {
        Some([self.version.load(Ordering::Relaxed), 0, 0, 0])
    }
}

/// Memory that can be changed behind the drive's back, and whose writes can be cut off.
pub struct Node {
    pub memory: Memory,
    /// Bytes that may still be written; then every write stops there and fails.
    pub left: AtomicU64,
    /// The sizes of the writes so far.
    pub writes: Mutex<Vec<ByteRange>>,
}

impl Node {
    pub fn set(&self, range: ByteRange, bytes: &[u8]) {
        assert_eq!(range.len, bytes.len() as u64);
        futures::executor::block_on(self.memory.write(range.offset, Data::from(bytes.to_vec()), false)).unwrap();
    }

    pub fn get(&self, range: ByteRange) -> Vec<u8> {
        self.memory.snapshot()[range.offset as usize..range.end() as usize].to_vec()
    }
}

impl Device for Node {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.memory.read(range)
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        self.writes.lock().push(ByteRange::new(offset, data.len()));
        let left = self.left.load(Ordering::Relaxed);
        let part = data.slice(0, left);
        self.left.store(left - part.len(), Ordering::Relaxed);
        let whole = part.len() == data.len();
        match futures::executor::block_on(self.memory.write(offset, part, fua)) {
            Ok(()) if !whole => Io::fail(Error::Invalid("the connection was cut".into())),
            result => Io::done(result),
        }
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.memory.zero(range, how)
    }
}

/// A sealed drive and all that it consists of.
pub struct Drive {
    pub node: Arc<Node>,
    pub store: Arc<MemoryStore>,
    pub key: DriveKey,
    pub id: [u8; 16],
    pub units: Units,
}

impl Drive {
    pub fn new(unit: u64, size: u64, holes: bool) -> Self {
        Self::with_id(ID, DriveKey::random().unwrap(), unit, size, holes)
    }

    pub fn with_id(id: [u8; 16], key: DriveKey, unit: u64, size: u64, holes: bool) -> Self {
        let units = Units::new(unit, size).unwrap();
        let memory = Memory::new(vec![0; units.sealed_bytes() as usize]);
        let node = Node { memory, left: AtomicU64::new(u64::MAX), writes: Mutex::default() };
        let store = Arc::new(MemoryStore::default());
        store.store(&Record::new(id, units, holes).encode(&key).unwrap()).unwrap();
        Self { node: Arc::new(node), store, key, id, units }
    }

    /// Opens it, and accepts what is unverified.
    pub async fn accepting(&self, writable: bool) -> Sealed {
        let device = self.open(writable).await;
        device.accept_unverified().await.unwrap();
        device
    }

    pub async fn open(&self, writable: bool) -> Sealed {
        self.try_open(writable).await.unwrap()
    }

    pub async fn try_open(&self, writable: bool) -> Result<Sealed, SealError> {
        self.open_with(self.opening(writable)).await
    }

    pub async fn open_with(&self, opening: Opening) -> Result<Sealed, SealError> {
        Sealed::open(opening).await
    }

    /// What it is opened with.
    pub fn opening(&self, writable: bool) -> Opening {
        let (below, store): (DynDevice, Arc<dyn RecordStore>) = (self.node.clone(), self.store.clone());
        let binding = DriveBinding { drive: self.id, unit_bytes: self.units.bytes() };
        Opening {
            below,
            key: self.key.clone(),
            store,
            binding,
            size: self.units.size(),
            epoch: 0,
            name: "drive".into(),
            writable,
            boundary: None,
            alternatives: None,
        }
    }

    /// The range of a unit and its trailer on the node.
    pub fn place(&self, unit: u64) -> ByteRange {
        self.units.sealed_range(unit, unit + 1)
    }
}

/// Content that depends on a number.
pub fn pattern(number: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (number * 37 + at * 11 + at / 251 + 1) as u8).collect()
}

pub async fn read(device: &Sealed, range: ByteRange) -> cheetah_device::Result<Vec<u8>> {
    Ok(device.read(range).await?.into_bytes().to_vec())
}

pub async fn write(device: &Sealed, offset: u64, bytes: Vec<u8>) -> cheetah_device::Result<()> {
    device.write(offset, bytes.into(), false).await
}

pub fn run<F: Future<Output = ()>>(future: F) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}
