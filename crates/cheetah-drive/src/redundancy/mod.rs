//! Redundant drives: the map at their nodes, opening them, repairing them.
//!
//! A drive with redundancy may lose nodes and get others in their place. So its drive file does not say for good where its
//! bytes are: it is the way to the nodes, and they hold the *map*. Each change of the map is a new epoch. Everything that opens
//! such a drive asks the nodes that it knows, takes the newest map, and asks the nodes named in it, until nothing newer is
//! found.
//!
//! | module | content |
//! |---|---|
//! | `map` | the text of a map, and the nodes it names |
//! | `newest` | finding the newest map |
//! | `votes` | the votes of the nodes |
//! | `ended` | whether a node's process has surely ended |
//! | `environment` | a writer's connections and stored maps |
//! | `leases` | a writer's leases, taken and renewed |
//! | `confirmation` | for how long a writer relies on them |
//! | `stores` | maps on their way to the nodes |
//! | `open` | assembling the device |
//! | `follow` | a reader that follows the map |
//! | `upkeep` | a writer's own repair |
//! | `spare` | finding spares, and replacing nodes by them |
//! | `former` | replaced nodes wipe their parts |
//! | `request` | messages between `repair` and the writer |
//! | [`check`] | comparing all data and redundancy |
//! | [`repair`] | restoring full redundancy |
//! | [`refetch`] | fetching lost ranges from the image's source |
//!
//! # Votes
//!
//! Each Cheetah node of the drive has a vote. If the drive has too few nodes to decide without as many as it survives the loss of, its
//! drive file has the missing votes ([`Votes`](cheetah_redundancy::Votes)). A map counts if it is stored at more than half of
//! all votes; a drive is opened for writing with the leases of as many. Two such sets have a member in common, so two writers
//! cannot both go on, and a reader that asked such a set has seen the newest map. A drive over two nodes goes on with one
//! of them and the drive file: an old copy of the drive file then votes for an old state, so keep one file, and not copies,
//! of a drive that is written.

pub mod check;
mod confirmation;
mod ended;
pub(crate) mod environment;
pub(crate) mod follow;
pub(crate) mod former;
mod leases;
pub(crate) mod map;
pub(crate) mod newest;
pub(crate) mod open;
pub mod refetch;
pub mod repair;
pub(crate) mod request;
mod spare;
mod stores;
mod upkeep;
mod votes;
