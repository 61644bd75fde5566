//! A logical unit of an iSCSI target as a [`Device`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cheetah_device::error::{EINVAL, EIO, EPERM};
use cheetah_device::fatal_reads::{ByAddress, FatalReads, Turn};
use cheetah_device::reconnect::Losses;
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io, Result};
use futures::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{ConnectionError, IscsiConnection};
use crate::connection_task::{Call, ConnectionTask, Unanswered, UnitAddress};
use crate::inquiry::Inquiry;
use crate::login::{LoginParameters, TARGETS_MAX};
use crate::options::LoginKeys;
use crate::scsi::{self, Cdb, NotReadyReason, Sense, SenseKey};
use crate::session::Outcome;
use crate::uri::IscsiUri;

/// The initiator's default name, under the reserved domain `invalid`.
const NAME: &str = "iqn.2026-01.invalid.cheetah:initiator";
/// The number of times a command is repeated after an abort or a unit attention.
const REPEATS_MAX: u32 = 8;
/// The pause before a command to a busy target is repeated.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// The preferred block size, in bytes, if the disk reports none that is usable.
const BLOCK_PREFERRED_DEFAULT: u32 = 4096;

static FATAL: ByAddress<FatalReads> = ByAddress::new();

/// Configuration of a connection.
#[derive(Debug, Clone)]
pub struct IscsiConfig {
    /// The logical unit.
    pub uri: IscsiUri,
    /// Its name in errors and logs.
    pub name: Arc<str>,
    /// The time without progress, over any number of connections, after which a read fails with [`Error::Lost`]; also
    /// the time limit for connecting.
    pub timeout: Duration,
    /// Whether a lost connection is replaced. The new one leads to a logical unit that describes itself as before,
    /// which may be another disk. If not, all reads fail with [`Error::Lost`] from then on.
    pub trust_reconnects: bool,
}

impl IscsiConfig {
    /// Returns the default configuration: the options of the URI, and a time-out of 10 s.
    pub fn new(uri: IscsiUri) -> Self {
        let name = uri.to_string().into();
        Self { uri, name, timeout: Duration::from_secs(10), trust_reconnects: true }
    }
}

/// A connected logical unit. Dropping it logs out.
pub struct Initiator {
    name: Arc<str>,
    inquiry: Inquiry,
    /// The maximum number of blocks in one command.
    transfer_blocks_max: u32,
    /// The maximum number of outstanding commands, of all sessions together.
    in_flight_max: usize,
    timeout: Duration,
    /// One channel to the task of each session.
    calls: Vec<mpsc::UnboundedSender<Call>>,
    /// The number of calls so far: the sessions take turns.
    called: AtomicUsize,
    /// The keys that the target agreed to at the first login.
    agreed: LoginKeys,
    fatal: Arc<FatalReads>,
    trust_reconnects: bool,
    /// The reads that failed because the target is lost.
    failures: Losses,
}

