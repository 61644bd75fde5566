//! Keys of sealed drives that are lent to this run of the node.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::jobs::LentKey;
use cheetah_kit::locked::with_stack_wiped;
use cheetah_seal::age::Identity;
use cheetah_seal::{SealError, Stamp, lent};

use super::JobError;
use crate::keys_lent::{Held, KeysLent};

/// What opens the keys that are lent to this run. It ends with the run, and the keys that were sent before are then of no use.
pub(super) struct Borrower(Identity);

impl Borrower {
    pub fn new() -> Result<Self, SealError> {
        Identity::generate().map(Self)
    }

    /// The recipient for which keys are wrapped.
    pub fn recipient(&self) -> String {
        self.0.recipient().to_string()
    }

    /// Takes a key for units of `unit_bytes`, which `by` lends, and notes that in `record`.
    pub fn take(&self, key: &LentKey, unit_bytes: u64, record: &KeysLent, by: &str) -> Result<OwnKey, JobError> {
        if !key.is_valid() {
            return Err(JobError::Bad("a lent key has a task of 32 hex digits, and at most 5464 digits of base64"));
        }
        let file = STANDARD.decode(&key.age).map_err(|_| JobError::Bad("a lent key is not base64"))?;
        let opened = with_stack_wiped(|| lent::LentKey::unwrap(&file, &self.0));
        let opened = opened.map_err(|_| JobError::Bad("a lent key is none, or was lent to another run of the node"))?;
        if opened.unit_bytes() != unit_bytes {
            return Err(JobError::Bad("the units of a job with a lent key are those of the seal"));
        }
        let held = record.note(&key.task, by).ok_or(JobError::TooManyTasks)?;
        Ok(OwnKey { key: opened, _held: held })
    }
}

/// The copy of a lent key that one job has. It is wiped when it is dropped.
pub(super) struct OwnKey {
    key: lent::LentKey,
    // Dropped after the key.
    _held: Held,
}

impl OwnKey {
    /// As [`lent::LentKey::open`].
    pub fn open(&self, index: u64, sealed: &mut [u8]) -> Option<Stamp> {
        self.key.open(index, sealed)
    }
}
