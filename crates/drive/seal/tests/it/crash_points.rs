//! A writer that crashes between any two steps: parts of a write to different members, and changes of the record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io, Zeroing};
use cheetah_seal::Sealed;
use cheetah_seal::device::{Opening, RecordStore, Version};
use cheetah_seal::units::UNIT_BYTES_SMALL;
use proptest::prelude::*;

use crate::support::{Drive, pattern, read, run, write};

const UNIT: u64 = UNIT_BYTES_SMALL;
const UNITS: u64 = 7;
/// Units 1, 3 and 5 lie on two members.
const BOUNDARY: u64 = 2 * (UNIT + 24) - 100;

/// What is left of a writer's life, in steps.
struct Life {
    steps: AtomicU64,
    /// The parts of a write reach members in reverse order.
    reversed: AtomicBool,
}

impl Life {
    fn step(&self) -> bool {
        self.steps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// Members that each apply their part of a write as a whole, or not.
struct Members {
    memory: Arc<dyn Device>,
    life: Arc<Life>,
}

impl Device for Members {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.memory.read(range)
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let whole = ByteRange::new(offset, data.len());
        let mut parts: Vec<ByteRange> = whole.split_at_multiples(BOUNDARY).collect();
        if self.life.reversed.load(Ordering::Relaxed) {
            parts.reverse();
        }
        for part in parts {
            if !self.life.step() {
                return Io::fail(Error::Invalid("the writer is gone".into()));
            }
            let data = data.slice(part.offset - offset, part.len);
            futures::executor::block_on(self.memory.write(part.offset, data, fua)).unwrap();
        }
        Io::ok(())
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.memory.zero(range, how)
    }
}

/// A store of which a change is applied as a whole or, at the end of the writer's life, in part.
struct Store {
    store: Arc<dyn RecordStore>,
    life: Arc<Life>,
    /// The part of the last entry that is stored, in 255ths.
    part: u8,
}

impl RecordStore for Store {
    fn load(&self) -> std::io::Result<Vec<u8>> {
        self.store.load()
    }

    fn store(&self, record: &[u8]) -> std::io::Result<Version> {
        if self.life.step() { self.store.store(record) } else { Err(std::io::Error::other("gone")) }
    }

    fn append(&self, entry: &[u8], durable: bool) -> std::io::Result<Version> {
        if self.life.steps.load(Ordering::Relaxed) == 1 && self.part < 255 {
            self.life.step();
            self.store.append(&entry[..entry.len() * usize::from(self.part) / 255], durable)?;
            return Err(std::io::Error::other("gone"));
        }
        if self.life.step() { self.store.append(entry, durable) } else { Err(std::io::Error::other("gone")) }
    }

    fn version(&self) -> Option<Version> {
        self.store.version()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write { unit: u64, units: u64, reversed: bool },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..UNITS, 1u64..4, any::<bool>()).prop_map(|(unit, units, reversed)| Step::Write { unit, units, reversed }),
        1 => Just(Step::Flush),
    ]
}

/// The versions of the units: what was flushed, and what was written since.
struct Model {
    flushed: Vec<u64>,
    since: Vec<Vec<u64>>,
}

impl Model {
    fn flush(&mut self) {
        for (flushed, since) in self.flushed.iter_mut().zip(&mut self.since) {
            *flushed = since.last().copied().unwrap_or(*flushed);
            since.clear();
        }
    }

    /// What the device returns is part of the drive from now on.
    async fn settle(&mut self, device: &Sealed) {
        for unit in 0..UNITS {
            assert!(self.check(device, unit, true).await);
            let found = read(device, ByteRange::new(unit * UNIT, UNIT)).await.unwrap();
            let since = std::mem::take(&mut self.since[unit as usize]);
            if let Some(version) = since.into_iter().find(|version| found == Self::content(*version)) {
                self.flushed[unit as usize] = version;
            }
        }
    }

    fn content(version: u64) -> Vec<u8> {
        if version == 0 { vec![0; UNIT as usize] } else { pattern(version, UNIT) }
    }

    /// Checks a unit; returns whether it could be read.
    async fn check(&self, device: &Sealed, unit: u64, accepting: bool) -> bool {
        let found = read(device, ByteRange::new(unit * UNIT, UNIT)).await;
        let (flushed, since) = (self.flushed[unit as usize], &self.since[unit as usize]);
        match found {
            Ok(found) => {
                let newer = accepting && since.iter().any(|version| found == Self::content(*version));
                assert!(newer || found == Self::content(flushed), "unit {unit} has content that it must not have");
                true
            }
            Err(error) => {
                assert!(!since.is_empty() && !accepting, "unit {unit}: {error}");
                false
            }
        }
    }
}

fn opening(drive: &Drive, life: &Arc<Life>, part: u8, writable: bool) -> Opening {
    let opening = drive.opening(writable);
    let store = Store { store: opening.store.clone(), life: life.clone(), part };
    let below = Members { memory: opening.below.clone(), life: life.clone() };
    Opening { store: Arc::new(store), below: Arc::new(below), boundary: Some(BOUNDARY), ..opening }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_crash_between_any_two_steps_leaves_flushed_or_unverified_content(
        lives in prop::collection::vec((prop::collection::vec(step(), 1..14), 0u64..50, any::<u8>()), 1..4),
    ) {
        run(async {
            let drive = Drive::new(UNIT, UNITS * UNIT, false);
            let mut model = Model { flushed: vec![0; UNITS as usize], since: vec![Vec::new(); UNITS as usize] };
            let mut version = 0;
            for (steps, left, part) in lives {
                let life = Arc::new(Life { steps: AtomicU64::new(left), reversed: AtomicBool::new(false) });
                if let Ok(device) = drive.open_with(opening(&drive, &life, part, true)).await {
                    // What it accepts is part of the drive from now on.
                    if device.accept_unverified().await.is_ok() {
                        model.settle(&device).await;
                    }
                    let mut failed = false;
                    for step in steps {
                        match step {
                            Step::Write { unit, units, reversed } => {
                                life.reversed.store(reversed, Ordering::Relaxed);
                                let units = unit..(unit + units).min(UNITS);
                                let mut content = Vec::new();
                                for unit in units.clone() {
                                    version += 1;
                                    model.since[unit as usize].push(version);
                                    content.extend(pattern(version, UNIT));
                                }
                                failed |= write(&device, units.start * UNIT, content).await.is_err();
                            }
                            Step::Flush => {
                                // A flush vouches for no write that failed.
                                if device.flush().await.is_ok() && !failed {
                                    model.flush();
                                }
                            }
                        }
                    }
                }
                let alive = Arc::new(Life { steps: AtomicU64::new(u64::MAX), reversed: AtomicBool::new(false) });
                let reader = drive.open_with(opening(&drive, &alive, 255, false)).await.unwrap();
                for unit in 0..UNITS {
                    model.check(&reader, unit, false).await;
                }
                reader.accept_unverified().await.unwrap();
                for unit in 0..UNITS {
                    assert!(model.check(&reader, unit, true).await);
                }
            }
        });
    }
}
