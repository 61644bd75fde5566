//! Why a source that is opened again is not taken for the same.

use cheetah_error::Error;

/// Why a source is not recognised.
pub enum Unrecognised {
    /// It may be another source: facts about it differ.
    Another(Error),
    /// By all known facts it is the source, but its content has changed or cannot be read.
    Failed(Error),
}

impl From<Error> for Unrecognised {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Unrecognised {
    pub fn into_error(self) -> Error {
        match self {
            Self::Another(error) | Self::Failed(error) => error,
        }
    }
}
