//! The members of a drive: their connections and condition, and the engine with what carries out its decisions.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Error, Result};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::engine::{Engine, Epoch, Indispensable};
use crate::environment::{DynLink, Environment};
use crate::map::{Map, MemberState, Regions};

/// A read that takes longer than this is answered by the other members. Far above what a busy network takes, far below what
/// a tool would call a stall.
pub const HEDGE_AFTER: Duration = Duration::from_millis(200);
/// A member that has been silent for longer while it owes the answer to a write has missed the write.
pub const SILENCE_MAX: Duration = Duration::from_millis(500);
/// A reader that has no other member to ask waits longer.
const READ_SILENCE_MAX: Duration = Duration::from_secs(10);
/// How often silence is looked at.
const SILENCE_CHECK: Duration = Duration::from_millis(50);
/// How many checks in a row must find it: after this process was frozen, the first finds silence that was its own.
const SILENT_CHECKS: u32 = 3;
/// The pause between attempts to reach a member that was late or lost.
const PROBE_PAUSE: Duration = Duration::from_millis(100);
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often storing the map may fail before the write that needs it fails: twice for each member that may be lost meanwhile.
const STORE_ATTEMPTS: u32 = 6;
/// The first bytes of a member are read to see whether it answers.
const PROBE: ByteRange = ByteRange::new(0, 4096);

/// Counts of what went wrong and was made good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryStats {
    /// Reads that a member answered too late or not at all.
    pub late_reads: u64,
    /// Bytes that were reconstructed from other members for a reader.
    pub reconstructed_bytes: u64,
    /// Ranges that a member reported as damaged.
    pub damaged_ranges: u64,
    /// Members that missed a write and were marked stale.
    pub members_lost: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub late_reads: AtomicU64,
    pub reconstructed_bytes: AtomicU64,
    pub damaged_ranges: AtomicU64,
    pub members_lost: AtomicU64,
}

/// The members of a drive, shared by its arrays.
pub struct Members {
    members: Vec<Member>,
    /// The number of members that are not ready to be read, so that a healthy drive looks at one word.
    unready: AtomicUsize,
    /// Held while it is counted: the epoch of the map whose states the members have.
    applied: Mutex<Epoch>,
    writer: Option<Writer>,
    /// The division of the drive into regions.
    regions: Regions,
    pub(crate) counters: Counters,
    met_damage: AtomicBool,
    /// Notified when there may be something to resynchronize.
    pub(crate) work: Notify,
}

/// What only a writer has.
struct Writer {
    engine: Mutex<Engine>,
    environment: Arc<dyn Environment>,
    stored: Notify,
    /// Why the map could not be stored last.
    store_failure: Mutex<Option<Arc<str>>>,
    /// How often in a row it could not.
    store_failures: AtomicUsize,
}

struct Member {
    name: Arc<str>,
    link: RwLock<Option<DynLink>>,
    in_sync: AtomicBool,
    /// It was late or lost, and has not answered since.
    suspect: AtomicBool,
    ready: AtomicBool,
    /// A task tries to connect to it anew.
    reconnecting: AtomicBool,
    /// Grows when another member takes its place, so that no connection to the former one is taken for it.
    generation: AtomicU64,
}

/// Why a member's answer is missing.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// It is lost, silent, late or refuses: others may answer.
    Lost(Error),
    /// It reports that it cannot give this range; the rest of it may be well.
    Damaged(Error),
    /// The request itself fails, whichever member is asked.
    Fatal(Error),
}

impl Failure {
    pub fn into_error(self) -> Error {
        match self {
            Self::Lost(error) | Self::Damaged(error) | Self::Fatal(error) => error,
        }
    }

    fn of(error: Error) -> Self {
        match error {
            Error::Lost { .. } => Self::Lost(error),
            Error::Corrupt { .. } | Error::Unreadable { .. } => Self::Damaged(error),
            Error::Io { errno, .. } if errno == cheetah_device::error::EIO => Self::Damaged(error),
            Error::Io { .. } => Self::Lost(error),
            _ => Self::Fatal(error),
        }
    }
}

impl Members {
    /// The members of a drive, with the newest map; `None` for a member that cannot be reached.
    pub fn reader(links: Vec<(Arc<str>, Option<DynLink>)>, map: &Map) -> Arc<Self> {
        Self::new(links, map, None)
    }