impl Initiator {
    /// Connects, logs in and identifies the logical unit, with as many sessions as the URI asks for. Their tasks run on
    /// the calling runtime.
    ///
    /// # Errors
    ///
    /// If the target cannot be reached, refuses a login, or has no such logical unit; if the URI names no logical
    /// unit, the error lists the targets the host has.
    pub async fn connect(config: IscsiConfig) -> Result<Self> {
        let IscsiConfig { uri, name, timeout: limit, trust_reconnects } = config;
        let fail = |error: ConnectionError| cannot_connect(&name, &uri, &error);
        let parameters = login_parameters(&uri).map_err(fail)?;
        let Some(unit) = uri.unit.clone() else {
            let asked = timeout(limit, IscsiConnection::discover(&uri, parameters))
                .await
                .unwrap_or(Err(ConnectionError::Silent(limit)));
            return Err(fail(ConnectionError::Unusable(listing(&asked.map_err(fail)?))));
        };
        let commands = usize::from(uri.options.commands);
        let route = UnitAddress {
            uri: uri.clone(),
            unit,
            parameters,
            name: Arc::clone(&name),
            timeout: limit,
            in_flight_max: commands,
        };
        let (connection, identity) = route.open(limit).await.map_err(fail)?;
        let agreed = connection.keys;
        tracing::info!("{name}: logged in with {agreed}, {commands} commands, sessions: {}", uri.options.sessions);
        let start = |route, connection| {
            let (calls, receiver) = mpsc::unbounded_channel();
            tokio::spawn(ConnectionTask::new(route, identity.clone(), trust_reconnects, receiver).run(connection));
            calls
        };
        let mut calls = vec![start(route.clone(), connection)];
        while calls.len() < usize::from(uri.options.sessions) {
            let route = UnitAddress { parameters: login_parameters(&uri).map_err(fail)?, ..route.clone() };
            let (connection, another) = route.open(limit).await.map_err(fail)?;
            if let Some(difference) = identity.inquiry.difference(&another.inquiry) {
                let why = format!("another logical unit answers a further session: {difference}");
                return Err(fail(ConnectionError::Unusable(why)));
            }
            calls.push(start(route, connection));
        }
        let fatal = FATAL.of(uri.to_string());
        Ok(Self {
            inquiry: identity.inquiry.clone(),
            transfer_blocks_max: identity.transfer_blocks_max,
            in_flight_max: commands * calls.len(),
            name,
            timeout: limit,
            calls,
            called: AtomicUsize::new(0),
            agreed,
            fatal,
            trust_reconnects,
            failures: Losses::default(),
        })
    }

    /// The keys that the target agreed to at the first login.
    pub fn agreed(&self) -> LoginKeys {
        self.agreed
    }

    /// The properties the logical unit reports.
    pub fn inquiry(&self) -> &Inquiry {
        &self.inquiry
    }

    fn lost(&self, range: ByteRange, why: Arc<str>) -> Error {
        let error = Error::Lost { device: Arc::clone(&self.name), range, why };
        // Otherwise the layer above opens the target again, and logs the failure.
        match self.trust_reconnects {
            true => self.failures.log_failure(&error),
            false => tracing::debug!("{error}"),
        }
        error
    }

    /// Reads any range, with as many commands as needed.
    async fn read_any(&self, range: ByteRange) -> Result<Data> {
        let block_bytes = u64::from(self.inquiry.block_bytes);
        let blocks = range.aligned_to(block_bytes);
        let mut pieces = blocks.split_at_multiples(block_bytes * u64::from(self.transfer_blocks_max));
        let mut under_way = FuturesOrdered::new();
        let mut data = Data::new();
        loop {
            // More would only lengthen the queue.
            while under_way.len() < self.in_flight_max
                && let Some(piece) = pieces.next()
            {
                under_way.push_back(self.read_piece(piece, range));
            }
            match under_way.next().await {
                Some(piece) => data.append(Bytes::into(piece?)),
                None => return Ok(data.slice(range.offset - blocks.offset, range.len)),
            }
        }
    }

    /// Reads the blocks around `wanted` with one command, repeated as needed.
    async fn read_piece(&self, blocks: ByteRange, wanted: ByteRange) -> Result<Bytes> {
        let wanted = blocks.intersection(wanted).unwrap_or(blocks);
        let block_bytes = u64::from(self.inquiry.block_bytes);
        let lba = blocks.offset / block_bytes;
        let too_long = |_| Error::Invalid("a command beyond 4 GiB".into());
        let count = u32::try_from(blocks.len / block_bytes).map_err(too_long)?;
        let cdb = Cdb::read(lba, count);
        let (mut repeats, mut paused) = (0, Duration::ZERO);
        loop {
            let again = match self.command(cdb, blocks, wanted).await? {
                Outcome::Good(data) => return self.whole(data, blocks, wanted),
                // The target recovered from an error; the data is correct.
                Outcome::Check(Sense { key: SenseKey::RecoveredError, deferred: false, .. }, data) => {
                    return self.whole(data, blocks, wanted);
                }
                outcome => self.judge(outcome, wanted)?,
            };
            match again {
                Retry::AtOnce(_) if repeats < REPEATS_MAX => repeats += 1,
                Retry::Later(_) if paused < self.timeout => {
                    paused += BUSY_PAUSE;
                    sleep(BUSY_PAUSE).await;
                }
                Retry::AtOnce(why) | Retry::Later(why) => return Err(self.lost(wanted, why.into())),
            }
        }
    }

