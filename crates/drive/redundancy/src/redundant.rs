//! A redundant drive: arrays one after the other, and the resynchronization that runs behind them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::linear::Linear;
use cheetah_device::{ByteRange, DynDevice, Error, Result};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::array::{Array, Inner};
use crate::check::Checked;
use crate::engine::{Engine, Resync};
use crate::geometry::ArrayGeometry;
use crate::members::Members;

/// The pause before regions that could not be resynchronized are tried again.
const RESYNC_PAUSE: Duration = Duration::from_secs(1);
const RESYNC_PAUSE_MAX: Duration = Duration::from_secs(30);
/// While one region is read, another one is written.
const REGIONS_AT_ONCE: u64 = 4;
/// The most data of these regions in memory; one region may need more.
const REGIONS_BYTES_MAX: u64 = 64 << 20;
/// How often idle members are checked.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// The position of one array in a drive.
#[derive(Debug, Clone)]
pub struct ArrayPlace {
    /// Its arithmetic.
    pub geometry: ArrayGeometry,
    /// The number of each of its members in the drive, and the offset of the array's part there.
    pub places: Vec<(usize, u64)>,
}

/// A redundant drive as a device.
pub struct Redundant {
    device: DynDevice,
    shared: Arc<Shared>,
    background: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    arrays: Vec<Array>,
    /// Held while resynchronizing: two concurrent passes would count each other's regions as done.
    resyncing: tokio::sync::Mutex<()>,
    members: Arc<Members>,
}

/// What a resynchronization has achieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resynced {
    /// Whether every member that takes part now is in sync.
    pub complete: bool,
    /// Regions that were resynchronized.
    pub regions: u64,
}

impl Redundant {
    /// Assembles a drive of arrays, in order.
    pub fn new(arrays: Vec<ArrayPlace>, members: Arc<Members>) -> Result<Self> {
        let mut start = 0;
        let mut assembled = Vec::new();
        for place in arrays {
            let size = place.geometry.size();
            assembled.push(Array::new(place.geometry, members.clone(), place.places, start)?);
            start += size;
        }
        let devices: Vec<DynDevice> = assembled.iter().map(|array| Arc::new(array.clone()) as DynDevice).collect();
        let device: DynDevice = match &devices[..] {
            [only] => only.clone(),
            _ => Arc::new(Linear::new(devices)?),
        };
        Ok(Self {
            device,
            shared: Arc::new(Shared { arrays: assembled, resyncing: tokio::sync::Mutex::new(()), members }),
            background: Mutex::default(),
        })
    }

    /// The array that holds a range of the drive, and the range in it; `None` if two arrays do.
    pub(crate) fn array_of(&self, range: ByteRange) -> Option<(Arc<Inner>, ByteRange)> {
        let arrays = self.shared.arrays.iter().map(|array| &array.inner);
        arrays
            .filter_map(|array| {
                let whole = ByteRange::new(array.start, array.geometry.size());
                let within = ByteRange::new(range.offset.checked_sub(array.start)?, range.len);
                whole.contains(range).then(|| (array.clone(), within))
            })
            .next()
    }

    /// Notes that a layer above tells content from other bytes. A write may then cover a part of a bad page, whose other
    /// bytes are lost: the page becomes good, with zeros in their place, which are no content to that layer.
    pub fn set_authenticated(&self) {
        let arrays = &self.shared.arrays;
        arrays.iter().for_each(|array| array.inner.is_authenticated.store(true, Ordering::Relaxed));
    }

    /// Its members.
    pub fn members(&self) -> &Arc<Members> {
        &self.shared.members
    }

    /// Starts a task that resynchronizes whenever there is a need: a member came back, a failed write tore a group, or
    /// a page is damaged. Needs a runtime.
    pub fn resync_in_background(&self) {
        let shared = self.shared.clone();
        self.background.lock().push(tokio::spawn(async move {
            let mut pause = RESYNC_PAUSE;
            loop {
                let resynced = shared.resync(&mut |_, _| {}).await;
                if resynced.is_ok_and(|resynced| resynced.complete) {
                    pause = RESYNC_PAUSE;
                    shared.members.work.notified().await;
                } else {
                    // A region that could not be read may become readable without notice.
                    timeout(pause, shared.members.work.notified()).await.ok();
                    pause = (pause * 2).min(RESYNC_PAUSE_MAX);
                }
            }
        }));
        let shared = self.shared.clone();
        self.background.lock().push(tokio::spawn(async move {
            let members = &shared.members;
            // Also try members that could not be reached when the drive was opened.
            let lost = (0..members.len()).filter(|member| !members.is_connected(*member));
            lost.for_each(|member| members.reconnect_later(member));
            loop {
                sleep(WATCH_PAUSE).await;
                members.watch().await;
                if let Err(error) = shared.finish_moves().await {
                    tracing::debug!("the end of a move is not recorded yet: {error}");
                }
            }
        }));
    }

