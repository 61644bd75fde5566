//! A slow and failing device, and a history of the values that reads may return.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use parking_lot::Mutex;
use proptest::prelude::*;

/// Writes fill whole sectors with their id, so that a sector read identifies its write.
pub const SECTOR: u64 = 512;

/// Runs in virtual time.
pub fn run_virtual<F: Future<Output = ()>>(future: F) {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future);
}

/// Memory behind random delays, before and after each operation takes effect.
///
/// As on a network, a write that was sent takes effect even if its future is dropped, and one that was reported lost
/// may do so long after.
pub struct Slow {
    memory: Arc<Memory>,
    random: AtomicU64,
    broken: Mutex<Option<u64>>,
    fail_one_in: AtomicU64,
    log: Mutex<Vec<(u64, u64)>>,
}

impl Slow {
    pub fn new(content: Vec<u8>, seed: u64) -> Self {
        Self {
            memory: Arc::new(Memory::new(content)),
            random: AtomicU64::new(seed),
            broken: Mutex::default(),
            fail_one_in: AtomicU64::new(0),
            log: Mutex::default(),
        }
    }

    /// Makes reads of the sector at `offset` fail.
    pub fn break_sector(&self, offset: u64) {
        *self.broken.lock() = Some(offset);
    }

    /// Makes this share of operations fail, before or after taking effect.
    pub fn fail_one_in(&self, n: u64) {
        self.fail_one_in.store(n, Ordering::Relaxed);
    }

    /// Returns the offset and length of every read so far.
    pub fn log(&self) -> Vec<(u64, u64)> {
        self.log.lock().clone()
    }

    fn random(&self) -> u64 {
        let x = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn delay(&self, ms_max: u64) -> tokio::time::Sleep {
        tokio::time::sleep(Duration::from_millis(self.random() % ms_max))
    }

    fn fails(&self) -> bool {
        let n = self.fail_one_in.load(Ordering::Relaxed);
        n > 0 && self.random().is_multiple_of(n)
    }
}

fn lost(range: ByteRange) -> Error {
    Error::Lost { device: "slow".into(), range, why: "injected".into() }
}

impl Device for Slow {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.log.lock().push((range.offset, range.len));
        let broken = self.broken.lock().is_some_and(|at| range.contains(ByteRange::new(at, SECTOR)));
        Io::later(async move {
            self.delay(20).await;
            let data = self.memory.read(range).await;
            self.delay(20).await;
            if broken || self.fails() { Err(lost(range)) } else { data }
        })
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let range = ByteRange::new(offset, data.len());
        let memory = self.memory.clone();
        Io::later(async move {
            if self.fails() {
                let later = self.delay(300);
                tokio::spawn(async move {
                    later.await;
                    memory.write(offset, data, fua).await
                });
                // As if the refusal of one device hid the lost answer of another.
                let hidden = (offset / SECTOR).is_multiple_of(2);
                return Err(if hidden { Error::NoSpace("injected".into()) } else { lost(range) });
            }
            let soon = self.delay(20);
            let effect = tokio::spawn(async move {
                soon.await;
                memory.write(offset, data, fua).await
            });
            let result = effect.await.unwrap();
            self.delay(20).await;
            result
        })
    }
}

/// An operation of a worker.
#[derive(Debug, Clone)]
pub enum Step {
    Read(ByteRange),
    Write(ByteRange),
    Zero(ByteRange),
    Hint(ByteRange),
    /// Wait for this many milliseconds.
    Think(u64),
    /// Begin a write and drop its future after this many milliseconds.
    GiveUp(ByteRange, u64),
}

/// Generates runs of reads in a pattern, with other operations in between.
pub fn steps(size: u64) -> impl Strategy<Value = Vec<Step>> {
    let sectors = size / SECTOR;
    let range = move |most: u64| {
        (0..sectors, 1..most)
            .prop_map(move |(at, len)| ByteRange::between(at * SECTOR, ((at + len) * SECTOR).min(size)))
    };
    let run = (0..sectors, 1u64..64, -80i64..80, 3i64..24).prop_map(move |(at, len, step, count)| {
        let start = |i: i64| at as i64 + if step.abs() < 40 { i * len as i64 * step.signum() } else { i * step };
        let reads = (0..count).map(start).filter(|start| (0..sectors as i64).contains(start));
        reads
            .map(|start| start as u64)
            .map(|start| Step::Read(ByteRange::between(start * SECTOR, ((start + len) * SECTOR).min(size))))
            .collect::<Vec<_>>()
    });
    let other = prop_oneof![
        4 => range(64).prop_map(Step::Read),
        6 => range(64).prop_map(Step::Write),
        1 => range(64).prop_map(Step::Zero),
        1 => range(1024).prop_map(Step::Hint),
        2 => (0u64..50).prop_map(Step::Think),
        1 => (range(16), 0u64..30).prop_map(|(range, after)| Step::GiveUp(range, after)),
    ];
    prop::collection::vec(prop_oneof![run, other.prop_map(|step| vec![step])], 1..12).prop_map(|runs| runs.concat())
}

