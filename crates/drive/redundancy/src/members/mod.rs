//! The members of a drive: their connections and state. `writer` carries out the engine's decisions.

mod count;
mod moves;
mod pace;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cheetah_device::reconnect::Backoff;
use cheetah_device::{ByteRange, Data, Error, Result};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use self::count::Count;
pub use self::moves::Moving;
use self::moves::Second;
use self::pace::Pace;
use self::writer::Writer;
use crate::bad::BadRanges;
use crate::engine::{Engine, Epoch};
use crate::environment::{DynLink, Environment};
use crate::map::{Map, MemberState, Regions};
use crate::read_lease::ReadLease;
use crate::timing::{
    HEDGE_AFTER, PROBE_PAUSE, PROBE_SILENCE_MAX, READ_SILENCE_MAX, RETURN_PATIENCE, SILENCE_CHECK, SILENCE_MAX,
    SILENT_CHECKS,
};

/// The first bytes of a member are read to see whether it answers.
const PROBE: ByteRange = ByteRange::new(0, 4096);

/// Counts of faults and of repairs, since the drive was opened. Writers leave them at the nodes, as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecoveryStats {
    /// Members that missed a write, and were excluded until they are resynchronized.
    pub members_lost: u64,
    /// Reads that a member answered too late or not at all.
    pub late_reads: u64,
    /// Reads of a group that were answered from other members while the answer of a late one was outstanding.
    pub hedged_reads_won: u64,
    /// Reads of a group of which a part was computed from other members.
    pub reconstructed_reads: u64,
    /// Bytes that were reconstructed from other members for a reader.
    pub reconstructed_bytes: u64,
    /// Reports of members that a range is damaged: its digest does not match.
    pub damaged_ranges: u64,
    /// Parts of groups that were damaged and have been rewritten.
    pub damage_healed: u64,
    /// Bytes that were written to members by resynchronization.
    pub resynced_bytes: u64,
}

/// The members of a drive, shared by its arrays.
pub struct Members {
    members: Vec<Member>,
    /// The number of members that are not ready to be read, so that a healthy drive is checked by one load.
    unready: AtomicUsize,
    /// When a member last ceased to be ready.
    lost_at: Mutex<Option<Instant>>,
    /// The epoch of the map whose states the members have. Locked while members are counted.
    applied: Mutex<Epoch>,
    writer: Option<Writer>,
    /// The lease of a reader of a drive that others may write meanwhile.
    read_lease: Option<Arc<ReadLease>>,
    /// The division of the drive into regions.
    regions: Regions,
    stats: Mutex<RecoveryStats>,
    met_damage: AtomicBool,
    /// Parts of groups that are damaged, by region, until they are rewritten.
    damage: Mutex<BTreeMap<u64, BTreeSet<DamagedPart>>>,
    bad: RwLock<Arc<BadRanges>>,
    /// Whether there are bad ranges, so that a drive without any is checked by one load.
    has_bad: AtomicBool,
    /// How often the bad ranges changed.
    bad_changes: AtomicU64,
    /// Bytes that users have read and written, counted on the busiest member.
    foreground_bytes: Count,
    pub(crate) pace: Pace,
    /// Notified when there may be something to resynchronize.
    pub(crate) work: Notify,
}

/// A part of a group that a member reported as damaged: the member, the group, and the number of the part.
pub(crate) type DamagedPart = (usize, u64, u64);

struct Member {
    name: Arc<str>,
    link: RwLock<Option<DynLink>>,
    in_sync: AtomicBool,
    /// Writes are sent to it.
    written: AtomicBool,
    /// It was late or lost, and has not answered since.
    suspect: AtomicBool,
    ready: AtomicBool,
    /// A task tries to reconnect to it.
    reconnecting: AtomicBool,
    /// Bytes of this process's reads from it, except those of failed reads.
    read_bytes: Count,
    /// Incremented when another member takes its place, so that a connection to the former one is not used for it.
    generation: AtomicU64,
    /// While it moves: the other node that gets its writes.
    second: RwLock<Option<Second>>,
    /// The epoch in which it last left a node. A write that this node did not get is acknowledged once the epoch is
    /// settled.
    left: AtomicU64,
}

/// Why a member's answer is missing.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// It is lost, silent or refuses. Other members may answer.
    Lost(Error),
    /// It has not answered in time.
    Late(Error),
    /// It reports that it cannot give this range; the rest of it may be well.
    Damaged(Error),
    /// The request itself fails on any member.
    Fatal(Error),
}

impl Failure {
    pub fn into_error(self) -> Error {
        match self {
            Self::Lost(error) | Self::Late(error) | Self::Damaged(error) | Self::Fatal(error) => error,
        }
    }

