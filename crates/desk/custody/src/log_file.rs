//! The file of a custody log.

use cheetah_image::own_file::OwnFile;

/// A custody log beside an image. Its records show whether it is one; nothing is appended to any other file.
pub(crate) const LOG: OwnFile = OwnFile { name: "custody log", begins: |_| true };
