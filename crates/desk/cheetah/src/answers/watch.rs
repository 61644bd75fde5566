//! The answers of `watch`.

use cheetah_control::api::Dropped;
use cheetah_custody::LastRecord;
use cheetah_drive::chart::ChartRow;
use cheetah_drive::status::{DriveStatus, NodeState};
use serde::Serialize;

/// The answer of `watch --once`, and what its page and its terminal view show.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Picture {
    /// When it was put together, in milliseconds since 1970.
    pub at_ms: u64,
    /// The ends of the custody logs that are watched.
    pub custody: Vec<LogEnd>,
    /// The drives that are watched.
    pub drives: Vec<WatchedDrive>,
    /// The work in progress, as far as the nodes and the drive files tell.
    pub jobs: Vec<Job>,
    /// The links of the nodes, by host.
    pub links: Vec<Link>,
    /// The machines: those that do not answer first, then by name.
    pub machines: Vec<Machine>,
    /// The room whose machines these are, if this machine has its register.
    pub room: Option<String>,
    /// The state of the room in one sentence.
    pub sentence: String,
    /// The same in one word.
    pub state: Health,
    /// Sums over the machines that answer.
    pub totals: Totals,
}

/// The worst that is known of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Every machine answers, and every drive is whole.
    Good,
    /// Nothing is lost, and something needs a look: a machine, redundancy, unreadable sectors.
    Attention,
    /// Content is lost or cannot be read now, or a record is not as it should be.
    Bad,
}

/// Sums over the machines that answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Totals {
    /// Machines that answer.
    pub answering: usize,
    /// Bytes that a new export can reserve.
    pub free_bytes: u64,
    /// Bytes lent.
    pub lent_bytes: u64,
    /// All machines.
    pub machines: usize,
    /// Bytes that hold content.
    pub used_bytes: u64,
}

/// A machine of the room.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Machine {
    /// Where it was asked: HOST:PORT.
    pub address: String,
    /// When it answered last, in milliseconds since 1970; `None` if it has not since this command began.
    pub last_seen_ms: Option<u64>,
    /// Set while it answers, and is a node.
    pub lends: Option<Lends>,
    /// Its name.
    pub name: String,
    /// Why it cannot be used, as a sentence.
    pub problem: Option<String>,
    /// How often it came back as another, empty instance since this command began.
    pub restarts: u32,
    /// `node` or `agent`.
    pub role: &'static str,
    /// Its state.
    pub state: NodeState,
}

/// What a node says of the memory that it lends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Lends {
    /// Whether the machine was started from the boot image.
    pub boot_image: bool,
    /// Disks that programs on it could read; `None` if unknown.
    pub disks_visible: Option<u32>,
    /// Whether it is about to leave.
    pub draining: bool,
    /// Exports that it dropped because its machine needed the memory; their content is lost.
    pub dropped: Vec<Dropped>,
    /// The number of its exports.
    pub exports: usize,
    /// Bytes that a new export can reserve.
    pub free_bytes: u64,
    /// Bytes lent.
    pub lent_bytes: u64,
    /// Whether the memory is locked, so that none of it can be swapped out.
    pub locked: bool,
    /// The rate at which clients read from it; `None` until it has answered twice.
    pub read_bytes_per_s: Option<u64>,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Bytes that hold content.
    pub used_bytes: u64,
    /// The version of the program.
    pub version: String,
    /// Bytes wiped since it started.
    pub wiped_bytes: u64,
}

/// A drive that is watched.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WatchedDrive {
    /// The drive in slices of one size, for each of its nodes. A slice shows the worst of its bytes.
    pub chart: Vec<ChartRow>,
    /// The drive file.
    pub file: String,
    /// Why its state is not known, as a sentence.
    pub problem: Option<String>,
    /// Its state, as `status` prints it.
    pub status: Option<DriveStatus>,
    /// The last verification of what is in it now, by its custody log; `None` if it was not verified, or if the log is not
    /// believed.
    pub verification: Option<Verification>,
    /// Its nodes that have wiped their part, and said so in a receipt.
    pub wiped: Vec<String>,
}

/// A verification of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verification {
    /// When it was recorded, RFC 3339.
    pub at: String,
    /// Bytes that the nodes hashed, on their word; the others were read by the verifier.
    pub at_nodes_bytes: u64,
    /// Whether all of it was compared with its digests, and the drive was neither enlarged nor opened for writing since.
    pub holds: bool,
    /// Whether it found no problem.
    pub ok: bool,
}

/// The link of the machine of one or several nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Link {
    /// Its capacity, if it was measured.
    pub capacity: Option<Capacity>,
    /// The name or address of the machine.
    pub host: String,
    /// The highest rate since this command began, which is no measurement of the capacity; `None` if nothing was read.
    pub most: Option<Carried>,
    /// The rate at which clients read from its nodes; `None` if that is not known.
    pub read_bytes_per_s: Option<u64>,
}

/// The measured capacity of the path from a machine to the one that measured it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Capacity {
    /// When the measurement began, RFC 3339.
    pub at: String,
    /// Whether it is a lower bound.
    pub at_least: bool,
    /// Bytes of whole Ethernet frames a second; those of one TCP connection are payload alone.
    pub bytes_per_s: u64,
    /// How it was measured.
    pub method: CapacityMethod,
}

/// How a capacity was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CapacityMethod {
    /// Trains of packets that the machine answered.
    Echo,
    /// Trains of packets that its node sent.
    Trains,
    /// One TCP connection, so the capacity is at least that.
    Transfer,
}

/// A rate, and when it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Carried {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The rate.
    pub bytes_per_s: u64,
}

/// Work in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Job {
    /// The rate of the last half minute; `None` until it is known.
    pub bytes_per_s: Option<u64>,
    /// Bytes that are done; `None` if that is not known.
    pub done_bytes: Option<u64>,
    /// The drive.
    pub drive: String,
    /// The kind.
    pub kind: JobKind,
    /// Seconds that it takes at this rate; `None` if that is not known.
    pub left_s: Option<u64>,
    /// The node, of work on one of the drive's nodes.
    pub node: Option<String>,
    /// The node that its part moves to.
    pub to: Option<String>,
    /// Bytes of all of it. What a node that is resynchronized had already counts as done.
    pub total_bytes: u64,
    /// Bytes that the source could not read; `None` if that is not known, or if there is no source.
    pub unreadable_bytes: Option<u64>,
    /// The ranges that they are in.
    pub unreadable_ranges: Option<usize>,
    /// The process that does it; `None` if none does, so that it stands still.
    pub writer: Option<String>,
}

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// A drive is filled from its source while it is used.
    Fill,
    /// An image is loaded into a drive.
    Load,
    /// A node's part moves to another node.
    Move,
    /// A node gets the writes that it missed.
    Resynchronize,
}

/// The end of a custody log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogEnd {
    /// The log.
    pub log: String,
    /// What is wrong with it, a sentence each.
    pub problems: Vec<String>,
    /// Its last records, oldest first.
    pub records: Vec<LastRecord>,
}

/// The event of `watch` while its page is served.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Watch {
    /// The page can be opened.
    Ready {
        /// The address of the page, with the secret that opens it.
        url: String,
    },
}
