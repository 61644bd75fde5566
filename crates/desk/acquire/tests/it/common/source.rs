//! Sources that fail on demand.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cheetah_acquire::order::Opener;
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use cheetah_error::Error as ImageError;
use cheetah_image::{Identity, Kind, Source};
use cheetah_source::Evidence;
use futures::FutureExt as _;
use tokio::sync::Notify;

pub const SECTOR: u64 = 512;
pub const MIB: u64 = 1 << 20;

/// A disk with defects of its own and of the path to it.
pub struct Disk {
    pub bytes: Vec<u8>,
    /// Sectors that cannot be read.
    pub bad: BTreeSet<u64>,
    /// Bytes handed out so far.
    pub read_bytes: AtomicU64,
    /// After this number of bytes, the link is lost until the source is reopened.
    pub cut_at: AtomicU64,
    /// After this number of bytes, reads hang, and `hanging` is notified.
    pub hang_at: AtomicU64,
    pub hanging: Notify,
    /// How often it was opened.
    pub opened: AtomicU64,
    /// The serial number it shows.
    pub serial: Option<String>,
}

impl Disk {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            bad: BTreeSet::new(),
            read_bytes: AtomicU64::new(0),
            cut_at: AtomicU64::new(u64::MAX),
            hang_at: AtomicU64::new(u64::MAX),
            hanging: Notify::new(),
            opened: AtomicU64::new(0),
            serial: None,
        }
    }

    /// `len` bytes that repeat nowhere, with runs of zeros.
    pub fn noisy(len: u64) -> Self {
        let mut state = len | 1;
        let mut bytes = vec![0; len as usize];
        for (index, page) in bytes.chunks_mut(64 << 10).enumerate() {
            if index % 8 == 5 {
                continue;
            }
            for word in page.chunks_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
            }
        }
        Self::new(bytes)
    }

    /// The content of its image: zeros in place of unreadable sectors.
    pub fn image(&self) -> Vec<u8> {
        let mut image = self.bytes.clone();
        for sector in &self.bad {
            let start = (sector * SECTOR) as usize;
            let end = (start + SECTOR as usize).min(image.len());
            image[start..end].fill(0);
        }
        image
    }

    /// The ranges that cannot be read, neighbours merged.
    pub fn unreadable(&self) -> Vec<ByteRange> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        for sector in &self.bad {
            let range = ByteRange::between(sector * SECTOR, ((sector + 1) * SECTOR).min(self.bytes.len() as u64));
            range.append_to(&mut ranges);
        }
        ranges
    }

    pub fn read_so_far(&self) -> u64 {
        self.read_bytes.load(Ordering::SeqCst)
    }
}

/// Opens the disk, again and again.
pub fn opener(disk: &Arc<Disk>) -> Opener {
    let disk = disk.clone();
    Arc::new(move || {
        let disk = disk.clone();
        async move {
            let size = disk.bytes.len() as u64;
            disk.opened.fetch_add(1, Ordering::SeqCst);
            disk.cut_at.store(u64::MAX, Ordering::SeqCst);
            let identity = Identity { serial: disk.serial.clone(), ..Identity::new(Kind::Block, "/dev/sdx", size) };
            Ok::<_, ImageError>(Evidence::from(Source::new(disk, identity, "sdx".into())))
        }
        .boxed()
    })
}

/// Opens the disk. The link of the n-th opening is cut after `cuts[n]` bytes, those of later openings never.
pub fn opener_with_cuts(disk: &Arc<Disk>, cuts: Vec<u64>) -> Opener {
    let (plain, disk) = (opener(disk), disk.clone());
    Arc::new(move || {
        let (opened, disk, cuts) = (plain(), disk.clone(), cuts.clone());
        async move {
            let evidence = opened.await?;
            let time = disk.opened.load(Ordering::SeqCst) as usize - 1;
            let cut = cuts.get(time).map_or(u64::MAX, |after| disk.read_so_far() + after);
            disk.cut_at.store(cut, Ordering::SeqCst);
            Ok(evidence)
        }
        .boxed()
    })
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.bytes.len() as u64, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        let device: Arc<str> = "/dev/sdx".into();
        let so_far = self.read_so_far();
        if so_far >= self.cut_at.load(Ordering::SeqCst) {
            return Io::fail(Error::Lost { device, range, why: "the link is cut".into() });
        }
        if so_far >= self.hang_at.load(Ordering::SeqCst) {
            self.hanging.notify_one();
            return Io::later(std::future::pending());
        }
        if self.bad.range(range.offset / SECTOR..range.end().div_ceil(SECTOR)).next().is_some() {
            return Io::fail(Error::Unreadable { device, range, why: "scratched".into() });
        }
        self.read_bytes.fetch_add(range.len, Ordering::SeqCst);
        Io::later(async move {
            tokio::task::yield_now().await;
            Ok(self.bytes[range.offset as usize..range.end() as usize].to_vec().into())
        })
    }
}
