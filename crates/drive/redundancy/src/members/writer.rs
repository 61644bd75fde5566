//! The writer's operations on the members: it carries out the engine's decisions.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cheetah_device::reconnect::Backoff;
use cheetah_device::{ByteRange, Error, Result};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::{DamagedPart, Members, PROBE};
use crate::bad::Full;
use crate::engine::{Engine, Epoch, Exclusion, Indispensable, NotReplaced};
use crate::environment::{DynLink, Environment, NotReached, NotStored};
use crate::map::Map;
use crate::timing::{GONE_PAUSE, PROBE_PAUSE, READ_LEASE_END};

/// How often storing the map may fail before the write that needs it fails: twice for each member that may be lost
/// meanwhile.
const STORE_ATTEMPTS: u64 = 6;

/// The most damaged parts of groups remembered for a region.
const DAMAGED_PARTS_MAX: usize = 1024;

/// The state that only a writer has.
pub(super) struct Writer {
    engine: Mutex<Engine>,
    pub environment: Arc<dyn Environment>,
    /// Notified when a map was stored or could not be, and when readers have ceased to use older maps.
    stored: Notify,
    failed: Mutex<FailedStores>,
    /// The newest stored epoch, so that a write to recorded regions is checked by one load.
    stored_epoch: AtomicU64,
    /// The newest epoch that is settled.
    settled_epoch: AtomicU64,
}

/// The number of failures to store a map since the last success, and the reason of the last one.
#[derive(Default)]
struct FailedStores {
    count: u64,
    why: Option<NotStored>,
}

/// The state of a map that a caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// It is stored.
    Stored,
    /// It is stored, and readers elsewhere read by it or by a newer one.
    Settled,
}

impl Writer {
    pub fn new(engine: Engine, environment: Arc<dyn Environment>) -> Self {
        Self {
            engine: Mutex::new(engine),
            environment,
            stored: Notify::new(),
            failed: Mutex::default(),
            stored_epoch: AtomicU64::new(0),
            settled_epoch: AtomicU64::new(0),
        }
    }

    /// Runs an event of storing, and wakes the tasks that wait for it.
    fn on_store<T>(&self, event: impl FnOnce(&mut Engine) -> T) -> T {
        let out = {
            let mut engine = self.engine.lock();
            let out = event(&mut engine);
            self.stored_epoch.store(engine.stored(), Ordering::Release);
            self.settled_epoch.store(engine.settled(), Ordering::Release);
            out
        };
        self.stored.notify_waiters();
        out
    }

    /// Returns once no reader elsewhere reads these members by a map that is older than the one just stored: the
    /// readers' leases have ended, or the members' processes have.
    async fn until_unread(&self, mut members: Vec<usize>, has_left: bool) {
        // A node that a member left answers readers.
        if has_left {
            return sleep(READ_LEASE_END).await;
        }
        let all_gone = async {
            loop {
                let gone = join_all(members.iter().map(|member| self.environment.is_gone(*member))).await;
                let mut gone = gone.into_iter();
                members.retain(|_| !gone.next().unwrap_or(false));
                if members.is_empty() {
                    return;
                }
                sleep(GONE_PAUSE).await;
            }
        };
        timeout(READ_LEASE_END, all_gone).await.ok();
    }
}

impl Members {
    fn engine<T>(&self, with: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        let writer = self.writer.as_ref()?;
        let mut engine = writer.engine.lock();
        let epoch = engine.map().epoch;
        let out = with(&mut engine);
        if engine.map().epoch != epoch {
            let map = engine.map().clone();
            drop(engine);
            self.apply(&map);
        }
        Some(out)
    }

    /// The map as this writer has it; `None` for a reader.
    pub fn map(&self) -> Option<Map> {
        self.writer.as_ref().map(|writer| writer.engine.lock().map().clone())
    }

    /// The bytes that each member has sent to all its clients, where known; empty for a reader. Members without a
    /// connection are not asked: resynchronization of the others would wait for them.
    pub(super) async fn all_read_bytes(&self) -> Vec<Option<u64>> {
        let Some(writer) = &self.writer else { return Vec::new() };
        let ask = |member: usize| async move {
            if self.is_connected(member) { writer.environment.read_bytes(member).await } else { None }
        };
        join_all((0..self.len()).map(ask)).await
    }

