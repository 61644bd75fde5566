//! Devices with ranges that cannot be read, and a search of them.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Geometry, Io};
use cheetah_error::Result;
use cheetah_search::{Batch, Hit, Order, Outcome, RunOptions, Search, SearchedPart, SourcePart, run, run_parts};
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};

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
    let batches = run(&search, &device, options);
    collected(&search, device.geometry().size, batches)
}

/// Searches a disk, or ranges of it, and returns the results.
pub fn batches(order: &Order, disk: Disk, options: &RunOptions) -> Vec<Batch> {
    let search = Arc::new(Search::new(order).unwrap());
    let device: DynDevice = Arc::new(disk);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async { run(&search, &device, options).map(Result::unwrap).collect().await })
}

/// Searches parts of these lengths of bytes: some are read, and the others searched alone, where that is possible.
pub fn searched_alone(order: &Order, bytes: &[u8], parts: &[(usize, bool)]) -> Searched {
    let search = Arc::new(Search::new(order).unwrap());
    let edge = search.overlap().edge();
    let mut at = 0;
    let mut sources = Vec::new();
    for (len, alone) in parts.iter().copied().chain([(bytes.len(), true)]) {
        let part = bytes[at..(at + len).min(bytes.len())].to_vec();
        let range = ByteRange::new(at as u64, part.len() as u64);
        at += part.len();
        if range.is_empty() {
            continue;
        }
        if search.overlap().core(range).filter(|_| alone).is_none() {
            sources.push(SourcePart::Read(vec![(range, Ok(part.into()))]));
            continue;
        }
        let searched = SearchedPart {
            range,
            head: part[..edge].to_vec(),
            tail: part[part.len() - edge..].to_vec(),
            hits: search.scan_alone(range.offset, &part, usize::MAX).unwrap(),
            node: None,
        };
        match sources.last_mut() {
            Some(SourcePart::Searched(parts)) if parts.len() < 3 => parts.push(searched),
            _ => sources.push(SourcePart::Searched(vec![searched])),
        }
    }
    collected(&search, bytes.len() as u64, run_parts(&search, stream::iter(sources), 3))
}

fn collected(search: &Search, size: u64, mut batches: BoxStream<'static, Result<Batch>>) -> Searched {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let mut outcome = Outcome::new(size, search.patterns().len());
        let (mut hits, mut at, mut ended) = (Vec::new(), 0, Ok(()));
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
