//! The exports of a node by name, with their leases, and their opening by NBD clients.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, Device as _, Error, Fill, Io, Result as DeviceResult, Zeroing};
use cheetah_error::{Next, next};
use cheetah_kit::random;
use cheetah_nbd::server;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::export::{Export, ExportStats};
use crate::instance::Instance;
use crate::lease::{BadToken, Lease, LeaseRefusal, Token};
use crate::maps::{self, Maps};
use crate::replaced::{ConnectionNumber, Connections, ReplacedFlag};
use crate::store::Store;
use cheetah_control::api::{
    DRAINING_TO_MAX, DROPPED_MAX, Draining, Dropped, ExportStatus, LeaseGrant, LeaseRequest, LeaseStatus,
    NOTE_BYTES_MAX, NOTES_MAX, NewExport, NewMap, NewNote, Notes, StoredMap, Wiped,
};

/// The most exports of a node.
pub const EXPORTS_MAX: usize = 256;
/// Longest name of an export, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Longest name of a note, in bytes.
const NOTE_NAME_BYTES_MAX: usize = 64;

const INSTANCE_CONTEXT: &str = "x-cheetah:instance/";
const LEASE_CONTEXT: &str = "x-cheetah:lease/";
const CONNECTION_CONTEXT: &str = "x-cheetah:connection/";

/// The exports of one node.
pub struct Exports {
    store: Arc<Store>,
    instance: Instance,
    by_name: RwLock<BTreeMap<String, Arc<Entry>>>,
    /// Only of exports in `by_name`, which is locked first.
    maps: Mutex<Maps>,
    /// Read-locked while an export is created or deleted; write-locked once, to end both.
    open: RwLock<bool>,
    /// Set while the node is about to leave.
    draining: RwLock<Option<Draining>>,
    /// The exports that were dropped last because the machine needed the memory, oldest first.
    dropped: Mutex<VecDeque<Dropped>>,
}

struct Entry {
    export: Arc<Export>,
    /// Read-locked during each write.
    lease: RwLock<Lease>,
    named: Connections,
    connections: AtomicUsize,
    notes: Mutex<Notes>,
    /// When it is dropped at the earliest, if the machine needs its memory.
    leave_by: Mutex<Option<Instant>>,
    /// When it is deleted unless its creator confirms it before.
    confirm_by: Mutex<Option<Instant>>,
}

