//! The journal of a search that writes to a folder: what is searched, which ranges are done, and what was found there. A search that
//! was stopped goes on from it, and the result is made of it, so it is the same however often the search was stopped.
//!
//! The file `search.journal` has a line for each record: its check, a blank, and the record as JSON. The check is the first half of
//! the SHA-256 of the check before it and the record, in hexadecimal digits; so no record can be altered, moved or left out
//! unnoticed, but for the last ones. It is no proof: a program that writes all checks anew is not found out.
//!
//! Records of hits are followed by one that says which range they are of. Only that makes them count, so that a group of records is
//! there as a whole, or not at all. What a crash left of the last group is cut off, and searched again.
//!
//! A later group takes the place of earlier ones for its parts that were searched: ranges that cannot be read are searched again. What
//! was searched once and cannot be read the next time stays as it was.

mod again;
mod check;
mod errors;
mod file;
mod group;
mod keep;
mod lines;
mod names;
mod near;
pub(crate) mod offline;
mod record;
mod scan;
mod start;
mod state;
#[cfg(test)]
mod tests;

pub use errors::writing;
pub use file::Journal;
pub use group::Batches;
pub use keep::KeptFile;
pub use names::{CARVED, CARVED_TABLE, Names};
pub use near::Near;
pub use record::BadRecord;
pub use start::{Asked, Difference, OtherSearch, Start, WhatToSearch};
