//! An export elsewhere as a [`Device`].
//!
//! A [`Client`] keeps one or several connections to one export. Each is a `ConnectionHandle` with a task of its own
//! (`connection`): callers send, the task receives. A parser ([`receive`]) enters replies in a table ([`inflight`]) by
//! their cookies. Neither does any I/O, so both are tested, and fuzzed, without sockets.
//!
//! The design follows from what a request costs:
//!
//! * **Alone**, a request is written by the future that makes it, in one system call, and its reply, data
//!   included, is received by the task in one more. Nothing else happens but one wake-up.
//! * **Among others**, a request is queued and the task is woken. The task lets all ready callers queue their requests
//!   first, then writes all of them at once; the server does the same with the replies.
//! * **Large payloads** are received straight into the memory that is handed to the reader, and are never copied. The
//!   memory is reused (`cheetah_device::buffers`).
//!
//! A lost connection is replaced, and its in-flight requests are repeated on the new one (`recover`), if the server is
//! still the instance that holds the content. No request outlives its time-out; a client that does not wait for
//! replacements fails sooner. Writes wait until the server can no longer carry out anything sent over the lost connection
//! (`sequence`). For callers that have the content elsewhere too, `silence` measures how long an answer has been owed.

mod connection;
mod counters;
mod delivery;
mod digests;
mod habits;
mod handle;
mod health;
pub mod inflight;
mod ops;
mod outbox;
pub mod receive;
mod recover;
mod sequence;
mod silence;
mod stream;
mod unpack;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cheetah_device::error::{EACCES, EHOSTUNREACH, EIO, ENOENT, ENOKEY, ESTALE, ETIMEDOUT};
use cheetah_device::fatal_reads::ByAddress;
use cheetah_device::reconnect::Losses;
use cheetah_device::{ByteRange, Data, Device, Error, Extent, Geometry, Io, Result, Zeroing};
use cheetah_tls::{CredentialSet, Expected, Refusal, Role, Roles, Transport};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::connection::{InitialConnection, OpenError, Opening};
use self::counters::Counters;
use self::habits::Habits;
use self::handle::ConnectionHandle;
use self::health::{Health, Refused};
use self::sequence::ConnectionSequence;
use self::silence::Silence;
use self::stream::Destination;
use crate::handshake::client::{Agreement, ExportRequest, Failure};
use crate::packing::{Method, Packing};
use crate::proto::{PAYLOAD_LEN_MAX, TransmissionFlags, X_CHEETAH};
use crate::starttls::NoTls;
use crate::uri::{Address, NbdUri, PORT};

pub use self::counters::ClientStats;

/// The lost connections to each server, across clients: a source is opened again by a new one.
static LOSSES: ByAddress<Losses> = ByAddress::new();

/// The most connections of a client to one server.
const CONNECTIONS_MAX: usize = 16;
/// The least to a server that is far. TCP slow start begins with 14 kB a round trip; several connections together reach
/// the link's bandwidth much sooner.
const CONNECTIONS_FAR: usize = 8;

/// The time-out of a client that is given no other one.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The roles of servers that are no nodes.
const SOURCES: Roles = Roles::of(&[Role::Agent, Role::Examiner, Role::Analyst]);

/// The export to connect to, and the options of the connection.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The export.
    pub uri: NbdUri,
    /// The role and the key that the server must have, if the connection has TLS.
    pub expected: Expected,
    /// The credentials for TLS. They are not used if the URI names certificates.
    pub credentials: CredentialSet,
    /// The name for errors and logs.
    pub name: Arc<str>,
    /// Metadata contexts that the server must grant, also when a connection is replaced.
    pub contexts: Vec<String>,
    /// Whether the export is opened for writing.
    pub writable: bool,
    /// Connections, 1 to 16, if the server allows more than one. With more than one, a server that is far (2 ms) gets
    /// at least 8.
    pub connections: usize,
    /// Whether the server packs content.
    pub packing: Packing,
    /// Whether a lost connection is replaced although the server cannot show that it is the same process as before. If
    /// not, all requests fail with [`Error::Lost`] from then on. Our agents prove their identity, so that they are
    /// exempt.
    pub trust_reconnects: bool,
    /// Whether requests wait for the replacement of a lost connection until their time-out. If not, they fail with
    /// [`Error::Lost`] as soon as an attempt to replace it has failed. The client goes on trying in either case.
    pub wait_for_replacement: bool,
    /// How long a request may take, retries included, before it fails with [`Error::Lost`].
    pub timeout: Duration,
    /// Whether the content of a read belongs to its reader alone, which can then alter it in place
    /// ([`Bytes::try_into_mut`](bytes::Bytes::try_into_mut)). If not, its memory is received into again once it is dropped.
    pub exclusive: bool,
}

