//! Drive files, and assembling the stack of layers they describe.
//!
//! A *drive* is one virtual disk over the memory of many nodes. Everything needed to find its bytes again is in its
//! *drive file*; no daemon owns it. Who has the file and can reach the nodes can open the drive: one writer at a
//! time, any number of readers.
//!
//! # What one does with a drive
//!
//! | function | what it does |
//! |---|---|
//! | [`find::find`]`(&[NodeSpec], &FindOptions) -> Vec<Found>` | ask named, announced and foreign nodes what they have |
//! | [`gather::Gather::listen`]`(addr, wanted, insecure)`, `.next() -> Option<Found>` | wait for nodes that join by themselves |
//! | [`plan::plan`]`(Wanted, Layout, &[Free]) -> Vec<u64>` | how much of each node a drive will take |
//! | [`create::create`]`(CreateRequest) -> DriveFile` | allocate, and write the drive file; all or nothing |
//! | [`create::enlarge`]`(&mut DriveFile, EnlargeRequest)` | append a set of further nodes |
//! | [`destroy::destroy`]`(&DriveFile, DestroyOptions) -> Destroyed` | free the exports (with receipts), remove the files |
//! | [`DriveFile::load`]`(path)` | read and check a drive file |
//! | [`Drive::open`]`(&DriveFile, OpenOptions) -> Drive` | assemble the device; [`Drive::device`], [`Drive::close`] |
//! | [`load::load`]`(&mut DriveFile, DynDevice, LoadOptions, progress) -> Image` | copy an image in, hashed on the way |
//! | [`fill::begin`]`(&mut DriveFile, spec, &Identity, HashChoice)` | mark a new drive as filling from a source |
//! | [`fill::Filling::open`]`(&DriveFile, OpenSource, FillOptions) -> Option<Filling>` | read a drive while it is filled |
//! | [`partial::save_partial`]`(&DriveFile, &Path, &PartialOptions, progress) -> Partial` | copy out what can be read, with a map |
//! | [`verify::verify`]`(&DriveFile, VerifyOptions, progress) -> VerifyReport` | read everything back and compare |
//! | [`save::save`]`(DynDevice, &Path, SaveOptions, progress) -> Saved` | copy a device out to a file |
//! | [`save::copy`]`(DynDevice, DynDevice, HashChoice, progress) -> Saved` | copy a device to another |
//! | [`status::status`]`(&DriveFile, timeout) -> DriveStatus` | ask every node how the drive is |
//!
//! Every function wants a tokio runtime. `progress` is any `FnMut(Progress)`, called from the task that copies.
//!
//! # What a drive does not protect against
//!
//! A foreign NBD server knows neither instances nor leases: that it restarted empty, or that somebody else writes to
//! its export, shows only when the drive is verified.

#![forbid(unsafe_code)]

mod browse;
mod connect;
pub mod copy;
pub mod create;
pub mod destroy;
pub mod digests;
mod export;
mod fence;
pub mod file;
pub mod fill;
pub mod find;
pub mod gather;
mod lease;
pub mod load;
mod lost;
pub mod open;
pub mod partial;
pub mod plan;
mod rescue;
pub mod save;
pub mod sparse;
pub mod status;
mod usage;
pub mod verify;

pub use cheetah_device::placement::Layout;
pub use cheetah_image::{Error, HashChoice, HashKind, Hashes, Result};
pub use copy::Progress;
pub use file::{DriveFile, Image, ImageState};
pub use find::{Found, NodeSpec};
pub use open::{Drive, OpenOptions};
pub use plan::Wanted;
