//! The answers of `probe --send`.

use cheetah_probe::selfcheck;
use cheetah_probe::send;
use serde::Serialize;

/// The events of `probe --send`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Send<'a> {
    /// A train was sent.
    Train {
        /// When each packet was due, in nanoseconds of the machine's monotonic clock.
        due_ns: Vec<u64>,
        /// The errors of the gaps in nanoseconds, if the train left on time.
        #[serde(skip_serializing_if = "Option::is_none")]
        gap_errors_ns: Option<GapErrors>,
        /// When each packet left, by the same clock; `null` where that is not known.
        left_ns: Vec<Option<u64>>,
        /// The longest stalls of the thread that sent it, where the kernel tells.
        #[serde(skip_serializing_if = "Option::is_none")]
        stalls_ns: Option<Stalls>,
        /// Who stamped these times.
        stamp: Stamp,
        /// The number of the train, from 1.
        train: u32,
        /// Whether it left on time.
        verdict: Verdict,
        /// The gap with the largest error, if the train was spoiled.
        #[serde(skip_serializing_if = "Option::is_none")]
        worst: Option<WorstGap>,
    },
    /// All trains were sent, or the command was stopped.
    Done {
        /// The address of the host.
        address: String,
        /// The way in which packets were sent.
        backend: String,
        /// Bytes of each frame.
        frame_bytes: usize,
        /// The errors of the gaps of all trains that left on time, in nanoseconds.
        gap_errors_ns: Option<GapErrors>,
        /// The host, as the user wrote it.
        host: &'a str,
        /// The network interface.
        interface: &'a str,
        /// What limits the accuracy, a sentence each.
        notes: &'a [String],
        /// The schedule of a train.
        pattern: String,
        /// Who stamped the times of departure, if a train was sent.
        stamp: Option<Stamp>,
        /// The numbers of trains and packets.
        trains: Trains,
    },
}

/// The numbers of trains.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trains {
    /// Those that left on time.
    pub accepted: u32,
    /// Those during which the host of this virtual machine kept the sender from running for at least 20 µs.
    pub disturbed: u32,
    /// The packets of all of them.
    pub packets: u32,
    /// All of them.
    pub sent: u32,
    /// Those that did not leave on time.
    pub spoiled: u32,
    /// Those whose times of departure are not known.
    pub unknown: u32,
}

/// Stalls of the sending thread, in nanoseconds; 0 if there was none of at least 20 µs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stalls {
    /// The longest time that the host of this virtual machine took.
    pub host: u64,
    /// The longest time that other threads took.
    pub threads: u64,
}

impl From<send::Stalls> for Stalls {
    fn from(stalls: send::Stalls) -> Self {
        Self { host: stalls.host_ns, threads: stalls.threads_ns }
    }
}

/// Errors of gaps between packets, in nanoseconds.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GapErrors {
    /// The largest.
    pub max: u64,
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
}

impl From<selfcheck::GapErrors> for GapErrors {
    fn from(errors: selfcheck::GapErrors) -> Self {
        Self { max: errors.max_ns, p50: errors.p50_ns, p99: errors.p99_ns }
    }
}

/// The gap with the largest error.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorstGap {
    /// The error in nanoseconds: above zero if the gap was too long.
    pub error_ns: i64,
    /// The packet after it, from 0.
    pub packet: usize,
}

/// The program that stamped the times of departure.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Stamp {
    /// The kernel.
    Kernel,
    /// This program, as calls returned.
    Own,
}

impl From<send::Stamp> for Stamp {
    fn from(stamp: send::Stamp) -> Self {
        match stamp {
            send::Stamp::Kernel => Self::Kernel,
            send::Stamp::Own => Self::Own,
        }
    }
}

/// Whether a train left on time.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It did.
    Accepted,
    /// It did not.
    Spoiled,
    /// The times of departure are not known.
    Unknown,
}
