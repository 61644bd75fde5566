//! Why a node does no work.

use cheetah_control::ControlError;
use cheetah_tls::Role;

/// Why a node does no work: a clause that continues its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotDone {
    /// It has no control API.
    #[error("is a foreign server")]
    Foreign,
    /// It was not told to.
    #[error("does not lend its processor")]
    NotLent,
    /// Its part of the drive is not the newest.
    #[error("has missed writes")]
    MissedWrites,
    /// It holds ciphertext, and others were chosen to be lent the key.
    #[error("holds ciphertext, and is lent no key")]
    NotChosen,
    /// Its connection is not encrypted.
    #[error("is reached in clear, and a key is lent over TLS only")]
    InClear,
    /// The room gave it another role.
    #[error("has the role {0}, and a key is lent to the role {trusted} only", trusted = Role::TrustedNode)]
    NotTrusted(Role),
    /// Another, empty, instance answers.
    #[error("was restarted")]
    Restarted,
    /// It does not say whether it lends its processor.
    #[error("does not answer: {0}")]
    Silent(ControlError),
    /// It refused a job.
    #[error("takes no job: {0}")]
    Refused(ControlError),
    /// It is gone, or has forgotten a job.
    #[error("gave up a job: {0}")]
    Gone(ControlError),
    /// It could not do a job, in its own words.
    #[error("gave up a job: {0}")]
    Failed(String),
    /// Its results are none.
    #[error("sent results that are none")]
    Malformed,
    /// Its processor has other things to do.
    #[error("finds no time for jobs")]
    NoTime,
}
