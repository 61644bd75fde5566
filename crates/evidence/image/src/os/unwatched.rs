//! Windows reports writes to a folder's files late, and not those through a handle that stays open; FreeBSD and macOS are not asked
//! yet. So files are not watched: their sizes and times are compared.

use std::fs::File;

/// A file whose size and times are all that is compared.
#[derive(Debug)]
pub(crate) struct Watch;

impl Watch {
    /// Takes an open regular file.
    pub(crate) fn start(_file: &File) -> Self {
        Self
    }

    /// Whether the system has reported a write.
    pub(crate) fn is_written(&self) -> bool {
        false
    }

    /// Whether a program may have had the file open for writing when this was started.
    pub(crate) fn may_have_writer(&self) -> bool {
        true
    }

    /// The same as of the last question to [`is_written`](Self::is_written).
    pub(crate) fn was_written(&self) -> bool {
        false
    }

    /// Says what is watched, and what is not, in sentences.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{TIMES}; the system was not asked to report writes to it; whether a program had it open for writing when it was \
             opened was not found out, and what such a program writes through a memory mapping may not be noticed"
        )
    }
}

/// What is compared of every file.
pub(crate) const TIMES: &str = "its size, its time of modification and its time of change were compared with each read and at \
                                the end of an acquisition";
