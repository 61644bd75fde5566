//! What is loaded into a drive.

mod source;

pub use source::RawFile;
