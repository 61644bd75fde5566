//! Why a node does no work.

use cheetah_control::ControlError;

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
