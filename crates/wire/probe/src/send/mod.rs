//! Sends packets on time. Every backend is a [`Sender`]: it takes a [`Train`] of complete frames with the times they
//! are due, prepares everything ahead of the first, and reports when each left.
//!
//! [`open`] chooses the most accurate backend available. Linux has some; other systems have none, and measure with ordinary
//! sockets.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only backends use some of it"))]

pub(crate) mod call;
mod departures;
mod error;

use std::fmt;
use std::time::Duration;

pub use departures::{Departures, Stalls, Stamp};
pub use error::SendError;

use crate::clock::Nanos;
pub use crate::os::send::open;

/// Most packets one train may have.
pub const PACKETS_MAX: usize = crate::schedule::PACKETS_MAX;

cheetah_kit::named! {
    /// A sending backend, in the order in which they are tried: first those with which the sender sleeps while the kernel holds the
    /// packets, which takes a fifth of the processor time; then those that wake the kernel for each packet.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Backend {
        /// The kernel holds packets until they are due, in the ETF queue discipline (`SO_TXTIME`, `CLOCK_TAI`).
        TxtimeEtf = "txtime-etf",
        /// The kernel holds packets until they are due, in the FQ queue discipline (`SO_TXTIME`, `CLOCK_MONOTONIC`).
        TxtimeFq = "txtime-fq",
        /// Packets lie ready in an `AF_XDP` ring, and the kernel is woken when they are due.
        Xdp = "xdp",
        /// Packets lie ready in a `PACKET_TX_RING`, and the kernel is woken when they are due.
        Ring = "ring",
    }
}

impl Backend {
    /// Whether packets go around the queue disciplines of the interface.
    #[must_use]
    pub const fn is_direct(self) -> bool {
        matches!(self, Self::Xdp | Self::Ring)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When packets are handed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreDispatch {
    /// All of them before the first is due. Of trains longer than the ring, the rest is handed over as places become
    /// free.
    Initial,
    /// Each packet this long before it is due.
    OnTheFly(Duration),
}

/// The options of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The backend; the best available by default.
    pub backend: Option<Backend>,
    /// When packets are handed to the kernel.
    pub pre_dispatch: PreDispatch,
    /// Whether to ask for real-time priority while a train is sent, and stay on one CPU.
    pub realtime: bool,
    /// The CPU to send on; the current one by default. Has no effect without `realtime`.
    pub cpu: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { backend: None, pre_dispatch: PreDispatch::Initial, realtime: true, cpu: None }
    }
}

/// Packets and when they are due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Train {
    /// Whole Ethernet frames, without check sequence; up to [`PACKETS_MAX`].
    pub frames: Vec<Vec<u8>>,
    /// When each is due; as many as there are frames, never decreasing.
    pub due: Vec<Nanos>,
}

impl Train {
    /// Checks that it is valid, and that its frames have at most `bytes_max` bytes.
    pub(crate) fn check(&self, bytes_max: usize) -> Result<(), SendError> {
        if self.frames.len() > PACKETS_MAX {
            return Err(SendError::Train("the train has more than 10000 packets: send several"));
        }
        if self.frames.len() != self.due.len() {
            return Err(SendError::Train("the train has a different number of times than packets"));
        }
        if !self.due.is_sorted() {
            return Err(SendError::Train("a packet of the train is due before the one ahead of it"));
        }
        let bytes = self.frames.iter().map(Vec::len).max().unwrap_or_default();
        if bytes > bytes_max { Err(SendError::TooLong { bytes, bytes_max }) } else { Ok(()) }
    }
}

/// What made sending less accurate: a sentence without its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendNote {
    /// The thread was not kept on one CPU; why.
    #[error("sending was not kept on one CPU: {0}")]
    NotPinned(String),
    /// The thread had no real-time priority; why.
    #[error(
        "sending had no real-time priority, so other programs may delay it: {0} (setcap cap_sys_nice+ep grants it)"
    )]
    NoPriority(String),
    /// The thread gave its real-time priority up.
    #[error(
        "the train kept a CPU busy without a pause for so long that its last part was sent without real-time priority"
    )]
    GaveUpPriority,
    /// The thread could not give its real-time priority up; why.
    #[error("the thread that sent keeps its real-time priority: {0}")]
    KeepsPriority(String),
}

/// Sends trains through one interface.
pub trait Sender: Send {
    /// Returns the backend.
    fn backend(&self) -> Backend;

    /// Returns the longest frame that it accepts, in bytes.
    fn frame_bytes_max(&self) -> usize;

    /// Measures that would make sending more accurate and are not permitted here. Known after the first train.
    fn notes(&self) -> &[SendNote];

    /// Returns the best time to start a train of packets with these offsets, at `earliest` or up to 10 ms later: when
    /// clock ticks, and regular pauses that earlier trains met, disturb the fewest packets, as far as the backend knows.
    fn quiet_start(&self, earliest: Nanos, offsets: &[Duration]) -> Nanos {
        let _ = offsets;
        earliest
    }

    /// Sends a train, and returns when all of it has left. Packets that are overdue leave at once. Blocks. If the
    /// options request it, the calling thread has real-time priority meanwhile.
    ///
    /// # Errors
    ///
    /// If the train exceeds the limits, if the interface is gone or down, or if the kernel refuses it.
    fn send(&mut self, train: &Train) -> Result<Departures, SendError>;
}
