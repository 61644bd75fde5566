//! The parameters of an acquisition.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cheetah_custody::{ContentOf, Custodian, SigningKey};
use cheetah_drive::Session;
use cheetah_error::{Error, Result};
use cheetah_image::HashChoice;
use cheetah_image::ewf::write::E01Options;
use cheetah_source::{Evidence, VolumeChoice};
use futures::future::BoxFuture;

use super::{Destination, distinct};

/// The default number of bytes between two checkpoints.
pub const CHECKPOINT_BYTES_DEFAULT: u64 = 64 << 20;

/// Opens the source; called again each time the link to it was lost.
pub type Opener = Arc<dyn Fn() -> BoxFuture<'static, Result<Evidence>> + Send + Sync>;

/// The number of unreadable ranges to tolerate. Adjacent sectors are one range; each started MiB of a longer range
/// counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorsMax {
    /// At most this many; one more stops the acquisition.
    Count(u64),
    /// Any number.
    Unlimited,
}

impl ErrorsMax {
    /// Returns whether `count` ranges are too many.
    pub const fn exceeded_by(self, count: u64) -> bool {
        match self {
            Self::Count(max) => count > max,
            Self::Unlimited => false,
        }
    }
}

impl Default for ErrorsMax {
    /// None: the examiner decides how to treat a bad disk.
    fn default() -> Self {
        Self::Count(0)
    }
}

impl FromStr for ErrorsMax {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            _ => text.parse().map(Self::Count).map_err(|_| {
                Error::misuse(format!("'{text}' is not a number of errors; write a number, or unlimited"))
            }),
        }
    }
}

impl fmt::Display for ErrorsMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// An acquisition: its source, destinations and options.
#[derive(Clone)]
pub struct Request {
    /// Opens the source.
    pub source: Opener,
    /// Where to: at least one. The journal lies beside the first.
    pub destinations: Vec<Destination>,
    /// Hashes of the whole.
    pub hashes: HashChoice,
    /// The options of an E01, and the case data; model, serial number and sectors are filled in from the source,
    /// unless they are given.
    pub e01: E01Options,
    /// The number of unreadable ranges to accept.
    pub errors_max: ErrorsMax,
    /// The number of retries of an unreadable sector.
    pub retries: u32,
    /// How long to try to reconnect to a lost source.
    pub retry_for: Duration,
    /// The number of bytes between checkpoints; at most twice as many are read again after an interruption.
    pub checkpoint_bytes: u64,
    /// The initial number of bytes in flight; the default if `None`. The window then adapts to the link.
    pub window_bytes: Option<u64>,
    /// What drives are opened with. Any peer may be silent as long as a node.
    pub session: Session,
    /// Take the write lease of a drive from its holder.
    pub force_lease: bool,
    /// The examiner vouches that a source with a different identity is the original one.
    pub same_source: bool,
    /// Compare all data acquired before, not a sample, with a source that is opened again.
    pub compare_all: bool,
    /// Fail at the beginning if the file systems may have too little space.
    pub check_space: bool,
    /// Read every destination back in the end, and compare.
    pub verify: bool,
    /// Discard an interrupted acquisition, and begin again.
    pub restart: bool,
    /// Replace existing images, and the image that a drive holds.
    pub force: bool,
    /// The volume of the source that must be found, and open, before anything is acquired.
    pub unlock: Option<VolumeChoice>,
    /// Of what the source is the content, if it is that of a volume.
    pub content: Option<ContentOf>,
    /// The beginning of the notes of the case data that says so, and is not the examiner's.
    pub noted: Option<String>,
    /// The key that signs the custody logs; without one, no logs are kept.
    pub key: Option<SigningKey>,
    /// Keeps what is known of custody logs elsewhere.
    pub custodian: Custodian,
}

impl Request {
    /// The defaults: all hashes, one retry, no unreadable range, nothing replaced, no custody log and no ledger.
    pub fn new(source: Opener, destinations: Vec<Destination>, session: Session) -> Self {
        Self {
            source,
            destinations,
            hashes: HashChoice::ALL,
            e01: E01Options::default(),
            errors_max: ErrorsMax::default(),
            retries: 1,
            retry_for: Duration::from_secs(60),
            checkpoint_bytes: CHECKPOINT_BYTES_DEFAULT,
            window_bytes: None,
            session,
            force_lease: false,
            same_source: false,
            compare_all: false,
            check_space: false,
            verify: false,
            restart: false,
            force: false,
            unlock: None,
            content: None,
            noted: None,
            key: None,
            custodian: Custodian::default(),
        }
    }

    /// Fails unless it makes sense.
    pub(crate) fn check(&self) -> Result<()> {
        if self.destinations.is_empty() {
            return Err(Error::misuse("name a destination: x.raw, x.E01 or x.drive"));
        }
        distinct::check(&self.destinations)?;
        self.e01.check()
    }
}
