//! Literal bytes of which some occur in every file that a YARA rule matches.
//!
//! A search for literal bytes can be done where the bytes lie; the conditions of rules need whole files. So a scan has two stages: the
//! [`Atom`]s of all rules are searched, and whole rules are tried on the files in which one was found. [`split`] derives the atoms, and names
//! the rules that have none, which must be tried on every file.
//!
//! A rule's atoms are a disjunction: wherever the rule matches, at least one of them occurs. It is derived from the condition
//! over those of the strings (text, hexadecimal strings and regular expressions). Where that is in doubt, a rule has none. No I/O.
//!
//! An atom neither begins nor ends with a zero byte. So it never reaches from content into zeros that a file system puts in place of
//! what is not stored, such as the hole of a sparse file, and lies in stored bytes as a whole.

#![forbid(unsafe_code)]

mod atom;
mod condition;
mod expression;
mod hex;
mod need;
mod pieces;
mod rules;
mod text;

pub use atom::{ATOM_BYTES_MAX, ATOM_BYTES_MIN, Atom};
pub use pieces::{PIECE_OVERLAP_BYTES, needs_whole_files};
pub use rules::{ATOMS_MAX, Central, Split, Why, split};
