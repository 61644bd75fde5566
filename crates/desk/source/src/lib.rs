//! Opens anything that can be read: a drive, an image, a disk, an NBD export, an iSCSI unit or a file on a web server.
//!
//! [`open()`] is the one way to open a source: it returns a device, an identity and the counters of the link. [`OpenedSource`] is a
//! source with the layers above it that [`Access`] asks for. The command line and the Python package both use this crate, so
//! a source has the same name, the same identity and the same errors everywhere.

#![forbid(unsafe_code)]

mod access;
mod apart;
mod contents;
mod doubts;
mod inner;
mod kind;
mod layers;
mod link;
#[cfg(test)]
mod named_tests;
mod network;
mod nodes_here;
mod not_empty;
pub mod offline;
mod open;
mod opened;
mod options;
mod read_counter;
mod read_sample;
mod remote;
mod reopening;
pub mod search;
mod stack;
mod stats;
mod upload;
mod volume;
mod web;

pub use access::{Access, CacheOption, OverlayPlace};
pub use cheetah_image::{ConnectDigests, Evidence, LinkCounters};
pub use cheetah_unlock::{Keys, OpenedVolume, Outcome as UnlockOutcome, Unlocked};
pub use contents::{UnreadVolume, Volume, unread_volumes, volumes};
pub use doubts::{doubts, doubts_about_drive, may_look_meanwhile, unexamined};
pub use kind::is_drive;
pub use link::LinkUse;
pub use network::open_nbd;
pub use nodes_here::nodes_here;
pub use open::{open, opener};
pub use opened::OpenedSource;
pub use options::SourceOptions;
pub use read_counter::ReadCounter;
pub use remote::remote;
pub use search::{SearchOptions, Searching};
pub use stack::{Assembled, Content, InnerVolume, ListedCopy, NotShown, ShadowCopies, StackOutcome, VolumeStack};
pub use stats::{SourceStats, Stats};
pub use upload::{ObjectTarget, Upload, UploadRecord};
pub use volume::{OpenOther, OpenedAlone, Shown, VolumeChoice, WhichVolume, alone};