impl ClientConfig {
    /// One connection, read-only, with [`TIMEOUT`], without credentials; with one, to any member of the room other than a
    /// node.
    pub fn new(uri: NbdUri) -> Self {
        let name = uri.to_string().into();
        Self {
            uri,
            expected: Expected::roles(SOURCES),
            credentials: CredentialSet::default(),
            name,
            contexts: Vec::new(),
            writable: false,
            connections: 1,
            packing: Packing::Off,
            trust_reconnects: true,
            wait_for_replacement: true,
            timeout: TIMEOUT,
            exclusive: false,
        }
    }
}

/// A connected export. Dropping it closes the connections.
pub struct Client {
    shared: Arc<Shared>,
}

/// The state that the client and its connections' tasks share.
struct Shared {
    name: Arc<str>,
    to: Destination,
    wanted: ExportRequest,
    transport: Transport,
    writable: bool,
    trust_reconnects: bool,
    wait_for_replacement: bool,
    exclusive: bool,
    timeout: Duration,
    size: u64,
    packed: Option<Method>,
    description: Option<Arc<str>>,
    flags: TransmissionFlags,
    block_min: u64,
    block_preferred: u32,
    /// The most data in one request, in bytes: a multiple of `block_min`.
    payload_len_max: u64,
    has_status: bool,
    /// Held exclusively while a part of a block is replaced.
    blocks: tokio::sync::RwLock<()>,
    links: Vec<ConnectionHandle>,
    health: Health,
    counters: Counters,
    closed: AtomicBool,
    /// How the server treats reads that fail; `None` for Cheetah's own, which answer them.
    habits: Option<Arc<Habits>>,
    /// The lost connections to this server.
    losses: Arc<Losses>,
    /// The requests that failed because the server is lost.
    failures: Losses,
    /// The server was found silent since then; connections that heard nothing later are replaced.
    silent_since: Mutex<Option<Instant>>,
    silence: Silence,
}

impl Client {
    /// Connects to the export. The connections' tasks run on the calling runtime. With [`Address::Inbound`], waits
    /// until the server calls.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, does not have the export, does not grant a context, or has it read-only
    /// although it is to be written. [`Error::Fenced`] if a lease is not granted.
    pub async fn connect(config: ClientConfig) -> Result<Self> {
        let wanted = ExportRequest {
            export: config.uri.export.clone(),
            contexts: config.contexts.clone(),
            packing: config.packing,
        };
        let tls = config
            .uri
            .tls(&config.credentials, config.expected)
            .map_err(|error| cannot_connect(&config, &error.into()))?;
        let to = Destination { address: config.uri.address.clone(), tls };
        let (address, limit) = (&to.address, config.timeout);
        let link = new_link(&config, &wanted)?;
        let first_request = link.next_request(&wanted);
        let mut others = Vec::new();
        let opened = match address {
            Address::Inbound(_) => connection::open_first(&to, &first_request, limit).await,
            Address::Tcp { .. } | Address::Unix(_) => {
                let is_far = || others = begin_early(&config, &to, &wanted);
                connection::open_with(&to, &first_request, limit, is_far).await
            }
        };
        let opened = opened.map_err(|error| cannot_connect(&config, &error))?;
        let flags = opened.agreement.flags;
        if config.writable && flags.has(TransmissionFlags::READ_ONLY) {
            return Err(Error::Io {
                context: format!("{}: opening {} for writing", config.name, config.uri).into(),
                why: "the server has it read-only".into(),
                errno: cheetah_device::error::EROFS,
            });
        }
        let (agreement, transport) = (opened.agreement.clone(), opened.transport.clone());
        let mut all = vec![(link, InitialConnection::Opened(Box::new(opened)))];
        if flags.has(TransmissionFlags::CAN_MULTI_CONN) {
            all.append(&mut others);
            while all.len() < config.connections.clamp(1, CONNECTIONS_MAX) {
                let link = new_link(&config, &wanted)?;
                // Over a network the others come up while this one is in use: each takes some round trips, and a server
                // that calls makes the next call when this one is in use. On this machine they cost nothing, and a
                // qemu-nbd that ends with its last client would not end while another negotiates.
                let begun = match address {
                    Address::Unix(_) => connection::open(&to, &link.next_request(&wanted), limit)
                        .await
                        .map(|opened| InitialConnection::Opened(Box::new(opened))),
                    Address::Tcp { .. } | Address::Inbound(_) => Ok(InitialConnection::None),
                };
                all.push((link, begun.map_err(|error| cannot_connect(&config, &error))?));
            }
        }
        Ok(Self::start(config, to, wanted, agreement, transport, all))
    }

