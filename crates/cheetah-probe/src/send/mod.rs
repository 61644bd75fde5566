//! Sending on time. Every way of doing it is a [`Sender`]: it takes a [`Train`] whose packets are complete frames with the
//! times they are due at, gets everything ready ahead of the first, and says when each left.

use std::time::Duration;

use crate::clock::Nanos;

/// A way to send on time, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// The kernel holds packets until they are due, in the ETF queue discipline (`SO_TXTIME`, `CLOCK_TAI`).
    TxtimeEtf,
    /// The kernel holds packets until they are due, in the FQ queue discipline (`SO_TXTIME`, `CLOCK_MONOTONIC`).
    TxtimeFq,
    /// Packets lie ready in an `AF_XDP` ring, and the kernel is woken when they are due.
    Xdp,
    /// Packets lie ready in a `PACKET_TX_RING`, and the kernel is woken when they are due.
    Ring,
    /// Sleep, then `sendto`: what everybody does, for comparison.
    Sequential,
}

/// When packets are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreDispatch {
    /// All of them before the first is due.
    Initial,
    /// Each so long before it is due.
    OnTheFly(Duration),
}

/// Packets and when they are due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Train {
    /// Whole Ethernet frames, without check sequence.
    pub frames: Vec<Vec<u8>>,
    /// When each is due; as many as there are frames, never decreasing.
    pub due: Vec<Nanos>,
}

/// By whose clock reading it is known when a packet left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// The kernel stamped it as it was given to the interface's driver.
    Kernel,
    /// Read by this program right after the call that sent it returned.
    Own,
}

/// When the packets of a train left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departures {
    /// For each packet, when; absent if the kernel did not say.
    pub left: Vec<Option<Nanos>>,
    /// By whose clock reading.
    pub stamp: Stamp,
}

/// Sends trains through one interface.
pub trait Sender: Send {
    /// Which it is.
    fn backend(&self) -> Backend;

    /// Sends a train and returns when all of it has left. What was due already leaves at once.
    ///
    /// # Errors
    ///
    /// If the train is more than it takes, if the interface is gone or down, or if the kernel refuses it.
    fn send(&mut self, train: &Train) -> Result<Departures, SendError>;
}

/// Why a train was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The kernel refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
