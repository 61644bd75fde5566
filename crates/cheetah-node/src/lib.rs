//! A node: RAM lent to drives, served over NBD, and the HTTP control API.
//!
//! # The memory
//!
//! All a node lends is one anonymous mapping (`arena`), mapped at the start, kept out of core dumps and forked
//! children, and locked, so that no byte of evidence reaches a disk:
//!
//! ```text
//! lent     | piece: 64 MiB                                          | piece | piece | the rest |
//! piece    | digests 128 KiB | slot 64 KiB | slot | … 1022 slots    |
//! slot     | page 4 KiB | page | … 16 pages                         |
//! ```
//!
//! * Content lives in **slots**, one for each 64 KiB chunk of an export that is not all zero; the others are holes.
//!   A free slot is always zero: it is wiped, and read back, when it is freed.
//! * Each **page** has a digest, made when it is written and checked whenever it is read (`pages`, `digest`). They
//!   lie at the head of the piece, so the process takes what it lends and little more.
//! * Each export has a **table** from chunk to slot on the heap (`table`): 6 bytes for 64 KiB near content, next to
//!   nothing for holes. A chunk's lock is in its table, and holds its slot: nobody reaches bytes without it.
//! * Threads **fault in** the memory from its start while it is used already (`faulting`).
//! * The **store** promises slots to exports before they get them ([`store`]), so a reserved export cannot run out,
//!   and the node never beyond what it lends.
//!
//! # The rest
//!
//! [`export`] is a device over slots; [`lease`] decides who may write; [`exports`] has both by name, and is what the
//! NBD server opens; [`control`] is the HTTP API over it; [`node`] starts and ends it all, `announce` and `join`
//! tell others of it; [`spare`] knows how much the machine can lend.

mod announce;
mod arena;
pub mod control;
mod digest;
pub mod export;
pub mod exports;
mod faulting;
pub mod instance;
mod join;
pub mod lease;
pub mod node;
mod pages;
mod replaced;
pub mod spare;
pub mod store;
mod table;

pub use control::api;
pub use node::{Node, NodeConfig, NodeError};
