//! Drive files, and assembling the stack of layers they describe.
//!
//! A *drive* is one virtual disk over the memory of many nodes. Its *drive file* holds everything needed to find its
//! bytes again; no daemon owns it. With the file, and access to the nodes, a drive can be opened: by one writer at a
//! time, and any number of readers.
//!
//! # Rooms, from the ground up
//!
//! | module | content |
//! |---|---|
//! | `timing` | the times of leases and waits, and the relations between them |
//! | `file` | drive files, the devices that they describe, and the files beside them: chunk digests, coverage map |
//! | `node` | finding nodes, their health, connecting to them, allocating parts there |
//! | `lease` | the write lease, and the fence that stops a writer that lost it |
//! | `layout` | sharing a drive out over nodes |
//! | `set` | sets that survive losses: the map at the nodes, opening, following, reading and writing |
//! | `session` | what a process opens drives with |
//! | `sealed` | drives whose nodes hold ciphertext only |
//! | `care` | restoring redundancy, moving parts: repair, drain, rebalance, upkeep |
//! | `open` | opening a drive: the layers over its nodes, and the upkeep of its sets |
//! | `copy` | the copy engine, reading around lost ranges, sparse files |
//! | `recognise` | whether a source that is opened again is the same; for acquisitions, too |
//! | `near` | work at the nodes on what they hold |
//! | `fill` | lazy drives: read while they are filled |
//! | `image` | loading, saving and verifying an image |
//! | `status` | the state of a drive |
//! | `chart` | the picture of that: which node holds which slice |
//! | `lifecycle` | creating, enlarging and destroying drives |
//!
//! # Functions
//!
//! | function | effect |
//! |---|---|
//! | [`find::find`]`(&[NodeSpec], &FindOptions) -> Vec<AvailableNode>` | ask named, announced and foreign nodes for their free memory |
//! | [`gather::JoinListener::listen`]`(addr, wanted, insecure, credentials)`, `.next() -> Option<AvailableNode>` | wait for nodes that join by themselves |
//! | [`plan::plan`]`(DriveSize, Layout, &[NodeMemory]) -> Vec<u64>` | how much of each node a drive will take |
//! | [`create::create`]`(CreateRequest) -> DriveFile` | allocate, and write the drive file; all or nothing |
//! | [`create::enlarge`]`(&mut DriveFile, EnlargeRequest)` | append a set of further nodes |
//! | [`destroy::destroy`]`(&DriveFile, DestroyOptions) -> Destroyed` | free the exports (with receipts), remove the files |
//! | [`DriveFile::load`]`(path)` | read and check a drive file |
//! | [`Drive::open`]`(&DriveFile, OpenOptions) -> Drive` | assemble the device; [`Drive::device`], [`Drive::close`] |
//! | [`load::load`]`(&mut DriveFile, DynDevice, LoadOptions, progress) -> Image` | copy an image in, hashed on the way |
//! | [`fill::begin`]`(&mut DriveFile, spec, &Identity, HashChoice)` | mark a new drive as filling from a source |
//! | [`fill::Filling::open`]`(&DriveFile, OpenSource, FillOptions) -> Option<Filling>` | read a drive while it is filled |
//! | [`partial::save_partial`]`(&DriveFile, &Path, &PartialOptions, progress) -> PartialSave` | copy out the readable ranges, with a map |
//! | [`verify::verify`]`(&DriveFile, VerifyOptions, progress) -> VerifyReport` | read everything back and compare |
//! | [`search::search_at_nodes`]`(&DriveFile, &DynDevice, …) -> NearSearch` | have the nodes search what they hold |
//! | [`save::save`]`(DynDevice, &Path, SaveOptions, progress) -> Saved` | copy a device out to a file |
//! | [`save::copy`]`(DynDevice, DynDevice, HashChoice, progress) -> Saved` | copy a device to another |
//! | [`status::status`]`(&DriveFile, session) -> DriveStatus` | ask every node for its state |
//!
//! Every function needs a tokio runtime. `progress` is any `FnMut(CopyProgress)`, called from the task that copies.
//!
//! # Limits of protection
//!
//! A foreign NBD server knows neither instances nor leases. That it restarted empty, or that another client writes to
//! its export, is detected only when the drive is verified.

#![forbid(unsafe_code)]

mod care;
pub mod chart;
pub mod copy;
pub mod file;
pub mod fill;
mod image;
mod layout;
mod lease;
mod lifecycle;
mod near;
mod node;
pub mod open;
pub mod options;
pub mod recognise;
mod refused;
pub mod sealed;
mod session;
mod set;
pub mod status;
mod timing;

pub use care::{check, drain, rebalance, refetch, repair};
pub use cheetah_image::{HashChoice, HashKind, Hashes};
pub use copy::{CopyProgress, sparse_file};
pub use file::{DriveFile, Image, ImageState, digests};
pub use image::{LoadProgress, Teller, load, partial, save, verify};
pub use layout::kind::{Layout, UNIT_BYTES_DEFAULT, unit_of_sealed};
pub use layout::plan::{self, DriveSize};
pub use lease::user_name;
pub use lifecycle::{create, destroy, usage};
pub use near::parts::{Part, parts};
pub use near::work_done::WorkDone;
pub use near::{lending, search};
pub use node::find::{AvailableNode, NodeSpec};
pub use node::{content, find, gather, here};
pub use open::Drive;
pub use options::OpenOptions;
pub use refused::Refused;
pub use session::{AcceptanceRecord, Session};