    fn of(error: Error) -> Self {
        match error {
            Error::Lost { .. } => Self::Lost(error),
            Error::Corrupt { .. } | Error::Unreadable { .. } | Error::Withheld { .. } => Self::Damaged(error),
            Error::Io { errno, .. } if errno == cheetah_device::error::EIO => Self::Damaged(error),
            Error::Io { .. } => Self::Lost(error),
            _ => Self::Fatal(error),
        }
    }
}

impl Members {
    /// The members of a drive that nobody writes meanwhile, with the newest map. The link of an unreachable member is
    /// `None`.
    pub fn reader(links: Vec<(Arc<str>, Option<DynLink>)>, map: &Map) -> Arc<Self> {
        Self::new(links, map, None, None)
    }

    /// The same while others may write: it reads only while it holds the lease, which its owner renews.
    pub fn leased_reader(links: Vec<(Arc<str>, Option<DynLink>)>, map: &Map, read_lease: Arc<ReadLease>) -> Arc<Self> {
        Self::new(links, map, None, Some(read_lease))
    }

    /// The same, for the holder of the write lease.
    pub fn writer(
        links: Vec<(Arc<str>, Option<DynLink>)>,
        engine: Engine,
        environment: Arc<dyn Environment>,
    ) -> Arc<Self> {
        let map = engine.map().clone();
        let left: Vec<Epoch> = (0..links.len()).map(|member| engine.left(member)).collect();
        let writer = Writer::new(engine, environment);
        let members = Self::new(links, &map, Some(writer), None);
        members.members.iter().zip(left).for_each(|(member, left)| member.left.store(left, Ordering::Release));
        members
    }