    /// Sends a command until it is answered, over as many connections as that takes.
    async fn command(&self, cdb: Cdb, blocks: ByteRange, wanted: ByteRange) -> Result<Outcome> {
        let len = u32::try_from(blocks.len).map_err(|_| Error::Invalid("a command beyond 4 GiB".into()))?;
        let mut turn = self.fatal.turn(blocks).await;
        let mut begun = Instant::now();
        loop {
            let Some(allowed) = &turn else { return Err(self.ends_connections(wanted)) };
            match self.call(cdb, len).await {
                Ok(outcome) => {
                    self.fatal.answered(allowed, blocks);
                    return Ok(outcome);
                }
                Err(Unanswered::Disconnected(_)) if self.fatal.dropped(allowed, blocks) => {
                    return Err(self.ends_connections(wanted));
                }
                Err(Unanswered::Disconnected(progress_at)) if progress_at.max(begun).elapsed() < self.timeout => {
                    // A read that is alone remains so until it is found out or answered.
                    if !matches!(allowed, Turn::Alone(_)) {
                        drop(turn);
                        turn = self.fatal.turn(blocks).await;
                        // Others had their turns, each up to the time-out.
                        begun = Instant::now();
                    }
                }
                Err(Unanswered::Disconnected(_)) => {
                    return Err(self.lost(wanted, "the target closes every connection".into()));
                }
                Err(Unanswered::Lost(why)) => return Err(self.lost(wanted, why)),
            }
        }
    }

    /// The error for a read that the target does not answer: it closes the connection each time.
    fn ends_connections(&self, range: ByteRange) -> Error {
        let why =
            "the target closes the connection each time it is asked for this range, instead of reporting an error";
        Error::Unreadable { device: Arc::clone(&self.name), range, why: why.into() }
    }

