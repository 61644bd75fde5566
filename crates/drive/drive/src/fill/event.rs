//! Events of a fill, and the observer that records them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_error::{Error, Result};
use cheetah_image::Identity;

use crate::file::Image;
use crate::recognise::Opening;

/// A source that was recognised.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its identity now.
    pub identity: Identity,
    /// How it was recognised.
    pub opening: Opening,
}

/// An event while a drive is being filled.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there are few of them, and each is passed on once")]
pub enum FillEvent {
    /// A process has begun or resumed the fill. `source` is `None` if the source does not answer.
    Opened {
        /// The source.
        source: Option<Box<Found>>,
        /// Bytes that the drive has already.
        read: u64,
    },
    /// Nothing signed vouches for what the drive has: everything is fetched again.
    Distrusted {
        /// Bytes that the record calls read.
        read: u64,
    },
    /// The source failed.
    Lost {
        /// Why.
        why: String,
    },
    /// The source is back, and it is the same.
    Back {
        /// The source.
        source: Box<Found>,
    },
    /// The source is another one now.
    Changed {
        /// The difference.
        what: String,
    },
    /// Every readable range is on the drive, and was read back and compared.
    Complete {
        /// The image as recorded in the drive file.
        image: Image,
        /// The ranges that could not be read.
        unreadable: Vec<ByteRange>,
    },
    /// The fill has failed, and does not continue in this process.
    Failed {
        /// Why.
        why: String,
    },
    /// The fill was stopped in good order, and can be resumed.
    Stopped {
        /// Bytes that the drive has.
        read: u64,
    },
}

/// Records the events of a fill.
pub trait FillObserver: Send + Sync {
    /// Puts `event` on stable storage. Blocks.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded. The source is then no longer used.
    fn observe(&self, event: FillEvent) -> Result<()>;

    /// Signs the digest of the record of the fill, before that is written: `read` bytes are there then. Blocks.
    ///
    /// # Errors
    ///
    /// If it cannot be signed. The record is then not written.
    fn vouch(&self, read: u64, digest: String) -> Result<()>;

    /// Whether this is the digest that was signed last, or the one before: the record may not have been written after that.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// If what was signed cannot be read.
    fn has_vouched(&self, digest: &str) -> Result<bool>;
}

/// Gives the observer of the fill of each drive.
pub trait FillObservers: fmt::Debug + Send + Sync {
    /// Returns the observer for the drive whose file is at `drive`.
    fn of(&self, drive: &Path) -> Arc<dyn FillObserver>;
}

/// Reports events to an observer, if there is one, without blocking the runtime.
#[derive(Clone, Default)]
pub(super) struct Reporter(Option<Arc<dyn FillObserver>>);

impl Reporter {
    pub(super) fn new(observer: Option<Arc<dyn FillObserver>>) -> Self {
        Self(observer)
    }

    /// The observer, for work on a blocking thread.
    pub(super) fn observer(&self) -> Option<&dyn FillObserver> {
        self.0.as_deref()
    }

    pub(super) async fn report(&self, event: FillEvent) -> Result<()> {
        let Some(observer) = self.0.clone() else { return Ok(()) };
        let reported = tokio::task::spawn_blocking(move || observer.observe(event)).await;
        reported.map_err(|died| Error::failed(format!("recording an event of the fill: {died}")))?
    }

    /// Reports an event after the fact; if that fails, the failure is only logged.
    pub(super) async fn report_or_warn(&self, event: FillEvent) {
        if let Err(error) = self.report(event).await {
            tracing::warn!("an event of the fill was not recorded: {error}");
        }
    }
}