    fn start(
        config: ClientConfig,
        to: Destination,
        wanted: ExportRequest,
        agreement: Agreement,
        transport: Transport,
        all: Vec<(ConnectionHandle, InitialConnection)>,
    ) -> Self {
        let (links, begun): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let is_ours = agreement.packed.is_some()
            || !config.contexts.is_empty()
            || agreement.description.as_deref().is_some_and(|description| description.starts_with(X_CHEETAH));
        let habits = (!is_ours).then(|| Habits::of(&config.uri));
        let losses = match config.uri.address {
            Address::Inbound(_) => Arc::default(),
            _ => LOSSES.of(config.uri.to_string()),
        };
        let block_min = agreement.blocks.min;
        let payload_len_max = agreement.blocks.payload_max.min(PAYLOAD_LEN_MAX);
        let shared = Arc::new(Shared {
            name: config.name,
            to,
            wanted,
            writable: config.writable,
            transport,
            trust_reconnects: config.trust_reconnects,
            wait_for_replacement: config.wait_for_replacement,
            exclusive: config.exclusive,
            timeout: config.timeout,
            size: agreement.size,
            packed: agreement.packed,
            description: agreement.description.as_deref().map(Arc::from),
            flags: agreement.flags,
            block_min: block_min.into(),
            block_preferred: agreement.blocks.preferred,
            payload_len_max: (payload_len_max - payload_len_max % block_min).max(block_min).into(),
            has_status: agreement.structured && agreement.allocation.is_some(),
            blocks: tokio::sync::RwLock::new(()),
            links,
            health: Health::new(config.timeout),
            counters: Counters::default(),
            closed: AtomicBool::new(false),
            habits,
            losses,
            failures: Losses::default(),
            silent_since: Mutex::new(None),
            silence: Silence::new(),
        });
        for (index, begun) in begun.into_iter().enumerate() {
            tokio::spawn(connection::keep(Arc::clone(&shared), index, begun));
        }
        Self { shared }
    }

    /// Returns the counters since it was connected.
    pub fn stats(&self) -> ClientStats {
        let in_flight = self.shared.links.iter().filter_map(ConnectionHandle::load).sum::<usize>();
        self.shared.counters.stats(in_flight as u64)
    }

    /// How long the server has been silent while it owes an answer: the time since the last byte received over any
    /// connection, or since the oldest unanswered request was made or, while it is sent, since more of it was found to have
    /// arrived, whichever is latest. `None` if it owes none. Requests whose callers have gone count until they are answered;
    /// so do requests that wait for a connection, while they do.
    ///
    /// In a process that was stopped for a while, the time is too long until the connections' tasks have run again.
    pub fn silent_for(&self) -> Option<Duration> {
        let owed_since = self.shared.links.iter().filter_map(ConnectionHandle::owed_since).min();
        self.shared.silence.so_far(owed_since)
    }

    /// How the server packs content; `None` if it does not.
    pub fn packed(&self) -> Option<Method> {
        self.shared.packed
    }

