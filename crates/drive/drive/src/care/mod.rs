//! Care for drives with redundancy: it is restored after losses, and parts move between nodes.
//!
//! Care opens, reads and writes sets ([`set`](crate::set)), and nothing that reads or writes knows it: only
//! [`Drive::open`](crate::Drive::open), which puts a drive together, lets `upkeep` look after the sets that it opens.
//!
//! | module | content |
//! |---|---|
//! | `request` | messages between the writer and `repair`, `rebalance` and `status` |
//! | `spare` | finding spares, and replacing nodes by them |
//! | `former` | replaced nodes wipe their parts |
//! | `moving` | moving a part of the drive to another node |
//! | `draining` | a writer moves parts off nodes that are about to leave |
//! | [`repair`] | restoring full redundancy |
//! | `upkeep` | the upkeep of drives that a process has open |
//! | [`check`] | comparing all data and redundancy |
//! | [`refetch`] | fetching lost ranges from the image's source |
//! | [`drain`] | draining a node |
//! | [`rebalance`] | spreading a drive evenly over its nodes |

pub mod check;
pub mod drain;
mod draining;
mod former;
mod moving;
pub mod rebalance;
pub mod refetch;
pub mod repair;
pub(crate) mod request;
mod spare;
pub(crate) mod upkeep;
