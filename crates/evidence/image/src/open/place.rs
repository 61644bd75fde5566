//! Where the files of an image are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::detect::Unsupported;
use crate::ewf::Ewf;
use crate::file::SharedFile;
use crate::hashed::HashedFiles;
use crate::note::ImageNote;
use crate::source::{Source, SourceFile};
use crate::split::Split;
use cheetah_error::{Error, Result};

/// The place of an image: its first file, and the folder in which the others are. All methods may block.
pub(super) trait Place: Send + Sync {
    /// The first file as the user named it.
    fn location(&self) -> &str;

    /// A path whose last component is the name of the first file.
    fn path(&self) -> &Path;

    /// The first file.
    fn file(&self) -> SharedFile;

    /// The first file, for the list of the files that an image is read from.
    fn only_file(&self) -> Vec<SourceFile>;

    /// The first file, for small reads. If the image is read `in_order`, its bytes are hashed as they pass.
    fn hashed_file(&self, in_order: bool) -> (SharedFile, Option<Arc<HashedFiles>>);

    /// Opens the E01 image that begins with the first file. If it is read `in_order`, the files are hashed as they pass.
    fn ewf(&self, in_order: bool) -> Result<(Ewf, Option<Arc<HashedFiles>>)>;

    /// Looks for further parts of a raw image.
    fn parts(&self) -> Result<Parts>;

    /// The first file as a raw image.
    fn raw(&self) -> Source;

    /// How the files of an image that is not raw are watched.
    fn watched(&self) -> Option<String>;

    /// Applies the coverage map beside an image of one's own.
    fn mapped(&self, source: Source) -> Result<Source>;

    /// Where a virtual disk is read through a process.
    fn virtual_disk(&self) -> Result<PathBuf>;

    /// Fails if a file in no known format, which begins with `start`, has a name that no raw image has.
    fn check_name(&self, start: &[u8]) -> Result<()>;

    /// The refusal of a format that is not supported.
    fn unsupported(&self, format: Unsupported) -> Error;
}

/// What is beside a raw image.
pub(super) enum Parts {
    /// The first file is the first part of this image.
    Several(Split),
    /// The first file is not one of several: what the names leave in doubt.
    Alone(Option<ImageNote>),
}