    /// The same, for the holder of the write lease.
    pub fn writer(
        links: Vec<(Arc<str>, Option<DynLink>)>,
        engine: Engine,
        environment: Arc<dyn Environment>,
    ) -> Arc<Self> {
        let map = engine.map().clone();
        let writer = Writer {
            engine: Mutex::new(engine),
            environment,
            stored: Notify::new(),
            store_failure: Mutex::new(None),
            store_failures: AtomicUsize::new(0),
        };
        Self::new(links, &map, Some(writer))
    }

    fn new(links: Vec<(Arc<str>, Option<DynLink>)>, map: &Map, writer: Option<Writer>) -> Arc<Self> {
        let members = links.into_iter().map(|(name, link)| Member {
            name,
            link: RwLock::new(link),
            in_sync: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            ready: AtomicBool::new(true),
            reconnecting: AtomicBool::new(false),
            generation: AtomicU64::new(0),
        });
        let all = Arc::new(Self {
            members: members.collect(),
            unready: AtomicUsize::new(0),
            applied: Mutex::new(0),
            writer,
            regions: map.unsettled.clone(),
            counters: Counters::default(),
            met_damage: AtomicBool::new(false),
            work: Notify::new(),
        });
        all.apply(map);
        all
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A member's name, as the user wrote it.
    pub fn name(&self, member: usize) -> &Arc<str> {
        &self.members[member].name
    }

    /// Counts since it was opened.
    pub fn stats(&self) -> RecoveryStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RecoveryStats {
            late_reads: read(&self.counters.late_reads),
            reconstructed_bytes: read(&self.counters.reconstructed_bytes),
            damaged_ranges: read(&self.counters.damaged_ranges),
            members_lost: read(&self.counters.members_lost),
        }
    }

    /// Takes over the states of a newer map; an older one changes nothing.
    pub fn apply(&self, map: &Map) {
        self.follow(map, Vec::new());
    }

    /// Takes over the states of a newer map along with connections to the members that moved; `None` where there is none
    /// now. A reader never reads a member by the state of another's place.
    pub fn follow(&self, map: &Map, moved: Vec<(usize, Option<DynLink>)>) {
        let mut applied = self.applied.lock();
        if map.epoch < *applied {
            return;
        }
        *applied = map.epoch;
        for (member, link) in moved {
            self.members[member].in_sync.store(false, Ordering::Release);
            *self.members[member].link.write() = link;
            self.members[member].suspect.store(false, Ordering::Release);
        }
        for (member, entry) in self.members.iter().zip(&map.members) {
            member.in_sync.store(entry.state == MemberState::InSync, Ordering::Release);
        }
        self.count_unready();
    }

    /// Puts a connection in the place of a member's former one.
    pub fn connect(&self, member: usize, link: DynLink) {
        self.change_member(member, |member| {
            *member.link.write() = Some(link);
            member.suspect.store(false, Ordering::Release);
        });
    }

    /// Whether there is a connection to a member.
    pub fn is_connected(&self, member: usize) -> bool {
        self.members[member].link.read().is_some()
    }

    fn change_member<T>(&self, member: usize, change: impl FnOnce(&Member) -> T) -> T {
        let _applied = self.applied.lock();
        let out = change(&self.members[member]);
        self.count_unready();
        out
    }

    /// Called with `applied` locked.
    fn count_unready(&self) {
        let mut unready = 0;
        for member in &self.members {
            let ready = member.in_sync.load(Ordering::Acquire)
                && !member.suspect.load(Ordering::Acquire)
                && member.link.read().is_some();
            member.ready.store(ready, Ordering::Release);
            unready += usize::from(!ready);
        }
        self.unready.store(unready, Ordering::Release);
    }

    /// Whether every member can be read.
    pub fn all_ready(&self) -> bool {
        self.unready.load(Ordering::Acquire) == 0
    }

    /// Whether a member can be read, and answered lately.
    pub(crate) fn is_ready(&self, member: usize) -> bool {
        self.members[member].ready.load(Ordering::Acquire)
    }

    /// Whether a member holds what is current, although it may not answer.
    pub(crate) fn is_in_sync(&self, member: usize) -> bool {
        self.members[member].in_sync.load(Ordering::Acquire)
    }

    pub(crate) fn link(&self, member: usize) -> Option<DynLink> {
        self.members[member].link.read().clone()
    }

    /// Whether this is a writer's view.
    pub(crate) fn is_writer(&self) -> bool {
        self.writer.is_some()
    }