/// The writes to each sector, by the order in which they began and ended.
pub struct WriteHistory {
    clock: AtomicU64,
    sectors: Mutex<Vec<Vec<Written>>>,
}

#[derive(Debug, Clone, Copy)]
struct Written {
    id: u64,
    began: u64,
    /// `u64::MAX` while it is in flight, and for good if it failed.
    ended: u64,
}

impl WriteHistory {
    pub fn new(size: u64) -> Self {
        let sectors = (0..size / SECTOR).map(|_| vec![Written { id: 0, began: 0, ended: 0 }]).collect();
        Self { clock: AtomicU64::new(1), sectors: Mutex::new(sectors) }
    }

    /// Returns the initial content of the device.
    pub fn initial(&self) -> Vec<u8> {
        vec![0; self.sectors.lock().len() * SECTOR as usize]
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Performs a step; panics if a read returns content that cannot have been there.
    pub async fn perform(&self, device: &dyn Device, step: Step) {
        match step {
            Step::Think(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Step::Hint(range) => device.cache(range).await.unwrap(),
            Step::Read(range) => {
                let began = self.tick();
                if let Ok(data) = device.read(range).await {
                    self.judge(range, began, &data.into_bytes());
                }
            }
            Step::Write(range) => {
                let id = self.begin(range, None);
                let result = device.write(range.offset, content(range, id), false).await;
                self.end(range, id, result.is_ok());
            }
            Step::Zero(range) => {
                let id = self.begin(range, Some(0));
                let result = device.zero(range, Default::default()).await;
                self.end(range, id, result.is_ok());
            }
            Step::GiveUp(range, after) => {
                let id = self.begin(range, None);
                let write = device.write(range.offset, content(range, id), false);
                let result = tokio::time::timeout(Duration::from_millis(after), write).await;
                self.end(range, id, matches!(result, Ok(Ok(()))));
            }
        }
    }

    /// Begins a write, and names it by the tick at which it began.
    fn begin(&self, range: ByteRange, id: Option<u64>) -> u64 {
        let began = self.tick();
        for sector in &mut self.sectors.lock()[sectors(range)] {
            sector.push(Written { id: id.unwrap_or(began), began, ended: u64::MAX });
        }
        began
    }

    fn end(&self, range: ByteRange, began: u64, done: bool) {
        let ended = self.tick();
        if done {
            for sector in &mut self.sectors.lock()[sectors(range)] {
                sector.iter_mut().filter(|w| w.began == began).for_each(|w| w.ended = ended);
            }
        }
    }

    fn judge(&self, range: ByteRange, began: u64, data: &[u8]) {
        assert_eq!(data.len() as u64, range.len);
        let ended = self.tick();
        let mut all = self.sectors.lock();
        for (sector, bytes) in all[sectors(range)].iter_mut().zip(data.chunks(SECTOR as usize)) {
            let (ids, _) = bytes.as_chunks::<8>();
            let id = u64::from_le_bytes(ids[0]);
            assert!(ids.iter().all(|other| u64::from_le_bytes(*other) == id), "a torn sector");
            // A write that ended before another began, which itself ended before the read began, has been overwritten.
            let gone = |w: &Written| sector.iter().any(|later| later.began > w.ended && later.ended < began);
            let possible = sector.iter().any(|w| w.id == id && !gone(w));
            assert!(possible, "stale: write {id} read by a read begun at {began} of {sector:?}");
            // Content that was read has taken effect, even if its writer got no answer; later reads must not return
            // older content.
            let mut writers = sector.iter_mut().filter(|w| w.id == id);
            if let (Some(writer), None) = (writers.next(), writers.next()) {
                writer.ended = writer.ended.min(ended);
            }
        }
    }
}

fn sectors(range: ByteRange) -> std::ops::Range<usize> {
    (range.offset / SECTOR) as usize..(range.end() / SECTOR) as usize
}

fn content(range: ByteRange, id: u64) -> Data {
    let words = range.len / 8;
    (0..words).flat_map(|_| id.to_le_bytes()).collect::<Vec<u8>>().into()
}
