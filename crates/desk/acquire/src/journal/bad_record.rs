//! Why a line of a journal is refused.

/// Why a line of a journal is refused; as text, a phrase that follows "is".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// It is no record, or its check is wrong.
    #[error("no record")]
    NoRecord,
    /// The first record is of another kind.
    #[error("not the beginning")]
    NotTheBeginning,
    /// The journal has a version that is not known.
    #[error("of version {0}, which this program does not know")]
    Version(u32),
    /// The source that it names cannot be acquired.
    #[error(transparent)]
    Source(#[from] cheetah_error::Error),
    /// A journal begins once.
    #[error("a second beginning")]
    SecondBeginning,
    /// A checkpoint is before the last one.
    #[error("a step back")]
    StepBack,
    /// A checkpoint is within a chunk.
    #[error("a step to where no chunk ends")]
    WithinChunk,
    /// A checkpoint does not have a digest for each chunk.
    #[error("digests of more or fewer chunks than there are")]
    Digests,
    /// A checkpoint does not have a mark for each destination.
    #[error("more or fewer destinations than there are")]
    Destinations,
    /// A checkpoint has unreadable ranges outside of the bytes that it is about.
    #[error("unreadable ranges elsewhere")]
    Unreadable,
}
