//! What a process keeps of custody logs elsewhere than beside the evidence.

use std::path::Path;
use std::sync::Arc;

use cheetah_tls::Credential;

use crate::check::Known;
use crate::head::Head;
use crate::key::PublicKey;
use crate::ledger::{Ledger, usual_directory};
use crate::placed::{PlacedHead, WrittenHeads};
use crate::record::ActingAs;

/// The ledger of the user who writes and checks logs, the member of a room that the user acts as, and the heads that were
/// written, for the room. A program makes one and hands it down; a clone is the same custodian. The default is in no room, and
/// keeps no ledger.
#[derive(Debug, Clone, Default)]
pub struct Custodian {
    acting_as: Option<Arc<ActingAs>>,
    ledger: Option<Arc<Ledger>>,
    written: Arc<WrittenHeads>,
}

impl Custodian {
    /// The custodian with the ledger of this process's user, in its usual directory; without one if the user has no home.
    /// Records name the member with this credential.
    pub fn of_user(credential: Option<&Credential>) -> Self {
        let ledger = usual_directory().map(Ledger::in_directory).map(Arc::new);
        let acting_as = credential.and_then(ActingAs::of).map(Arc::new);
        Self { acting_as, ledger, written: Arc::default() }
    }

    /// The member that records name.
    pub(crate) fn acting_as(&self) -> Option<&ActingAs> {
        self.acting_as.as_deref()
    }

    /// What is known of a log whose records these keys may sign.
    pub fn known(&self, keys: Vec<PublicKey>) -> Known {
        Known { keys, ledger: self.ledger.clone(), ..Known::default() }
    }

    /// Takes the heads that were written since it was asked last.
    pub fn take_written(&self) -> Vec<PlacedHead> {
        self.written.take()
    }

    /// The ledger, if one is kept.
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_deref()
    }

    /// Notes that this process wrote the head of the log at `path`; `is_evidence` if its last record is about more than a
    /// verification.
    pub(crate) fn note(&self, path: &Path, head: Head, is_evidence: bool) {
        self.written.note(path, &head, is_evidence);
        if let Some(ledger) = &self.ledger {
            ledger.note(path, head, is_evidence);
        }
    }
}
