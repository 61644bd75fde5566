//! What can be read: a drive, or any source of evidence ([`cheetah_image::open`]); opened as one device, with the
//! layers above it that the user wants.
//!
//! [`Access`] says how, [`Opened::open`] does it. The command line and the Python package both go through here, so that
//! what a source is called, and what goes wrong with it, is the same in both. Errors are [`cheetah_image::Error`]: a
//! sentence each, of one of three kinds: misuse, failure, or a problem with the evidence.

#![forbid(unsafe_code)]

mod access;
mod identified;
mod kind;
mod layers;
mod link;
mod meter;
mod only;
mod opened;
mod remote;
mod stats;

pub use access::{Access, CacheWish, FillObserverOf, OverlayPlace};
pub use cheetah_image::{Error, Result};
pub use identified::{identified, opener};
pub use kind::is_drive;
pub use link::LinkUse;
pub use meter::Meter;
pub use only::Only;
pub use opened::Opened;
pub use remote::remote;
pub use stats::{SourceStats, Stats};
