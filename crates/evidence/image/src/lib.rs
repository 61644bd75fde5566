//! Sources of evidence: images in the formats that examiners use, disks and exports, each as a read-only
//! [`Device`](cheetah_device::Device). Also hashes of their content.

#![deny(unsafe_code)]

pub mod aff4;
pub mod append;
mod bad_range;
mod behind;
pub mod clean;
pub mod compressed;
pub mod coverage;
pub mod detect;
pub mod disk;
pub mod evidence;
pub mod ewf;
mod file;
pub mod hash;
mod hashed;
pub mod identity;
mod note;
pub mod open;
mod os;
pub mod own_file;
pub mod publish;
pub mod qemu;
mod raw;
pub mod regular;
pub mod served;
mod side_file;
mod source;
pub mod space;
pub mod spec;
pub mod split;
mod unpack;
mod watching;

pub use bad_range::BadRange;
pub use disk::AoeTarget;
pub use evidence::{ConnectDigests, Evidence, LinkCounters};
pub use hash::{HashChoice, HashKind, Hashes};
pub use hashed::{HashedFiles, HashedStart, NotHashed};
pub use identity::{CaseData, Identity, Kind};
pub use note::ImageNote;
pub use open::{Folder, claimed_format, open, open_behind};
pub use raw::RawFile;
pub use served::ServedBy;
pub use source::{OpenOptions, Source, SourceFile};
pub use watching::Watching;