    async fn call(&self, cdb: Cdb, len: u32) -> std::result::Result<Outcome, Unanswered> {
        let (reply, answer) = oneshot::channel();
        let gone = || Unanswered::Lost("the task that keeps the connection is gone".into());
        let turn = self.called.fetch_add(1, Ordering::Relaxed) % self.calls.len();
        self.calls[turn].send(Call { cdb, len, reply }).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Returns the data, or an error if the target sent less than requested.
    fn whole(&self, data: Bytes, blocks: ByteRange, wanted: ByteRange) -> Result<Bytes> {
        if data.len() as u64 == blocks.len {
            return Ok(data);
        }
        let why = format!("the target sent {} of {} bytes and reported success", data.len(), blocks.len);
        Err(self.lost(wanted, why.into()))
    }

    /// Interprets a failed read: an error, or another attempt.
    fn judge(&self, outcome: Outcome, wanted: ByteRange) -> Result<Retry> {
        match outcome {
            Outcome::Check(sense, _) => self.judge_sense(sense, wanted),
            Outcome::Status(status @ (scsi::BUSY | scsi::TASK_SET_FULL)) => Ok(Retry::Later(scsi::status_text(status))),
            Outcome::Status(scsi::RESERVATION_CONFLICT) => {
                Err(self.failed(wanted, scsi::status_text(scsi::RESERVATION_CONFLICT), EPERM))
            }
            Outcome::Status(status) => Err(self.lost(wanted, scsi::status_text(status).into())),
            Outcome::Failed(code) => {
                Ok(Retry::AtOnce(format!("the command failed at the target (response {code:#04x})")))
            }
            Outcome::Good(_) => Ok(Retry::AtOnce("success".into())),
        }
    }

    fn judge_sense(&self, sense: Sense, wanted: ByteRange) -> Result<Retry> {
        let why = sense.to_string();
        if sense.deferred {
            return Ok(Retry::AtOnce(why));
        }
        match sense.key {
            SenseKey::MediumError => {
                let range = self.narrowed(&sense, wanted);
                tracing::warn!("{}: {range} is unreadable: {why}", self.name);
                Err(Error::Unreadable { device: Arc::clone(&self.name), range, why: why.into() })
            }
            SenseKey::UnitAttention | SenseKey::AbortedCommand => Ok(Retry::AtOnce(why)),
            SenseKey::NotReady if sense.not_ready_reason() == Some(NotReadyReason::Transient) => Ok(Retry::Later(why)),
            SenseKey::NotReady => Err(self.lost(wanted, why.into())),
            SenseKey::IllegalRequest => Err(self.failed(wanted, why, EINVAL)),
            SenseKey::DataProtect => Err(self.failed(wanted, why, EPERM)),
            // Hardware and other target errors do not show that the sectors are unreadable, which would be a statement
            // about the evidence.
            _ => Err(self.lost(wanted, why.into())),
        }
    }

    /// The unreadable block, if the target reports it.
    fn narrowed(&self, sense: &Sense, wanted: ByteRange) -> ByteRange {
        let block_bytes = u64::from(self.inquiry.block_bytes);
        let offset = sense.information.and_then(|lba| lba.checked_mul(block_bytes));
        let block = offset.map(|offset| ByteRange::new(offset, block_bytes));
        block.and_then(|block| block.intersection(wanted)).unwrap_or(wanted)
    }

    fn failed(&self, range: ByteRange, why: String, errno: i32) -> Error {
        let error = Error::Io { context: format!("{}: reading {range}", self.name).into(), why: why.into(), errno };
        tracing::warn!("{error}");
        error
    }
}

/// A command is to be repeated, for this reason.
enum Retry {
    AtOnce(String),
    Later(String),
}

impl Device for Initiator {
    fn geometry(&self) -> Geometry {
        let physical = self.inquiry.physical_block_bytes;
        let block_preferred = if physical.is_power_of_two() { physical } else { BLOCK_PREFERRED_DEFAULT };
        Geometry { size: self.inquiry.size(), writable: false, block_preferred }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match self.check(range) {
            Err(error) => Io::fail(error),
            Ok(()) if range.is_empty() => Io::ok(Data::new()),
            Ok(()) => Io::later(self.read_any(range)),
        }
    }
}

/// The parameters of a session's login.
fn login_parameters(uri: &IscsiUri) -> std::result::Result<LoginParameters, ConnectionError> {
    Ok(LoginParameters {
        initiator: uri.initiator.clone().unwrap_or_else(|| NAME.to_owned()),
        target: uri.unit.as_ref().map(|unit| unit.target.clone()),
        credentials: uri.credentials.clone(),
        isid: isid()?,
        keys: uri.options.keys,
    })
}

/// A random session identifier (RFC 7143, 11.12.5).
fn isid() -> std::io::Result<[u8; 6]> {
    let mut isid = [0x80, 0, 0, 0, 0, 0];
    cheetah_kit::random::fill(&mut isid[1..])?;
    Ok(isid)
}

/// The error for a failed first connection.
fn cannot_connect(name: &str, uri: &IscsiUri, error: &ConnectionError) -> Error {
    let errno = match error {
        ConnectionError::Io(error) => cheetah_kit::errno::of(error).unwrap_or(EIO),
        _ => EIO,
    };
    let why = match error {
        ConnectionError::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "nothing listens there (connection refused)".to_owned()
        }
        error => error.to_string(),
    };
    Error::Io { context: format!("{name}: connecting to {uri}").into(), why: why.into(), errno }
}

/// The error for a URI without a target, with the list of targets.
fn listing(targets: &[String]) -> String {
    if targets.is_empty() {
        return "the URI names no target, and the host lists none".to_owned();
    }
    let more = if targets.len() == TARGETS_MAX { " and perhaps more" } else { "" };
    format!("the URI names no target; give one of these, and a LUN, as /target/lun: {}{more}", targets.join(", "))
}