    /// The number of regions whose redundancy may disagree with the data for reasons other than writes in flight.
    pub fn to_settle(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.engine.lock().to_settle())
    }

    /// Whether writes are sent to a member.
    pub(crate) fn is_written(&self, member: usize) -> bool {
        self.members[member].written.load(Ordering::Acquire)
    }

    /// Whether redundancy agrees with the data in these regions, except for writes in flight.
    pub(crate) fn is_settled(&self, mut regions: Range<u64>) -> bool {
        self.writer.as_ref().is_some_and(|writer| {
            let engine = writer.engine.lock();
            !regions.any(|region| engine.is_to_settle(region))
        })
    }

    /// The regions that the drive's bytes from `start` up to `end` touch.
    pub(crate) fn regions_touched(&self, start: u64, end: u64) -> Range<u64> {
        self.regions.touched(start, end)
    }

    /// The range of the drive that a region occupies.
    pub(crate) fn region_range(&self, region: u64) -> ByteRange {
        ByteRange::new(region * self.regions.region_bytes(), self.regions.region_bytes())
    }

    /// Admits a write to the regions, once they are recorded in a stored map.
    pub(crate) async fn admit(self: &Arc<Self>, regions: Range<u64>) -> Result<Admitted> {
        let Some(epoch) = self.engine(|engine| engine.admit(regions.clone())) else { return Err(Error::ReadOnly) };
        let admitted = Admitted { members: self.clone(), regions, consistent: true };
        // Readers matter only to a write that a member misses, before that write is acknowledged.
        self.until(epoch, Goal::Stored).await?;
        Ok(admitted)
    }

    /// Notes that a member missed a write or a flush, and returns once that is stored. Fails if the member is
    /// indispensable.
    pub(crate) async fn missed(
        self: &Arc<Self>,
        member: usize,
        why: &Error,
    ) -> Result<std::result::Result<(), Indispensable>> {
        let marked = self.engine(|engine| (engine.stale_since(member).is_none(), engine.mark_stale(member)));
        match marked {
            None => Err(Error::ReadOnly),
            Some((_, Err(indispensable))) => {
                // Requests already sent to the member must not take effect after the write was given up.
                self.cut(member);
                Ok(Err(indispensable))
            }
            Some((lost, Ok(epoch))) => {
                if lost {
                    tracing::warn!("{} is lost, the drive goes on without it: {why}", self.name(member));
                    self.count(|stats| stats.members_lost += 1);
                    self.cut(member);
                }
                self.settle(epoch).await.map(Ok)
            }
        }
    }

    /// Returns once a stored map records that a member is stale; false if it is no longer stale.
    pub(crate) async fn stale_recorded(self: &Arc<Self>, member: usize) -> Result<bool> {
        match self.engine(|engine| engine.stale_since(member)).flatten() {
            Some(epoch) => self.settle(epoch).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Drops the connection to a member along with its queue, and reconnects later.
    fn cut(self: &Arc<Self>, member: usize) {
        self.change_member(member, |member| *member.link.write() = None);
        self.reconnect_later(member);
    }

    /// Tries to reach a member that is not connected. If it is stale, it rejoins.
    pub(crate) fn reconnect_later(self: &Arc<Self>, member: usize) {
        if !self.is_writer() || self.members[member].reconnecting.swap(true, Ordering::AcqRel) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut backoff = Backoff::default();
            loop {
                sleep(PROBE_PAUSE + backoff.next_pause()).await;
                let Some(members) = weak.upgrade() else { return };
                let Some(writer) = &members.writer else { return };
                // Another connection would cut off the connection of a member that was replaced meanwhile.
                if members.ends_reconnecting(member) {
                    return;
                }
                let environment = writer.environment.clone();
                let generation = members.members[member].generation.load(Ordering::Acquire);
                drop(members);
                let link = environment.reconnect(member).await;
                let Some(members) = weak.upgrade() else { return };
                let rejoined = match link {
                    Ok(link) => members.reconnected(member, link, generation),
                    Err(why) => {
                        tracing::debug!("{} is still lost: {why}", members.name(member));
                        None
                    }
                };
                if let Some(epoch) = rejoined {
                    members.record_return(member, epoch, "takes part again").await;
                    if members.ends_reconnecting(member) {
                        return;
                    }
                }
            }
        });
    }

    /// Replaces a connection whose lease has expired, unless it was dropped or the member was replaced meanwhile.
    /// Requests in flight on the former connection are sent again.
    pub async fn renew_connection(
        &self,
        member: usize,
        connect: impl Future<Output = std::result::Result<DynLink, NotReached>>,
    ) {
        let generation = self.members[member].generation.load(Ordering::Acquire);
        let link = connect.await;
        if let Err(why) = &link {
            tracing::debug!("{} cannot be reconnected to: {why}", self.name(member));
        }
        self.change_member(member, |own| {
            let mut now = own.link.write();
            if let Ok(link) = link
                && now.is_some()
                && own.generation.load(Ordering::Acquire) == generation
            {
                *now = Some(link);
                own.suspect.store(false, Ordering::Release);
            }
        });
    }

    fn ends_reconnecting(&self, member: usize) -> bool {
        self.change_member(member, |member| {
            let is_connected = member.link.read().is_some();
            member.reconnecting.store(!is_connected, Ordering::Release);
            is_connected
        })
    }

    /// Installs a new connection to a member, unless another was made or the member was replaced meanwhile.
    fn reconnected(&self, member: usize, link: DynLink, generation: u64) -> Option<Epoch> {
        self.engine(|engine| {
            let own = &self.members[member];
            if self.is_connected(member) || own.generation.load(Ordering::Acquire) != generation {
                return None;
            }
            // Connected before the change of state, because from then on writes are sent to the member.
            self.connect(member, link);
            Some(engine.rejoin(member))
        })
        .flatten()
    }

    /// Tries once to reach a stale member. Returns whether it takes part again.
    pub async fn rejoin(self: &Arc<Self>, member: usize) -> bool {
        let Some(writer) = &self.writer else { return false };
        if self.is_connected(member) {
            // Another connection would cut off this one.
            return self.is_written(member);
        }
        let generation = self.members[member].generation.load(Ordering::Acquire);
        match writer.environment.reconnect(member).await {
            Ok(link) => {
                if let Some(epoch) = self.reconnected(member, link, generation) {
                    self.record_return(member, epoch, "takes part again").await;
                }
                self.is_written(member)
            }
            Err(why) => {
                tracing::debug!("{} is lost: {why}", self.name(member));
                false
            }
        }
    }

    /// Puts an empty member in the place of a stale one that the drive can spare. `recorded` gets the first epoch with
    /// the new member, before any map of that epoch is stored.
    ///
    /// # Errors
    ///
    /// If the other members do not hold all its bytes, or the member is back.
    pub async fn replace(self: &Arc<Self>, member: usize, link: DynLink, recorded: impl FnOnce(Epoch)) -> Result<()> {
        // The former member gets no writes from now on, so no reader elsewhere may still read it.
        self.stale_recorded(member).await?;
        let replaced = self.engine(|engine| {
            let epoch = engine.replace(member)?;
            recorded(epoch);
            self.members[member].generation.fetch_add(1, Ordering::AcqRel);
            self.connect(member, link);
            Ok::<_, NotReplaced>(epoch)
        });
        match replaced.ok_or(Error::ReadOnly)? {
            Ok(epoch) => {
                self.record_return(member, epoch, "is replaced").await;
                Ok(())
            }
            Err(why) => {
                let why = match why {
                    NotReplaced::Indispensable => "the other members do not hold all its bytes",
                    NotReplaced::NotStale => "it is back",
                    NotReplaced::Moving => "the node that it was moving to takes its place",
                };
                Err(Error::Invalid(format!("{} is not replaced: {why}", self.name(member)).into()))
            }
        }
    }

    /// Stores the progress of resynchronization if there was any since the last call: the next writer continues there,
    /// and others see the progress.
    ///
    /// # Errors
    ///
    /// If too few members can store the map.
    pub async fn record_progress(self: &Arc<Self>) -> Result<()> {
        match self.engine(Engine::record_progress).flatten() {
            Some(epoch) => self.settle(epoch).await,
            None => Ok(()),
        }
    }

    /// Stores that a member takes part again or was replaced; `what` says which.
    async fn record_return(self: &Arc<Self>, member: usize, epoch: Epoch, what: &str) {
        if let Err(error) = self.settle(epoch).await {
            tracing::warn!("{} {what}, which could not be recorded yet: {error}", self.name(member));
        }
        self.work.notify_one();
    }

    /// Checks the members of an idle drive: a lost member must be noticed, and replaced, before the next is lost.
    pub(crate) async fn watch(self: &Arc<Self>) {
        let look = |member: usize| async move {
            if !self.is_in_sync(member) {
            } else if !self.is_connected(member) {
                self.missed(member, &self.lost(member, PROBE, "it cannot be reached")).await.ok();
                self.reconnect_later(member);
            } else if self.is_ready(member) {
                self.read(member, PROBE, false).await.ok();
            }
        };
        join_all((0..self.len()).map(look)).await;
    }

    /// Notes that a member holds a damaged part of a group in these regions.
    pub(crate) fn damaged(&self, regions: Range<u64>, part: DamagedPart) {
        self.met_damage.store(true, Ordering::Release);
        {
            let mut damage = self.damage.lock();
            for region in regions.clone() {
                let parts = damage.entry(region).or_default();
                if parts.len() < DAMAGED_PARTS_MAX {
                    parts.insert(part);
                }
            }
        }
        self.engine(|engine| regions.for_each(|region| engine.damaged(region)));
        self.work.notify_one();
    }

    /// Notes that everything in a region was rewritten.
    pub(crate) fn healed(&self, region: u64) {
        let healed = self.damage.lock().remove(&region).map_or(0, |parts| parts.len() as u64);
        self.count(|stats| stats.damage_healed += healed);
    }

    /// Records pages as bad, and returns once that is stored.
    pub(crate) async fn declare_bad(self: &Arc<Self>, ranges: &[ByteRange]) -> Result<()> {
        match self.engine(|engine| engine.declare_bad(ranges)).ok_or(Error::ReadOnly)? {
            Ok(epoch) => {
                let bytes: u64 = ranges.iter().map(|range| range.len).sum();
                tracing::error!("{bytes} bytes are lost: more was lost there than the layout survives");
                self.settle(epoch).await
            }
            Err(Full) => Err(full()),
        }
    }

    /// Records that the pages within a range were rewritten, and returns once that is stored.
    pub(crate) async fn heal(self: &Arc<Self>, range: ByteRange) -> Result<()> {
        match self.engine(|engine| engine.heal(range)).ok_or(Error::ReadOnly)? {
            Ok(epoch) => self.settle(epoch).await,
            Err(Full) => Err(full()),
        }
    }

    /// Whether a member has reported a damaged page.
    pub(crate) fn met_damage(&self) -> bool {
        self.met_damage.load(Ordering::Acquire)
    }

    /// Runs an event of resynchronization.
    pub(crate) fn with_engine<T>(&self, with: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        self.engine(with)
    }

    /// Returns once a map of at least this epoch is stored, and no reader elsewhere uses an older map to read the
    /// members that it excludes.
    pub(crate) async fn settle(self: &Arc<Self>, epoch: Epoch) -> Result<()> {
        self.until(epoch, Goal::Settled).await
    }

    async fn until(self: &Arc<Self>, epoch: Epoch, goal: Goal) -> Result<()> {
        let Some(writer) = &self.writer else { return Err(Error::ReadOnly) };
        let reached = match goal {
            Goal::Stored => &writer.stored_epoch,
            Goal::Settled => &writer.settled_epoch,
        };
        if reached.load(Ordering::Acquire) >= epoch {
            return Ok(());
        }
        let failures = writer.failed.lock().count;
        loop {
            let mut stored = std::pin::pin!(writer.stored.notified());
            stored.as_mut().enable();
            let next = {
                let mut engine = writer.engine.lock();
                let reached = match goal {
                    Goal::Stored => engine.stored(),
                    Goal::Settled => engine.settled(),
                };
                if reached >= epoch {
                    return Ok(());
                }
                let failed = writer.failed.lock();
                if failed.count - failures >= STORE_ATTEMPTS
                    && let Some(why) = &failed.why
                {
                    return Err(not_stored(why));
                }
                engine.next_store()
            };
            if let Some(map) = next {
                self.store(map);
            }
            stored.await;
        }
    }

    /// Stores a map in a task of its own: the write that needs it may be dropped.
    fn store(self: &Arc<Self>, map: Map) {
        let members = self.clone();
        tokio::spawn(async move {
            let Some(writer) = &members.writer else { return };
            let stored = writer.environment.store(map).await;
            {
                let mut failed = writer.failed.lock();
                failed.count += u64::from(stored.is_err());
                failed.why = stored.as_ref().err().cloned();
            }
            // The next map can be stored while readers still use older ones.
            let exclusion = writer.on_store(|engine| engine.store_finished(stored.is_ok()));
            if let Some(Exclusion { epoch, members, has_left }) = exclusion {
                writer.until_unread(members, has_left).await;
                writer.on_store(|engine| engine.unread(epoch));
            }
        });
    }

    /// Closes the drive: records that no writer has it open.
    pub async fn close(self: &Arc<Self>) -> Result<()> {
        match self.engine(Engine::close) {
            Some(epoch) => self.settle(epoch).await,
            None => Ok(()),
        }
    }
}

/// The error for a write whose map is not stored.
fn not_stored(why: &NotStored) -> Error {
    let text = format!("the drive's map cannot be stored at enough nodes: {why}").into();
    match why {
        NotStored::Fenced(_) => Error::Fenced(text),
        _ => Error::Io { context: "writing".into(), why: text, errno: cheetah_device::error::EIO },
    }
}

fn full() -> Error {
    Error::NoSpace("the list of bad ranges is full; write larger parts of them at a time".into())
}

/// A write that was admitted. Dropping it ends the write.
pub(crate) struct Admitted {
    members: Arc<Members>,
    regions: Range<u64>,
    /// Set to false if the write may have torn a group.
    pub consistent: bool,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let (regions, consistent) = (self.regions.clone(), self.consistent);
        self.members.engine(|engine| engine.finish(regions, consistent));
        if !consistent {
            self.members.work.notify_one();
        }
    }
}