    /// Reads from one member. Unless `patient`, an answer that is late counts as lost.
    pub(crate) async fn read(
        self: &Arc<Self>,
        member: usize,
        range: ByteRange,
        patient: bool,
    ) -> std::result::Result<Data, Failure> {
        let Some(link) = self.link(member).filter(|_| self.is_in_sync(member)) else {
            return Err(Failure::Lost(self.lost(member, range, "it is not connected, or not in sync")));
        };
        let read = link.device().read(range);
        let answer = match patient {
            true => unless_silent(&link, READ_SILENCE_MAX, read).await,
            false => timeout(HEDGE_AFTER, read).await.ok(),
        };
        match answer {
            Some(Ok(data)) if data.len() == range.len => Ok(data),
            Some(Ok(_)) => Err(Failure::Fatal(Error::Invalid("a member answered with too few bytes".into()))),
            Some(Err(error)) => {
                let failure = Failure::of(error);
                match &failure {
                    Failure::Lost(_) => self.suspect(member),
                    Failure::Damaged(_) => {
                        self.counters.damaged_ranges.fetch_add(1, Ordering::Relaxed);
                    }
                    Failure::Fatal(_) => {}
                }
                Err(failure)
            }
            None => {
                self.counters.late_reads.fetch_add(1, Ordering::Relaxed);
                self.suspect(member);
                Err(Failure::Lost(self.lost(member, range, "its answer is late")))
            }
        }
    }

    fn lost(&self, member: usize, range: ByteRange, why: &str) -> Error {
        Error::Lost { device: self.name(member).clone(), range, why: why.into() }
    }

