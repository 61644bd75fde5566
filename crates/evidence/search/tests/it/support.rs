//! Devices with ranges that cannot be read, and a search of them.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Geometry, Io};
use cheetah_error::Result;
use cheetah_search::{Hit, Order, Outcome, RunOptions, Search, run};
use futures::StreamExt as _;

/// Bytes of which some cannot be read.
pub struct Disk {
    pub bytes: Vec<u8>,
    pub bad: Vec<ByteRange>,
    /// The device is gone from here on.
    pub gone_from: u64,
}

impl Disk {
    pub fn whole(bytes: Vec<u8>) -> Self {
        Self { bytes, bad: Vec::new(), gone_from: u64::MAX }
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.bytes.len() as u64, writable: false, block_preferred: 512 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let device = || "disk".into();
        if range.end() > self.gone_from {
            return Io::fail(DeviceError::Lost { device: device(), range, why: "it was stopped".into() });
        }
        if let Some(range) = self.bad.iter().find_map(|bad| bad.intersection(range)) {
            return Io::fail(DeviceError::Unreadable { device: device(), range, why: "bad sector".into() });
        }
        Io::done(self.check(range).map(|()| self.bytes[range.offset as usize..range.end() as usize].to_vec().into()))
    }
}

/// The result of a search.
pub struct Searched {
    pub hits: Vec<Hit>,
    pub outcome: Outcome,
    pub ended: Result<()>,
}

/// Searches a disk in parts of this size.
pub fn searched(order: &Order, disk: Disk, options: &RunOptions) -> Searched {
    let search = Arc::new(Search::new(order).unwrap());
    let device: DynDevice = Arc::new(disk);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let mut outcome = Outcome::new(device.geometry().size, search.patterns().len());
        let (mut hits, mut at, mut ended) = (Vec::new(), 0, Ok(()));
        let mut batches = run(&search, &device, options);
        while let Some(batch) = batches.next().await {
            match batch {
                Ok(batch) => {
                    assert_eq!(batch.range.offset, at, "batches follow each other");
                    at = batch.range.end();
                    outcome.add(&batch);
                    hits.extend(batch.hits);
                }
                Err(error) => ended = Err(error),
            }
        }
        Searched { hits, outcome, ended }
    })
}

/// The order of these words in UTF-8.
pub fn words(words: &[&str]) -> Order {
    Order {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        encodings: vec!["utf-8".parse().unwrap()],
        ..Order::default()
    }
}