    /// The server's description of the export (NBD_INFO_DESCRIPTION), if any. A Cheetah agent describes its source, as
    /// one line of JSON behind [`X_CHEETAH`].
    pub fn description(&self) -> Option<&str> {
        self.shared.description.as_deref()
    }

    /// How its connections are protected. One that replaces another is protected alike, if perhaps with another cipher.
    pub fn transport(&self) -> &Transport {
        &self.shared.transport
    }

    /// The number of connections: one where the server does not allow more.
    pub fn connections(&self) -> usize {
        self.shared.links.len()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.nudge_all();
    }
}

fn new_link(config: &ClientConfig, wanted: &ExportRequest) -> Result<ConnectionHandle> {
    if !ConnectionSequence::is_needed(wanted, config.writable) {
        return Ok(ConnectionHandle::new(None));
    }
    let sequence = ConnectionSequence::new().map_err(|error| cannot_connect(config, &error.into()))?;
    Ok(ConnectionHandle::new(Some(sequence)))
}

/// Opens the other connections to a server that is far before it is known whether it allows them, so that the first
/// reads can use them.
fn begin_early(
    config: &ClientConfig,
    to: &Destination,
    wanted: &ExportRequest,
) -> Vec<(ConnectionHandle, InitialConnection)> {
    let count = match config.connections {
        0 | 1 => 1,
        several => several.clamp(CONNECTIONS_FAR, CONNECTIONS_MAX),
    };
    let links = (1..count).filter_map(|_| new_link(config, wanted).ok());
    let begin = |link: ConnectionHandle| {
        let (to, wanted, limit) = (to.clone(), link.next_request(wanted), config.timeout);
        let mut opening = Opening::new();
        opening.spawn(async move { connection::open(&to, &wanted, limit).await });
        (link, InitialConnection::Opening(opening))
    };
    links.map(begin).collect()
}

/// Whether a description is that of an agent of ours that names its instance: a random id of the process.
fn names_instance(description: &str) -> bool {
    description.starts_with(X_CHEETAH) && description.contains(r#""run":""#)
}

/// The error for a first connection that failed.
fn cannot_connect(config: &ClientConfig, error: &OpenError) -> Error {
    let context = match names_address(&config.name, &config.uri) {
        true => config.name.to_string(),
        false => format!("{} ({})", config.name, config.uri),
    };
    let errno = match error {
        OpenError::Io(error) => match Refusal::of_error(error).map(Refusal::errno).or_else(|| NoTls::errno_of(error)) {
            Some(errno) => errno,
            // The operating system's time-out is that of a connection that nobody accepts.
            None if error.kind() == std::io::ErrorKind::TimedOut => EHOSTUNREACH,
            None => cheetah_kit::errno::of(error).unwrap_or(EIO),
        },
        OpenError::Silent(_) => ETIMEDOUT,
        OpenError::NoConnection(_) => EHOSTUNREACH,
        OpenError::Negotiation(Failure::TlsOnly) => ENOKEY,
        OpenError::Negotiation(Failure::Forbidden(_)) => EACCES,
        OpenError::Negotiation(Failure::UnknownExport { .. }) => ENOENT,
        OpenError::Negotiation(Failure::NotGranted(name)) if name.starts_with("x-cheetah:instance/") => ESTALE,
        OpenError::Negotiation(_) => EIO,
    };
    let why = match error {
        OpenError::Negotiation(Failure::NotGranted(name)) if name.starts_with("x-cheetah:lease/") => {
            return Error::Fenced(
                format!("{context}: cannot connect: the server does not know our write lease").into(),
            );
        }
        OpenError::Negotiation(Failure::NotGranted(name)) if name.starts_with("x-cheetah:instance/") => {
            "it is not the instance that holds the data; it was restarted and is empty".to_owned()
        }
        OpenError::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "nothing listens there (connection refused)".to_owned()
        }
        error => error.to_string(),
    };
    Error::Io { context: context.into(), why: format!("cannot connect: {why}").into(), errno }
}