    /// The number of regions that are still to be resynchronized; 0 for a reader.
    pub fn to_resync(&self) -> u64 {
        self.shared.members.with_engine(|engine| engine.to_resync()).unwrap_or(0)
    }

    /// Resynchronizes all that needs it. Returns when that is done or cannot continue. `progress` gets the numbers of
    /// regions done and left.
    pub async fn resync(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<Resynced> {
        self.shared.resync(progress).await
    }

    /// Reads all data, redundancy and digests, compares them, and repairs what digests contradict, while the drive is
    /// in use. Pending resynchronization runs first, and damaged units are rewritten last. `progress` gets the bytes of
    /// data done and their total.
    ///
    /// # Errors
    ///
    /// If this is not the writer, or a result cannot be recorded or written.
    pub async fn check(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<Checked> {
        self.shared.resync(&mut |_, _| {}).await?;
        let total = self.shared.arrays.iter().map(|array| array.inner.geometry.size()).sum();
        let mut checked = Checked::default();
        let mut done = 0;
        for array in &self.shared.arrays {
            let mut step = |bytes| {
                done += bytes;
                progress(done, total);
            };
            array.inner.check(&mut checked, &mut step).await?;
        }
        self.shared.resync(&mut |_, _| {}).await?;
        Ok(checked)
    }

    /// Closes the drive after a flush: records that it is no longer open.
    pub async fn close(&self) -> Result<()> {
        self.background.lock().drain(..).for_each(|task| task.abort());
        self.shared.members.close().await
    }
}

impl Drop for Redundant {
    fn drop(&mut self) {
        self.background.lock().iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    async fn resync(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<Resynced> {
        let _resyncing = self.resyncing.lock().await;
        let mut regions = 0;
        let mut running = FuturesUnordered::new();
        let region_bytes = self.arrays.iter().map(|array| array.inner.resync_bytes_max()).max().unwrap_or(1);
        let at_once = (REGIONS_BYTES_MAX / region_bytes).clamp(1, REGIONS_AT_ONCE) as usize;
        self.members.with_engine(Engine::begin_resync).ok_or(Error::ReadOnly)?;
        loop {
            while running.len() < at_once {
                let (next, left, work) = self.members.with_engine(Work::next).ok_or(Error::ReadOnly)?;
                match next {
                    Resync::Region(_) => {
                        progress(regions, left);
                        running.push(self.resync_region(work));
                    }
                    Resync::Busy => break,
                    Resync::Done | Resync::Incomplete => {
                        let map = self.members.map().ok_or(Error::ReadOnly)?;
                        self.members.settle(map.epoch).await?;
                        self.finish_moves().await?;
                        return Ok(Resynced { complete: next == Resync::Done, regions });
                    }
                }
            }
            if let Some((work, complete)) = running.next().await {
                self.members.with_engine(|engine| {
                    engine.resynced(work.region, &work.written, &work.filled, complete);
                });
                if work.settle && complete {
                    self.members.healed(work.region);
                }
                regions += 1;
            }
        }
    }

    /// Ends moves whose incoming node can take its member's place.
    async fn finish_moves(&self) -> Result<()> {
        if self.members.has_moves_to_finish() {
            // No write may be in flight. Requests lock groups of one array at a time.
            let mut locks = Vec::new();
            for array in &self.arrays {
                locks.push(array.inner.locks.lock(0..array.inner.geometry.groups(), true).await);
            }
            self.members.finish_moves();
        }
        self.members.settle_moves().await
    }

    async fn resync_region(&self, work: Work) -> (Work, bool) {
        let mut complete = true;
        for array in &self.arrays {
            if let Err(error) = array.inner.resync(self.members.region_range(work.region), work.settle).await {
                tracing::warn!("a part of the drive cannot be resynchronized: {error}");
                complete = false;
            }
        }
        (work, complete)
    }
}

/// The work to do in a region.
struct Work {
    region: u64,
    /// Redundancy is to be recomputed.
    settle: bool,
    /// The members that writes are sent to.
    written: Vec<bool>,
    /// The members whose incoming node gets every write.
    filled: Vec<bool>,
}

impl Work {
    /// The next step of a resynchronization, with the work to do if it is a region, and the number of regions left.
    fn next(engine: &mut Engine) -> (Resync, u64, Self) {
        let next = engine.next_resync();
        let region = if let Resync::Region(region) = next { region } else { 0 };
        let written = engine.map().members.iter().map(|member| member.state.is_written()).collect();
        let filled = engine.attached().to_vec();
        (next, engine.to_resync(), Self { region, settle: engine.is_to_settle(region), written, filled })
    }
}

/// Reads and writes go to the arrays.
impl Layer for Redundant {
    type Below = DynDevice;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::PassThrough;

    fn below(&self) -> &DynDevice {
        &self.device
    }
}
