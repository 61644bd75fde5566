//! Sets with redundancy: the maps at their nodes, opening them, reading and writing them.
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
//! | `lineage` | the writers of a drive, as its maps name them |
//! | `map` | the text of a map, and the nodes it names |
//! | `divergence` | writers that wrote apart from each other are found |
//! | `votes` | the votes of the nodes |
//! | `newest` | finding the newest map |
//! | `ended` | whether a node's process has certainly ended |
//! | `stores` | requests that store maps at the nodes |
//! | `confirmation` | how long a writer relies on its leases |
//! | `shared` | the state of a writer, which its tasks share |
//! | `leased` | a connection under a writer's lease |
//! | `connect` | a writer's connections |
//! | `leases` | a writer's leases, taken and renewed |
//! | `ballot` | which nodes count that have stored a map, and when they decide; without I/O |
//! | `store` | storing a map by a ballot |
//! | `environment` | what the recovery engine needs from outside |
//! | `holder` | taking a writer's leases, and holding them |
//! | `follow` | a reader that follows the map |
//! | `open` | opening a set |
//! | `without_one` | reading a drive without one of its members |
//! | `arrays` | the sets of a drive, opened |
//!
//! Restoring redundancy and moving parts is the work of [`care`](crate::care), which this does not know.
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
mod confirmation;
mod connect;
pub(crate) mod divergence;
mod ended;
mod environment;
mod follow;
mod holder;
mod leased;
mod leases;
mod lineage;
pub(crate) mod map;
pub(crate) mod newest;
pub(crate) mod open;
pub(crate) mod shared;
mod store;
mod stores;
pub(crate) mod votes;
mod without_one;
