//! Mirror and parity: drives that survive the loss of members.
//!
//! | module | content |
//! |---|---|
//! | [`geometry`] | where data, redundancy and digests lie |
//! | [`map`] | which members hold the current content: its versions, and the regions that a member missed |
//! | [`bad`] | pages whose content is lost, as the map records them |
//! | [`engine`] | the recovery engine, without I/O: which map must be stored before a write is acknowledged |
//! | [`environment`] | what a drive needs from outside: connections, and a place for the map |
//! | [`members`] | the members' connections and condition; `writer` carries out the engine's decisions |
//! | [`moves`] | how a member moves to another node |
//! | [`alternatives`] | reading a range without one of its members, for a layer above that knows what is right |
//! | `array` | the device over equal members; `read`, `write` and `resync` are its parts |
//! | [`redundant`] | a drive of arrays |
//! | `check` | reading all units, and comparing data, digests and redundancy |
//! | [`votes`] | whether the nodes that returned or stored a map form a majority |
//! | [`read_lease`] | for how long a reader may use the map that it has |
//! | [`timing`] | the times of reads and writes under losses, and the relations between them |
//! | [`pace`] | the rate of resynchronization while users' requests run, without I/O |
//! | `digest_cells` | a cache of digests read recently |
//! | `code` | redundancy and digests of a group |
//! | `range_lock` | locks on groups |
//!
//! # The life of a write
//!
//! 1. The engine admits it: its regions are recorded as unsettled in a stored map.
//! 2. Its groups are locked.
//! 3. Redundancy and digests are computed. If a group is written in part, the rest of its rows is read first.
//! 4. The edits are sent to all members that take part, at the same time.
//! 5. A member that is lost or silent is recorded as stale in a stored map.
//! 6. The write is acknowledged, and the groups are unlocked.
//!
//! # Why a half-finished write yields no made-up bytes
//!
//! If the writer dies in step 4, data and redundancy of a group may be of different versions. A page computed from them
//! is neither the old nor the new content. The computed page is therefore compared with its digest, which a redundancy
//! member stores apart from the data: the two match only if that page was once written. The alternative is full-group
//! writes with small writes out of place (Carbink, OSDI 2022). It has no half-finished groups, but needs a table of
//! where each page is, compaction, and memory for both, and a healthy read is no longer a plain stripe read. Where more
//! units are available than needed (P+Q), leaving each unit out in turn finds the units of one version. With a single
//! parity, a page may be lost for good if the writer dies in step 4 *and* a member is lost before the next writer has
//! settled the group: reads of that page then fail. Once the member is back or replaced, the page is recorded as bad
//! ([`bad`]), so that the member can still get in sync. (The alternative is a log of partial parity, such as md's PPL:
//! it would keep the page, but each small write would need another write to a third member, even without failures.)
//!
//! Digests cost 8 bytes a page beside each redundancy unit, and one additional small write.

#![forbid(unsafe_code)]

pub mod alternatives;
mod array;
pub mod bad;
mod check;
mod code;
mod digest_cells;
pub mod engine;
pub mod environment;
pub mod geometry;
pub mod map;
pub mod members;
pub mod moves;
pub mod pace;
mod range_lock;
mod read;
pub mod read_lease;
pub mod redundant;
mod resync;
pub mod timing;
pub mod votes;
mod write;
pub mod zones;

pub use alternatives::Alternative;
pub use bad::BadRanges;
pub use check::Checked;
pub use engine::Engine;
pub use environment::{Cause, DynLink, Environment, LocalMember, MemberLink, NotReached, NotStored};
pub use geometry::{ArrayGeometry, Redundancy};
pub use map::{Map, MemberState, Regions};
pub use members::{Members, Moving, RecoveryStats};
pub use read_lease::{ReadLease, Unsure};
pub use redundant::{ArrayPlace, Redundant, Resynced};
pub use votes::Votes;
pub use zones::SetGeometry;
