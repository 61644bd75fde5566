//! Work at the nodes: each works on the bytes that it holds, and only results cross the network.
//!
//! A *unit* is a range of the drive that lies whole on one node. What lies on two, on a node that lends no processor, or on one
//! that fails, is the client's to read; every result says what was done where.
//!
//! | module | content |
//! |---|---|
//! | `locate` | the node and the place that hold a unit |
//! | `lenders` | which nodes lend their processor, and why others do not |
//! | `lending` | which nodes are lent the key of a sealed drive |
//! | `node_work` | work that nodes do, as an order and as results |
//! | `not_done` | why a node does no work |
//! | `job` | a job at a node, from its start to its last line |
//! | `stretches` | many places in few words |
//! | `units` | units, and what the nodes that hold them find in them |
//! | `tree` | the chaining values of units become hashes |
//! | `values` | the chaining values of the units of a part of the drive |
//! | `parts` | the parts of a drive, and the hosts that hold them |
//! | `search` | searching a drive |
//! | `work_done` | what was done where |

mod job;
pub(crate) mod lenders;
pub mod lending;
pub(crate) mod locate;
mod node_work;
mod not_done;
pub mod parts;
pub mod search;
mod stretches;
pub(crate) mod tree;
pub(crate) mod units;
pub(crate) mod values;
pub mod work_done;