/// Why an operation on exports failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportsError {
    /// The name is taken.
    #[error("export '{0}' exists already")]
    Exists(String),
    /// No export has this name.
    #[error("this node has no export '{0}'")]
    NotFound(String),
    /// The name is malformed.
    #[error("'{0}' cannot name an export: use 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -")]
    BadName(String),
    /// The token is malformed.
    #[error(transparent)]
    BadToken(#[from] BadToken),
    /// The node has the most exports already.
    #[error("this node has {EXPORTS_MAX} exports, and no more fit")]
    TooMany,
    /// The node is about to end.
    #[error("this node is shutting down")]
    Ending,
    /// The node is about to leave.
    #[error("this node is draining, and takes no new exports")]
    Draining,
    /// A draining node names too many others.
    #[error("a draining node's parts go to at most {DRAINING_TO_MAX} nodes")]
    TooManyNodes,
    /// The store refused.
    #[error("{0}")]
    Store(#[from] Error),
    /// The lease refused.
    #[error("{0}")]
    Lease(#[from] LeaseRefusal),
    /// The map was refused.
    #[error("{0}")]
    Map(#[from] maps::MapRefusal),
    /// The name of a note is malformed.
    #[error("'{0}' cannot name a note: use 1 to {NOTE_NAME_BYTES_MAX} of a-z -")]
    BadNoteName(String),
    /// A note is too long.
    #[error("a note of {0} bytes is too long: the most is {NOTE_BYTES_MAX}")]
    NoteTooLong(usize),
    /// The export has the most notes already.
    #[error("an export has at most {NOTES_MAX} notes")]
    TooManyNotes,
}

impl ExportsError {
    /// The next step, if there is one.
    pub fn next(&self) -> Option<Next> {
        matches!(self, Self::Draining).then(|| next::Node::Undrain.into())
    }
}

type Result<T> = std::result::Result<T, ExportsError>;

impl Exports {
    /// Creates a node's exports, none yet, in the memory of `store`.
    pub fn new(store: Arc<Store>, instance: Instance) -> Arc<Self> {
        let (by_name, maps) = (RwLock::default(), Mutex::default());
        let (draining, dropped) = (RwLock::default(), Mutex::default());
        Arc::new(Self { store, instance, by_name, maps, open: RwLock::new(true), draining, dropped })
    }

    /// Marks the node as about to leave, or takes the mark back. Until then, no export is created.
    ///
    /// # Errors
    ///
    /// If it names too many nodes that may take its parts.
    pub fn set_draining(&self, draining: Option<Draining>) -> Result<()> {
        if draining.as_ref().is_some_and(|draining| draining.to.len() > DRAINING_TO_MAX) {
            return Err(ExportsError::TooManyNodes);
        }
        *self.draining.write() = draining;
        Ok(())
    }

    /// The mark, while the node is about to leave.
    pub fn draining(&self) -> Option<Draining> {
        self.draining.read().clone()
    }

    /// Asks the writers of these exports, and of no others, to move them elsewhere by these times.
    pub fn set_leaving(&self, leaving: &BTreeMap<String, Instant>) {
        for (name, entry) in self.by_name.read().iter() {
            *entry.leave_by.lock() = leaving.get(name).copied();
        }
    }

    /// Deletes an export regardless of its lease, because the machine needs the memory. The node's status names it.
    pub fn drop_export(&self, name: &str) -> Result<Wiped> {
        let _wiping = self.open.read();
        let entry = self.entry(name)?;
        {
            let _no_lease_is_granted = entry.lease.write();
            // Before its clients find it gone.
            let mut dropped = self.dropped.lock();
            if dropped.len() == DROPPED_MAX {
                dropped.pop_front();
            }
            dropped.push_back(Dropped { export: name.to_owned(), size_bytes: entry.export.geometry().size });
            drop(dropped);
            self.take(name, &entry)?;
        }
        Ok(entry.export.delete())
    }

    /// The exports that were dropped last, oldest first.
    pub fn dropped(&self) -> Vec<Dropped> {
        self.dropped.lock().iter().cloned().collect()
    }

    /// The memory under the exports.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Creates an export, all holes.
    pub fn create(&self, new: &NewExport) -> Result<ExportStatus> {
        self.create_unconfirmed(new, None)
    }

    /// Notes that the creator of an export has recorded it or, with a time, that it is deleted unless confirmed by then.
    /// An export that was confirmed stays so.
    pub fn confirm(&self, name: &str, confirm_by: Option<Instant>) -> Result<()> {
        let entry = self.entry(name)?;
        let mut due = entry.confirm_by.lock();
        *due = due.and(confirm_by);
        Ok(())
    }

    /// When an export is deleted unless it is confirmed; `None` if it is confirmed, or gone.
    pub fn confirm_by(&self, name: &str) -> Option<Instant> {
        *self.entry(name).ok()?.confirm_by.lock()
    }

    /// Deletes an export that was not confirmed in time; `None` if it was, or has a writer.
    pub fn delete_unconfirmed(&self, name: &str) -> Option<Wiped> {
        let _wiping = self.open.read();
        let entry = self.entry(name).ok()?;
        {
            let lease = entry.lease.write();
            let now = Instant::now();
            let is_due = entry.confirm_by.lock().is_some_and(|due| due <= now);
            if !is_due || lease.holder(now).is_some() {
                return None;
            }
            self.take(name, &entry).ok()?;
        }
        Some(entry.export.delete())
    }

    /// The same as [`Self::create`], of an export that is deleted unless it is confirmed by this time.
    pub fn create_unconfirmed(&self, new: &NewExport, confirm_by: Option<Instant>) -> Result<ExportStatus> {
        if !is_name(&new.name) {
            return Err(ExportsError::BadName(shown(&new.name)));
        }
        let open = self.open.read();
        if !*open {
            return Err(ExportsError::Ending);
        }
        // Held until the export exists: none is created once the mark is set.
        let draining = self.draining.read();
        if draining.is_some() {
            return Err(ExportsError::Draining);
        }
        let mut by_name = self.by_name.write();
        if by_name.contains_key(&new.name) {
            return Err(ExportsError::Exists(new.name.clone()));
        }
        if by_name.len() >= EXPORTS_MAX {
            return Err(ExportsError::TooMany);
        }
        let export = Export::new(&self.store, &new.name, new.size_bytes, new.reserve, new.digests)?;
        let (lease, named) = (RwLock::default(), Connections::default());
        let (connections, notes) = (AtomicUsize::new(0), Mutex::default());
        let (leave_by, confirm_by) = (Mutex::default(), Mutex::new(confirm_by));
        let entry = Entry { export, lease, named, connections, notes, leave_by, confirm_by };
        let status = entry.status(None, Instant::now());
        by_name.insert(new.name.clone(), Arc::new(entry));
        Ok(status)
    }

    /// Deletes an export and wipes its memory, which takes about a second for several GiB. A leased export needs the token.
    pub fn delete(&self, name: &str, lease: Option<&str>) -> Result<Wiped> {
        let token = lease.map(str::parse).transpose()?;
        let _wiping = self.open.read();
        let entry = self.entry(name)?;
        {
            // Held until the name is gone, so that no client acquires the lease of an export that is being deleted.
            let lease = entry.lease.write();
            match lease.check(token, Instant::now()) {
                // The lease has expired: there is no writer to protect.
                Err(LeaseRefusal::Ended) if lease.holder(Instant::now()).is_none() => {}
                checked => checked?,
            }
            self.take(name, &entry)?;
        }
        Ok(entry.export.delete())
    }

    /// Takes an export's name away. Its lease is locked.
    fn take(&self, name: &str, entry: &Arc<Entry>) -> Result<()> {
        let mut by_name = self.by_name.write();
        // Another caller may have deleted, and recreated, it since the lookup.
        if !by_name.get(name).is_some_and(|found| Arc::ptr_eq(found, entry)) {
            return Err(ExportsError::NotFound(shown(name)));
        }
        by_name.remove(name);
        self.maps.lock().remove(name);
        Ok(())
    }

    /// Deletes every export regardless of leases, after deletions in progress; no more can be created.
    pub fn end(&self) -> Vec<Wiped> {
        *self.open.write() = false;
        let mut by_name = self.by_name.write();
        let all = std::mem::take(&mut *by_name);
        *self.maps.lock() = Maps::default();
        drop(by_name);
        all.into_values().map(|entry| entry.export.delete()).collect()
    }

    /// Grants the write lease of an export.
    ///
    /// When it returns, no write of an earlier holder, or of a client without a lease, is in progress or can follow.
    pub fn acquire_lease(&self, name: &str, request: &LeaseRequest) -> Result<LeaseGrant> {
        let token = Token::new(random::bits_128().map_err(|error| Error::io("making a token", &error.into()))?);
        let entry = self.entry(name)?;
        let mut lease = entry.lease.write();
        lease.acquire(token, &request.holder, request.ttl_s, request.force, Instant::now())?;
        Ok(LeaseGrant { token: token.to_string(), ttl_s: request.ttl_s })
    }

    /// Renews a lease.
    pub fn renew_lease(&self, name: &str, token: &str) -> Result<LeaseGrant> {
        let ttl_s = self.entry(name)?.lease.write().renew(token.parse()?, Instant::now())?;
        Ok(LeaseGrant { token: token.to_owned(), ttl_s })
    }

    /// Gives a lease back.
    pub fn release_lease(&self, name: &str, token: &str) -> Result<()> {
        Ok(self.entry(name)?.lease.write().release(token.parse()?, Instant::now())?)
    }

    /// The map of an export, if it holds one.
    pub fn map(&self, name: &str) -> Result<Option<StoredMap>> {
        self.entry(name)?;
        Ok(self.maps.lock().get(name).cloned())
    }

    /// Stores a map with an export whose lease is held.
    pub fn store_map(&self, name: &str, new: NewMap) -> Result<()> {
        let NewMap { token, epoch, map } = new;
        let entry = self.entry(name)?;
        // Both locks are held until the map is stored: until then the lease is not taken over, nor the export deleted.
        let lease = entry.lease.read();
        let by_name = self.by_name.read();
        if !by_name.get(name).is_some_and(|found| Arc::ptr_eq(found, &entry)) {
            return Err(ExportsError::NotFound(shown(name)));
        }
        lease.check(Some(token.parse()?), Instant::now())?;
        Ok(self.maps.lock().store(name, StoredMap { epoch, map })?)
    }

    /// The notes of an export.
    pub fn notes(&self, name: &str) -> Result<Notes> {
        Ok(self.entry(name)?.notes.lock().clone())
    }

    /// Stores a note with an export, in place of one of the same name.
    pub fn store_note(&self, name: &str, new: NewNote) -> Result<()> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        if !(1..=NOTE_NAME_BYTES_MAX).contains(&new.name.len()) || !new.name.bytes().all(is_plain) {
            return Err(ExportsError::BadNoteName(shown(&new.name)));
        }
        if new.text.len() > NOTE_BYTES_MAX {
            return Err(ExportsError::NoteTooLong(new.text.len()));
        }
        let entry = self.entry(name)?;
        let Notes { notes } = &mut *entry.notes.lock();
        if notes.len() >= NOTES_MAX && !notes.contains_key(&new.name) {
            return Err(ExportsError::TooManyNotes);
        }
        notes.insert(new.name, new.text);
        Ok(())
    }

    /// All exports, by name.
    pub fn status(&self) -> Vec<ExportStatus> {
        let now = Instant::now();
        // Not under the lock: a deletion holds a lease's lock while it takes this one.
        let entries: Vec<_> = self.by_name.read().values().map(Arc::clone).collect();
        let map_epoch = |entry: &Entry| self.maps.lock().get(entry.export.name()).map(|stored| stored.epoch);
        entries.iter().map(|entry| entry.status(map_epoch(entry), now)).collect()
    }

    /// The counters of each export, by name.
    pub fn stats(&self) -> Vec<(Arc<str>, ExportStats)> {
        let by_name = self.by_name.read();
        by_name.values().map(|entry| (Arc::clone(entry.export.name()), entry.export.stats())).collect()
    }

    /// An export, regardless of leases.
    #[doc(hidden)]
    pub fn export(&self, name: &str) -> Result<Arc<Export>> {
        Ok(Arc::clone(&self.entry(name)?.export))
    }

    fn entry(&self, name: &str) -> Result<Arc<Entry>> {
        self.by_name.read().get(name).map(Arc::clone).ok_or_else(|| ExportsError::NotFound(shown(name)))
    }
}

impl Entry {
    /// Admits a connection, and fences those it replaces. `None` if it has been replaced itself.
    fn enter(&self, number: ConnectionNumber) -> Option<Arc<ReplacedFlag>> {
        // Writes hold this lock for reading, so none of a replaced connection is in progress.
        let _no_write = self.lease.write();
        self.named.enter(number)
    }

    fn status(&self, map_epoch: Option<u64>, now: Instant) -> ExportStatus {
        let lease = self.lease.read();
        ExportStatus {
            name: self.export.name().to_string(),
            size_bytes: self.export.geometry().size,
            used_bytes: self.export.used_bytes(),
            reserved: self.export.reserved(),
            digests: self.export.digests(),
            connections: self.connections.load(Ordering::Relaxed),
            lease: lease
                .holder(now)
                .map(|(holder, expires_in_s)| LeaseStatus { holder: holder.to_owned(), expires_in_s }),
            map_epoch,
            read_bytes: self.export.stats().read_bytes,
            leave_in_s: self.leave_by.lock().map(|by| by.saturating_duration_since(now).as_secs()),
            confirm_in_s: self.confirm_by.lock().map(|by| by.saturating_duration_since(now).as_secs()),
        }
    }
}

impl server::Exports for Exports {
    fn list(&self) -> Vec<String> {
        self.by_name.read().keys().cloned().collect()
    }

    fn open(&self, name: &str, contexts: &[String]) -> DeviceResult<server::Export> {
        let entry = self.entry(name).map_err(|error| Error::Invalid(error.to_string().into()))?;
        let now = Instant::now();
        let (mut token, mut granted, mut named_a_lease) = (None, Vec::new(), false);
        let (mut cut, mut left_over) = (None, false);
        for query in contexts {
            if query.strip_prefix(INSTANCE_CONTEXT).is_some_and(|id| self.instance.is(id)) {
                granted.push(query.clone());
            } else if let Some(shown) = query.strip_prefix(LEASE_CONTEXT) {
                named_a_lease = true;
                let good = shown.parse().ok().filter(|shown| entry.lease.read().check(Some(*shown), now).is_ok());
                if good.is_some() {
                    token = good;
                    granted.push(query.clone());
                }
            } else if let Some(number) = query.strip_prefix(CONNECTION_CONTEXT)
                && cut.is_none()
            {
                cut = number.parse().ok().and_then(|number| entry.enter(number));
                granted.extend(cut.is_some().then(|| query.clone()));
                left_over = cut.is_none();
            }
        }
        let writer = match (token, named_a_lease) {
            _ if left_over => Writer::Denied,
            (Some(token), _) => Writer::Leased(token),
            (None, true) => Writer::Denied,
            (None, false) => Writer::Anybody,
        };
        let description = format!("Cheetah export {name} on node instance {}", self.instance);
        let device = Arc::new(Session::open(entry, writer, cut, now));
        Ok(server::Export { device, description, contexts: granted, packer: None })
    }
}

/// The identity under which a connection writes.
#[derive(Debug, Clone, Copy)]
enum Writer {
    /// The holder of this token.
    Leased(Token),
    /// A client without leases: it may write while no lease is held.
    Anybody,
    /// A client that named a lease it does not hold.
    Denied,
}

/// An export as opened by one connection: each write checks the lease.
struct Session {
    entry: Arc<Entry>,
    writer: Writer,
    /// Set once another connection replaces this one; `None` if the client does not number its connections.
    cut: Option<Arc<ReplacedFlag>>,
    /// Whether the handshake announced the export as writable.
    writable: bool,
}

impl Session {
    fn open(entry: Arc<Entry>, writer: Writer, cut: Option<Arc<ReplacedFlag>>, now: Instant) -> Self {
        entry.connections.fetch_add(1, Ordering::Relaxed);
        let writable = writer.may_write(&entry.lease.read(), now).is_ok();
        Self { entry, writer, cut, writable }
    }

    /// Allows a write if the lease does and the connection has not been replaced. Neither changes while the permission
    /// exists: an export's operations complete before they return, so a takeover waits for them.
    fn permit(&self) -> DeviceResult<RwLockReadGuard<'_, Lease>> {
        let lease = self.entry.lease.read();
        let allowed = match self.writable {
            _ if self.cut.as_ref().is_some_and(|cut| cut.is_cut()) => {
                Err("the client replaced this connection by another".to_owned())
            }
            true => self.writer.may_write(&lease, Instant::now()).map_err(|refused| refused.to_string()),
            false => Err("the connection is read-only: the export was leased to another when it was made".to_owned()),
        };
        allowed.map(|()| lease).map_err(|why| Error::Fenced(why.into()))
    }

    /// Runs `write` if it is allowed.
    fn fenced<'a>(&'a self, write: impl FnOnce(&'a Export) -> Io<'a, ()>) -> Io<'a, ()> {
        match self.permit() {
            Ok(_permit) => write(&self.entry.export),
            Err(error) => Io::fail(error),
        }
    }
}

impl Writer {
    fn may_write(self, lease: &Lease, now: Instant) -> std::result::Result<(), LeaseRefusal> {
        match self {
            Self::Leased(token) => lease.check(Some(token), now),
            Self::Anybody => lease.check(None, now),
            Self::Denied => Err(LeaseRefusal::Ended),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.entry.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Layer for Session {
    type Below = Export;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::Handled;

    fn below(&self) -> &Export {
        &self.entry.export
    }

    fn is_writable(&self, _: bool) -> bool {
        self.writable
    }

    fn on_write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        self.fenced(|export| export.write(offset, data, fua))
    }

    fn on_lend_mut(&self, range: ByteRange, fill: &mut Fill<'_>) -> Option<DeviceResult<()>> {
        match self.permit() {
            Ok(_permit) => self.entry.export.lend_mut(range, fill),
            Err(error) => Some(Err(error)),
        }
    }

    fn on_zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.fenced(|export| export.zero(range, how))
    }

    fn on_trim(&self, range: ByteRange) -> Io<'_, ()> {
        self.fenced(|export| export.trim(range))
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Escapes and shortens a peer's name for a message.
fn shown(name: &str) -> String {
    name.chars().take(80).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