/// Whether a name already gives the address, so that an error need not repeat it.
fn names_address(name: &str, uri: &NbdUri) -> bool {
    let at_default_port = matches!(&uri.address, Address::Tcp { host, port: PORT } if name == host);
    at_default_port || name == uri.address.to_string() || name == uri.to_string()
}

impl Shared {
    /// Whether the connections' tasks are to end.
    fn is_over(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.health.is_refused()
    }

    fn nudge_all(&self) {
        self.links.iter().for_each(ConnectionHandle::nudge);
    }

    /// Whether a lost connection may be replaced: any server may answer at the same address now.
    fn may_reconnect(&self) -> bool {
        self.trust_reconnects || self.description.as_deref().is_some_and(names_instance)
    }

    /// Checks that a new connection leads to the same export as before.
    fn recognise(&self, agreement: &Agreement) -> std::result::Result<(), Refused> {
        let refuse = |fenced, why: String| Err(Refused { fenced, why: why.into() });
        // A client that only reads needs no flags of changes: an export grants fewer of them while another client holds
        // a lease.
        let flags = match self.writable {
            true => self.flags.without(TransmissionFlags::READ_ONLY),
            false => self.flags.without(TransmissionFlags::READ_ONLY | TransmissionFlags::CHANGES),
        };
        if agreement.size != self.size {
            return refuse(false, format!("it came back with {} bytes instead of {}", agreement.size, self.size));
        }
        // A Cheetah agent's description changes only with its source.
        let tells = |description: &str| description.starts_with(X_CHEETAH);
        if self.description.as_deref().is_some_and(tells)
            && agreement.description.as_deref() != self.description.as_deref()
        {
            return refuse(false, "it came back with another source".into());
        }
        if self.writable && agreement.flags.has(TransmissionFlags::READ_ONLY) {
            return refuse(true, "it came back read-only".into());
        }
        if !agreement.flags.has(flags) || self.has_status && agreement.allocation.is_none() {
            return refuse(false, "it came back able to do less".into());
        }
        Ok(())
    }

    /// Notes that the server has been silent since then.
    fn suspect_all(&self, since: Instant) {
        *self.silent_since.lock() = Some(since);
    }

    /// Whether to give up a connection that last heard from the server at `heard`: another one waited in vain
    /// meanwhile, and this one heard nothing, or nearly nothing. If it was merely idle, replacing it does no harm.
    fn suspected(&self, heard: Instant) -> bool {
        self.silent_since.lock().is_some_and(|since| heard <= since + self.timeout / 2)
    }

    /// Checks a range that a change concerns.
    fn check_write(&self, range: ByteRange) -> Result<()> {
        if !self.writable {
            return Err(Error::ReadOnly);
        }
        self.check(range)
    }

    fn check(&self, range: ByteRange) -> Result<()> {
        if range.fits(self.size) { Ok(()) } else { Err(Error::OutOfBounds { range, size: self.size }) }
    }
}

/// Starts an operation, unless it is refused or its range is empty.
macro_rules! start {
    ($check:expr, $empty:expr, $nothing:expr, $work:expr) => {
        match $check {
            Err(error) => Io::fail(error),
            Ok(()) if $empty => Io::ok($nothing),
            Ok(()) => Io::later($work),
        }
    };
}

impl Device for Client {
    fn geometry(&self) -> Geometry {
        let Shared { size, writable, block_preferred, .. } = *self.shared;
        Geometry { size, writable, block_preferred }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        start!(self.shared.check(range), range.is_empty(), Data::new(), self.shared.read(range))
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        let range = ByteRange::new(offset, data.len());
        start!(self.shared.check_write(range), range.is_empty(), (), self.shared.write(offset, data, fua))
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        start!(self.shared.check_write(range), range.is_empty(), (), self.shared.zero(range, how))
    }

    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        start!(self.shared.check_write(range), range.is_empty(), (), self.shared.trim(range))
    }

    fn flush(&self) -> Io<'_, ()> {
        Io::later(self.shared.flush())
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        start!(self.shared.check(range), range.is_empty(), (), self.shared.cache(range))
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        start!(self.shared.check(range), range.is_empty(), Vec::new(), self.shared.extents(range))
    }
}
