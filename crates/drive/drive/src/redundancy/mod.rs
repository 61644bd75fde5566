//! Redundant drives: the maps at their nodes, opening them, repairing them.
//!
//! A drive with redundancy may lose nodes, and other nodes may replace them, so its drive file does not permanently
//! record where its bytes are. It leads to the nodes, and they hold the *map*, one for each set of the drive. The sets
//! of a drive do not depend on each other: each has its own map, leases and connections, so a set can be appended while
//! processes that do not know it use the others. Each change of the map is a new epoch. A
//! process that opens such a drive asks the nodes that it knows, takes the newest map, and asks the nodes named in that
//! map, until it finds nothing newer.
//!
//! | module | content |
//! |---|---|
//! | `map` | the text of a map, and the nodes it names |
//! | `newest` | finding the newest map |
//! | `votes` | the votes of the nodes |
//! | `ended` | whether a node's process has certainly ended |
//! | `environment` | a writer's connections, and the places of the members |
//! | `leased` | a connection under a writer's lease |
//! | `ballot` | storing a map: which nodes count, and when they decide |
//! | `leases` | a writer's leases, taken and renewed |
//! | `confirmation` | how long a writer relies on its leases |
//! | `divergence` | writers that wrote apart from each other are found |
//! | `stores` | requests that store maps at the nodes |
//! | `open` | opening a set |
//! | `arrays` | the sets of a drive, opened |
//! | `follow` | a reader that follows the map |
//! | `upkeep` | a writer's own repair |
//! | `draining` | moving parts off nodes that are about to leave |
//! | `moving` | moving a part of the drive to another node |
//! | `spare` | finding spares, and replacing nodes by them |
//! | `former` | replaced nodes wipe their parts |
//! | `request` | messages between `repair` and the writer |
//! | [`check`] | comparing all data and redundancy |
//! | [`repair`] | restoring full redundancy |
//! | [`refetch`] | fetching lost ranges from the image's source |
//!
//! # Votes
//!
//! Each Cheetah node of a set has a vote. If the remaining nodes could not decide after as many losses as the drive
//! survives, its drive file has the missing votes ([`Votes`](cheetah_redundancy::Votes)). A map counts if it is stored
//! with more than half of all votes; a drive is opened for writing with the leases of as many. Two such sets share a
//! member, so two writers cannot both continue, and a reader that asked such a set has seen the newest map. A drive
//! over two nodes continues with one of them and the drive file. An old copy of the drive file would then vote for an
//! old state, so keep a single drive file, without copies, of a drive that is written. If two copies let two writers go on
//! apart from each other, that is found when both nodes answer, and the drive is refused until an examiner decides.

pub(crate) mod arrays;
mod ballot;
pub mod check;
mod confirmation;
pub(crate) mod divergence;
mod draining;
mod ended;
pub(crate) mod environment;
pub(crate) mod follow;
pub(crate) mod former;
mod leased;
mod leases;
pub(crate) mod map;
mod moving;
pub(crate) mod newest;
pub(crate) mod open;
pub mod refetch;
pub mod repair;
pub(crate) mod request;
pub(crate) mod spare;
mod stores;
mod upkeep;
mod votes;
