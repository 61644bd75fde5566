//! A node: RAM lent to drives, served over NBD, and the HTTP control API.
//!
//! # The memory
//!
//! The lent memory is one anonymous mapping (`arena`), created at the start, excluded from core dumps and forked
//! children, and locked, so that no byte of evidence reaches a disk:
//!
//! ```text
//! lent     | piece: 64 MiB                                          | piece | piece | the rest |
//! piece    | digests 128 KiB | slot 64 KiB | slot | … 1022 slots    |
//! slot     | page 4 KiB | page | … 16 pages                         |
//! ```
//!
//! * Content is in **slots**, one for each 64 KiB chunk of an export that is not all zero; the other chunks are holes.
//!   A free slot is always zero: it is wiped, and read back, when it is freed.
//! * Each **page** has a digest, computed when it is written and checked at every read (`pages`, `digest`). Digests are
//!   at the head of the piece, so the process uses little more memory than it lends.
//! * Each export has a **table** from chunk to slot on the heap (`table`): 6 bytes for 64 KiB near content, almost
//!   nothing for holes. A chunk's lock is in the table and owns its slot: there is no access without the lock.
//! * Threads **fault in** the memory while it is already in use (`faulting`).
//! * The **store** reserves slots before it allocates them ([`store`]), so a reserved export cannot run out, and the
//!   node never uses more than it lends.
//!
//! # The rest
//!
//! [`export`] is a device in slots; [`lease`] decides which writer is admitted; [`maps`] keeps the maps that writers
//! store beside their content; [`exports`] has all three by name, for the NBD server; `control` is the HTTP API;
//! `jobs` works on their content, if the node lends its
//! processor; [`node`] starts and ends all of it; `announce` and `join` offer it to others; [`spare`] computes how much memory the
//! machine can lend, [`lending`] how much of a machine that others use too, and `watch` follows such a machine. `search_memory` is what searches
//! may take of the rest.

mod announce;
mod arena;
mod control;
mod disks;
pub mod export;
pub mod exports;
mod faulting;
pub mod instance;
mod jobs;
mod join;
mod keys_lent;
pub mod lease;
pub mod lending;
pub mod maps;
pub mod node;
pub mod offline;
mod os;
mod output_memory;
mod pages;
mod replaced;
mod search_memory;
mod shared;
pub mod spare;
pub mod store;
mod table;
mod watch;

pub use arena::{LENT_BYTES_MAX, LENT_BYTES_MIN};
pub use jobs::{Class, Scan};
pub use node::{Node, NodeConfig, NodeError};
