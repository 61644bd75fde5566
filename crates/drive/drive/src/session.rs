//! What a process opens drives with, and calls their nodes with.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cheetah_control::ControlClient;
use cheetah_device::ByteRange;
use cheetah_error::Result;
use cheetah_seal::Keyring;
use cheetah_tls::CredentialSet;

use crate::file::DriveFile;

/// What a process opens drives with, and calls their nodes with. A program makes one and hands it down; clones share the
/// keys.
#[derive(Debug, Clone)]
pub struct Session {
    /// The keys of sealed drives, and the identities that open them.
    pub keyring: Arc<Keyring>,
    /// If unverified units of sealed drives are accepted: records which. Otherwise they are not read.
    pub acceptance: Option<Arc<dyn AcceptanceRecord>>,
    /// The credentials with which nodes are called.
    pub credentials: CredentialSet,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// Records that units of a sealed drive are accepted although no writer has closed them.
pub trait AcceptanceRecord: fmt::Debug + Send + Sync {
    /// Records that these ranges of a drive are unverified and accepted. Blocks.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded. The units are then not accepted.
    fn accepted(&self, drive: &DriveFile, ranges: &[ByteRange]) -> Result<()>;
}

impl Session {
    /// A session that accepts no unverified units.
    pub fn new(credentials: CredentialSet, keyring: Arc<Keyring>, timeout: Duration) -> Self {
        Self { keyring, acceptance: None, credentials, timeout }
    }

    /// The same with another time-out.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The same with a time-out of at most `limit`.
    #[must_use]
    pub fn within_at_most(&self, limit: Duration) -> Self {
        self.within(self.timeout.min(limit))
    }

    /// A client of the control API of the node at an address, as the member that this process acts as.
    pub(crate) fn control(&self, address: impl ToString) -> ControlClient {
        ControlClient::new(address, self.credentials.acting_as()).with_timeout(self.timeout)
    }
}