    /// Reads from the other members until this one answers.
    fn suspect(self: &Arc<Self>, member: usize) {
        if self.change_member(member, |member| member.suspect.swap(true, Ordering::AcqRel)) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut pause = PROBE_PAUSE;
            loop {
                sleep(pause).await;
                pause = (pause * 2).min(PROBE_PAUSE_MAX);
                let Some(members) = weak.upgrade() else { return };
                if !members.members[member].suspect.load(Ordering::Acquire) {
                    return;
                }
                let Some(link) = members.link(member) else { return };
                drop(members);
                let answer = match timeout(PROBE_TIMEOUT, link.device().read(PROBE)).await {
                    Ok(answer) => answer.map_err(Failure::of),
                    Err(_) => Err(Failure::Lost(Error::Invalid("a probe is not answered".into()))),
                };
                let Some(members) = weak.upgrade() else { return };
                // A damaged page is an answer, too.
                if let Err(Failure::Lost(why)) = &answer {
                    // A member that is slow only is kept.
                    let is_lost = matches!(why, Error::Lost { .. }) || link.silent_for() > Some(SILENCE_MAX);
                    if is_lost && members.is_writer() && members.has_link(member, &link) {
                        members.missed(member, why).await.ok();
                    }
                } else {
                    members.change_member(member, |member| member.suspect.store(false, Ordering::Release));
                    return;
                }
            }
        });
    }

    /// Writes to one member, for as long as it answers anything.
    pub(crate) async fn write(
        &self,
        member: usize,
        edits: &[(u64, Data)],
        fua: bool,
    ) -> std::result::Result<(), Failure> {
        let range = edits.first().map_or(PROBE, |(offset, data)| ByteRange::new(*offset, data.len()));
        self.while_answering(member, range, |link| async move {
            let writes = edits.iter().map(|(offset, data)| link.device().write(*offset, data.clone(), fua));
            futures::future::join_all(writes).await.into_iter().collect()
        })
        .await
    }

    /// Flushes one member.
    pub(crate) async fn flush(&self, member: usize) -> std::result::Result<(), Failure> {
        self.while_answering(member, PROBE, |link| async move { link.device().flush().await }).await
    }

    /// Runs an operation on one member, and anew if the connection was replaced meanwhile.
    async fn while_answering<F: Future<Output = Result<()>>>(
        &self,
        member: usize,
        range: ByteRange,
        operation: impl Fn(DynLink) -> F,
    ) -> std::result::Result<(), Failure> {
        loop {
            let Some(link) = self.link(member) else {
                return Err(Failure::Lost(self.lost(member, range, "it is not connected")));
            };
            let failure = match unless_silent(&link, SILENCE_MAX, operation(link.clone())).await {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => Failure::of(error),
                None => Failure::Lost(self.lost(member, range, "it is silent")),
            };
            if self.has_link(member, &link) {
                return Err(failure);
            }
        }
    }

    /// Whether this is the connection to a member now.
    fn has_link(&self, member: usize, link: &DynLink) -> bool {
        self.members[member].link.read().as_ref().is_some_and(|now| Arc::ptr_eq(now, link))
    }

    // ---- the writer's part ----

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

    /// The number of regions whose redundancy may not agree with the data, other than by writes in flight.
    pub fn to_settle(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.engine.lock().to_settle())
    }

    /// Whether writes are sent to a member.
    pub(crate) fn is_written(&self, member: usize) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.engine.lock().map().members[member].state.is_written())
    }

    /// The regions that the drive's bytes from `start` up to `end` touch.
    pub(crate) fn regions_touched(&self, start: u64, end: u64) -> Range<u64> {
        self.regions.touched(start, end)
    }

    /// The range of the drive that a region is.
    pub(crate) fn region_range(&self, region: u64) -> ByteRange {
        ByteRange::new(region * self.regions.region_bytes(), self.regions.region_bytes())
    }

    /// Admits a write to the regions, once they are recorded in a stored map.
    pub(crate) async fn admit(self: &Arc<Self>, regions: Range<u64>) -> Result<Admitted> {
        let Some(epoch) = self.engine(|engine| engine.admit(regions.clone())) else { return Err(Error::ReadOnly) };
        let mut admitted = Admitted { members: self.clone(), regions, consistent: true };
        if let Err(error) = self.settle(epoch).await {
            admitted.consistent = true;
            return Err(error);
        }
        Ok(admitted)
    }

    /// Notes that a member missed a write or a flush, and returns once that is stored. Fails if the member is indispensable.
    pub(crate) async fn missed(
        self: &Arc<Self>,
        member: usize,
        why: &Error,
    ) -> Result<std::result::Result<(), Indispensable>> {
        let marked = self.engine(|engine| (engine.stale_since(member).is_none(), engine.mark_stale(member)));
        match marked {
            None => Err(Error::ReadOnly),
            Some((_, Err(indispensable))) => {
                // What it was sent must not take effect after the write was given up.
                self.cut(member);
                Ok(Err(indispensable))
            }
            Some((lost, Ok(epoch))) => {
                if lost {
                    tracing::warn!("{} is lost, the drive goes on without it: {why}", self.name(member));
                    self.counters.members_lost.fetch_add(1, Ordering::Relaxed);
                    self.cut(member);
                }
                self.settle(epoch).await.map(Ok)
            }
        }
    }

    /// Returns once it is stored that a member is stale; false if it is not stale any more.
    pub(crate) async fn stale_recorded(self: &Arc<Self>, member: usize) -> Result<bool> {
        match self.engine(|engine| engine.stale_since(member)).flatten() {
            Some(epoch) => self.settle(epoch).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Drops the connection to a member, and with it what is queued there, and connects anew later.
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
            let mut pause = PROBE_PAUSE;
            loop {
                sleep(pause).await;
                pause = (pause * 2).min(PROBE_PAUSE_MAX);
                let Some(members) = weak.upgrade() else { return };
                let Some(writer) = &members.writer else { return };
                // Another connection would cut off the one that a replaced member has by now.
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
                    members.record_return(member, epoch).await;
                    if members.ends_reconnecting(member) {
                        return;
                    }
                }
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

    /// Takes a new connection to a member, unless another one was made or the member was replaced meanwhile.
    fn reconnected(&self, member: usize, link: DynLink, generation: u64) -> Option<Epoch> {
        self.engine(|engine| {
            let own = &self.members[member];
            if self.is_connected(member) || own.generation.load(Ordering::Acquire) != generation {
                return None;
            }
            // Connected first: from the change of state on, writes are sent to it.
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
                    self.record_return(member, epoch).await;
                }
                self.is_written(member)
            }
            Err(why) => {
                tracing::debug!("{} is lost: {why}", self.name(member));
                false
            }
        }
    }

    /// Puts an empty member in the place of one that the drive can spare.
    pub(crate) async fn replace(self: &Arc<Self>, member: usize, link: DynLink) -> Result<()> {
        let replaced = self.engine(|engine| {
            let epoch = engine.replace(member)?;
            self.members[member].generation.fetch_add(1, Ordering::AcqRel);
            self.connect(member, link);
            Ok::<_, Indispensable>(epoch)
        });
        match replaced.ok_or(Error::ReadOnly)? {
            Ok(epoch) => {
                self.record_return(member, epoch).await;
                Ok(())
            }
            Err(Indispensable) => {
                let why =
                    format!("{} cannot be replaced: the other members do not hold all its bytes", self.name(member));
                Err(Error::Invalid(why.into()))
            }
        }
    }

    /// Stores that a member takes part again.
    async fn record_return(self: &Arc<Self>, member: usize, epoch: Epoch) {
        if let Err(error) = self.settle(epoch).await {
            tracing::warn!("{} takes part again, which could not be recorded yet: {error}", self.name(member));
        }
        self.work.notify_one();
    }

    /// Looks after the members while nothing else does: one that is lost is to be noticed, and replaced, before the next.
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
        futures::future::join_all((0..self.len()).map(look)).await;
    }

    /// Notes that a member holds a damaged page in these regions.
    pub(crate) fn damaged(&self, regions: Range<u64>) {
        self.met_damage.store(true, Ordering::Release);
        self.engine(|engine| regions.for_each(|region| engine.damaged(region)));
        self.work.notify_one();
    }

    /// Whether a member has reported a damaged page.
    pub(crate) fn met_damage(&self) -> bool {
        self.met_damage.load(Ordering::Acquire)
    }

    /// Runs an event of resynchronization.
    pub(crate) fn with_engine<T>(&self, with: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        self.engine(with)
    }

    /// Returns once a map of at least this epoch is stored.
    pub(crate) async fn settle(self: &Arc<Self>, epoch: Epoch) -> Result<()> {
        let Some(writer) = &self.writer else { return Err(Error::ReadOnly) };
        let mut failures = 0;
        loop {
            let mut stored = std::pin::pin!(writer.stored.notified());
            stored.as_mut().enable();
            let next = {
                let mut engine = writer.engine.lock();
                if engine.stored() >= epoch {
                    return Ok(());
                }
                if failures >= STORE_ATTEMPTS
                    && let Some(why) = writer.store_failure.lock().clone()
                {
                    let why = format!("the drive's map cannot be stored at enough nodes: {why}");
                    return Err(Error::Io {
                        context: "writing".into(),
                        why: why.into(),
                        errno: cheetah_device::error::EIO,
                    });
                }
                engine.next_store()
            };
            if let Some(map) = next {
                self.store(map);
            }
            stored.await;
            failures += u32::from(writer.store_failure.lock().is_some());
        }
    }

    /// Stores a map in a task of its own: the write that wants it may be given up.
    fn store(self: &Arc<Self>, map: Map) {
        let members = self.clone();
        tokio::spawn(async move {
            let Some(writer) = &members.writer else { return };
            let stored = writer.environment.store(map).await;
            *writer.store_failure.lock() = stored.as_ref().err().map(|failed| failed.why.as_str().into());
            writer.engine.lock().store_finished(stored.is_ok());
            match stored {
                Ok(()) => writer.store_failures.store(0, Ordering::Relaxed),
                Err(failed) if writer.store_failures.fetch_add(1, Ordering::Relaxed) > 0 => {
                    failed.members.into_iter().for_each(|member| members.lacks_map(member, &failed.why));
                }
                Err(_) => {}
            }
            writer.stored.notify_waiters();
        });
    }

    /// A member that takes no maps would hold an old one, in which it is in sync: it counts as lost.
    fn lacks_map(self: &Arc<Self>, member: usize, why: &str) {
        let lost = self.engine(|engine| engine.stale_since(member).is_none() && engine.mark_stale(member).is_ok());
        if lost == Some(true) {
            tracing::warn!("{} takes no map, the drive goes on without it: {why}", self.name(member));
            self.counters.members_lost.fetch_add(1, Ordering::Relaxed);
            self.cut(member);
        }
    }

    /// Ends in order: records that no writer has the drive open.
    pub async fn close(self: &Arc<Self>) -> Result<()> {
        match self.engine(Engine::close) {
            Some(epoch) => self.settle(epoch).await,
            None => Ok(()),
        }
    }
}

/// Waits for an answer for as long as the member answers anything; `None` if it is silent for `silence_max`.
async fn unless_silent<T>(link: &DynLink, silence_max: Duration, operation: impl Future<Output = T>) -> Option<T> {
    let mut operation = std::pin::pin!(operation);
    let mut silent_checks = 0;
    while silent_checks < SILENT_CHECKS {
        match timeout(SILENCE_CHECK, &mut operation).await {
            Ok(out) => return Some(out),
            Err(_) if link.silent_for().is_some_and(|silent| silent > silence_max) => silent_checks += 1,
            Err(_) => silent_checks = 0,
        }
    }
    None
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
