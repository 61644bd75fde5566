//! Why a volume cannot be described.

use cheetah_device::Error;

/// Why a volume cannot be described: a clause about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// What is said about it contradicts itself, or its checksum is wrong.
    #[error("its header is damaged: {0}")]
    Damaged(&'static str),
    /// It uses something that is not supported.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// It could not be read.
    #[error("it could not be read: {0}")]
    Unread(#[from] Error),
}