    fn new(
        links: Vec<(Arc<str>, Option<DynLink>)>,
        map: &Map,
        writer: Option<Writer>,
        read_lease: Option<Arc<ReadLease>>,
    ) -> Arc<Self> {
        let members = links.into_iter().map(|(name, link)| Member {
            name,
            link: RwLock::new(link),
            in_sync: AtomicBool::new(false),
            written: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            ready: AtomicBool::new(true),
            reconnecting: AtomicBool::new(false),
            read_bytes: Count::default(),
            generation: AtomicU64::new(0),
            second: RwLock::new(None),
            left: AtomicU64::new(0),
        });
        let all = Arc::new(Self {
            members: members.collect(),
            unready: AtomicUsize::new(0),
            lost_at: Mutex::default(),
            applied: Mutex::new(0),
            writer,
            read_lease,
            regions: map.unsettled.clone(),
            stats: Mutex::default(),
            met_damage: AtomicBool::new(false),
            damage: Mutex::default(),
            bad: RwLock::default(),
            has_bad: AtomicBool::new(false),
            bad_changes: AtomicU64::new(0),
            foreground_bytes: Count::default(),
            pace: Pace::default(),
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
        *self.stats.lock()
    }

    /// Counts a fault or a repair.
    pub(crate) fn count(&self, count: impl FnOnce(&mut RecoveryStats)) {
        count(&mut self.stats.lock());
    }

    /// Applies the states of a newer map. An older map changes nothing.
    pub fn apply(&self, map: &Map) {
        self.follow(map, Vec::new());
    }

    /// Applies the states of a newer map, together with connections to the members that moved (`None` where there is
    /// none now). A reader never reads a member by the state of another member's place.
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
        // Before the states: a member that is in sync except for bad pages may be read only by those that know these
        // pages.
        if **self.bad.read() != map.bad {
            *self.bad.write() = Arc::new(map.bad.clone());
            self.has_bad.store(!map.bad.is_empty(), Ordering::Release);
            // Last, so that a read that begins in between is repeated.
            self.bad_changes.fetch_add(1, Ordering::Release);
        }
        for (member, entry) in self.members.iter().zip(&map.members) {
            member.written.store(entry.state.is_written(), Ordering::Release);
            member.in_sync.store(entry.state == MemberState::InSync, Ordering::Release);
        }
        self.count_unready();
    }

    /// The bad ranges of the drive, in order: pages whose content is lost although the members answer. Reads of them
    /// fail. Writing whole pages makes them good.
    pub fn bad_ranges(&self) -> Vec<ByteRange> {
        self.bad().map_or_else(Vec::new, |bad| bad.iter().collect())
    }

    /// How often the bad ranges have changed: the count is equal before and after a read if they did not change during
    /// it.
    pub(crate) fn bad_changes(&self) -> u64 {
        self.bad_changes.load(Ordering::Acquire)
    }

    /// The bad ranges; `None` if there are none.
    pub(crate) fn bad(&self) -> Option<Arc<BadRanges>> {
        self.has_bad.load(Ordering::Acquire).then(|| self.bad.read().clone())
    }

    /// Replaces the connection to a member.
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
            if member.ready.swap(ready, Ordering::AcqRel) && !ready {
                *self.lost_at.lock() = Some(Instant::now());
            }
            unready += usize::from(!ready);
        }
        self.unready.store(unready, Ordering::Release);
    }

    /// Whether a member was lost so recently that a member lost before may be back but not reconnected yet.
    pub(crate) fn may_return(&self) -> bool {
        self.lost_at.lock().is_some_and(|lost_at| lost_at.elapsed() < RETURN_PATIENCE)
    }

    /// Whether every member can be read.
    pub fn all_ready(&self) -> bool {
        self.unready.load(Ordering::Acquire) == 0
    }

    /// Whether a member can be read and has answered recently.
    pub(crate) fn is_ready(&self, member: usize) -> bool {
        self.members[member].ready.load(Ordering::Acquire)
    }

    /// Whether a member holds the current content, although it may not answer.
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

    /// Returns when a user's read may begin: a reader elsewhere must know of every loss.
    pub(crate) async fn may_read(&self, range: ByteRange) -> Result<()> {
        let Some(lease) = &self.read_lease else { return Ok(()) };
        let waited = lease.wait().await;
        waited.map_err(|why| Error::Lost { device: "the drive".into(), range, why: why.to_string().into() })
    }

    /// Counts a user's request: its bytes on the busiest member.
    pub(crate) fn foreground(&self, bytes: u64) {
        self.foreground_bytes.add(bytes + 1);
    }

    /// The bytes counted by [`foreground`](Self::foreground), and the known bytes that other processes have read.
    pub(crate) fn foreground_bytes(&self) -> u64 {
        self.foreground_bytes.get() + self.pace.others_bytes()
    }

    /// The bytes that this process has read from each member.
    pub(crate) fn own_read_bytes(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.read_bytes.get()).collect()
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
        let read = self.read_counted(member, &link, range);
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
                    Failure::Lost(_) | Failure::Late(_) => self.suspect(member),
                    Failure::Damaged(_) => self.count(|stats| stats.damaged_ranges += 1),
                    Failure::Fatal(_) => {}
                }
                Err(failure)
            }
            None => {
                self.count(|stats| stats.late_reads += 1);
                self.suspect(member);
                Err(Failure::Late(self.lost(member, range, "its answer is late")))
            }
        }
    }

    /// Reads over a connection. Counts the bytes before the request is sent: the excess of the member's count over
    /// these counts is the reads of others.
    async fn read_counted(&self, member: usize, link: &DynLink, range: ByteRange) -> Result<Data> {
        let count = &self.members[member].read_bytes;
        count.add(range.len);
        let answer = link.device().read(range).await;
        if answer.is_err() {
            count.take_back(range.len);
        }
        answer
    }

    /// Reads from a member that is being resynchronized; its content may be old. `None` if it does not answer, empty
    /// data if it reports that it has lost the range.
    pub(crate) async fn read_unsynced(&self, member: usize, range: ByteRange) -> Option<Data> {
        let link = self.link(member)?;
        let read = self.read_counted(member, &link, range);
        match unless_silent(&link, SILENCE_MAX, read).await?.map_err(Failure::of) {
            Ok(data) => Some(data),
            Err(Failure::Damaged(_)) => Some(Data::new()),
            Err(_) => None,
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
            let mut backoff = Backoff::default();
            loop {
                sleep(PROBE_PAUSE + backoff.next_pause()).await;
                let Some(members) = weak.upgrade() else { return };
                if !members.members[member].suspect.load(Ordering::Acquire) {
                    return;
                }
                let Some(link) = members.link(member) else { return };
                members.members[member].read_bytes.add(PROBE.len);
                drop(members);
                let answer = unless_silent(&link, PROBE_SILENCE_MAX, link.device().read(PROBE)).await;
                let Some(members) = weak.upgrade() else { return };
                let answer = answer.unwrap_or_else(|| Err(members.lost(member, PROBE, "it is silent")));
                match answer.map_err(Failure::of) {
                    Err(Failure::Lost(why @ Error::Lost { .. }))
                        if members.is_writer() && members.has_link(member, &link) =>
                    {
                        members.missed(member, &why).await.ok();
                    }
                    Err(Failure::Lost(_)) => {}
                    // A damaged page is also an answer.
                    _ => {
                        members.change_member(member, |member| member.suspect.store(false, Ordering::Release));
                        return;
                    }
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

    /// Runs an operation on one member, and again if the connection was replaced meanwhile.
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

    /// Whether this is the current connection to a member.
    fn has_link(&self, member: usize, link: &DynLink) -> bool {
        self.members[member].link.read().as_ref().is_some_and(|now| Arc::ptr_eq(now, link))
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
