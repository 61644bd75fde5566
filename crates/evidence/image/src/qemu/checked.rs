//! The result of checking a virtual disk.

use crate::note::ImageNote;
use crate::source::SourceFile;

/// What the check of an image found.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// The files that the image consists of besides the one that was named.
    pub files: Vec<SourceFile>,
    /// What is in doubt although it can be read.
    pub notes: Vec<ImageNote>,
}
