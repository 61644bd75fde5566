//! What is in a device: partitions ([`partition`]), and where the file systems in them keep their metadata and the
//! content of their files ([`survey`]).
//!
//! Nothing here shows a file to anybody. Tools have their own idea of a file system, and the evidence stays as it
//! is; what is found here only says what a tool will read next, so that it can be fetched before it is asked for.
//! Being wrong about that costs time and never a byte.

#![forbid(unsafe_code)]

mod ext;
mod fat;
pub mod foresight;
mod le;
mod ntfs;
pub mod partition;
pub mod survey;
