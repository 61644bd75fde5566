//! Searches a device for words, regular expressions and well-known kinds of data.
//!
//! The device is read in parts, each once, and the parts are searched side by side. Neighbouring parts overlap by the longest
//! possible match ([`seam`]), so that a hit at a seam is found, and found once: the hits depend neither on the size of the parts
//! nor on the number of workers. What cannot be read is skipped, and the [`Outcome`] says where: "nothing was found" means
//! something only with its coverage.
//!
//! | part | purpose |
//! |---|---|
//! | [`Order`] | what is searched for, as an examiner says it |
//! | [`Search`] | an order, compiled |
//! | [`KnownFiles`], [`KnownRuns`] | files whose blocks are searched for, and what was found of them |
//! | [`Finder`] | a well-known kind of data: e-mail addresses, numbers of cards, headers of files … |
//! | [`run()`] | searches a device |
//! | [`Extent`] | the parts of a device that are searched, and what is read for that |
//! | [`run_parts()`] | goes on where parts of a device were searched elsewhere, each alone |
//! | [`Places`] | the volumes, files and free clusters in which hits lie |
//! | [`Hit`], [`Row`], [`CsvTable`], [`ParquetTable`], [`FeatureFiles`] | what was found, its tables, and files that other tools read |
//!
//! # What a hit is
//!
//! * A word: each place where its bytes stand, in each of the encodings. Hits may overlap.
//! * An expression or a finder: each match that does not lie within another match of the same expression that begins before it.
//!   Matches may overlap otherwise. So it depends on the bytes near it alone whether a match is a hit.
//! * A block of a known file: each place at a multiple of 512 bytes where its bytes stand.
//!
//! YARA rules are tried on whole files, which is done elsewhere. Their [`Atoms`] are searched like words, and are no results. With
//! [`Search::with_rules`], the matches of rules go into the same tables.

#![forbid(unsafe_code)]

mod batch;
mod blocks;
mod encoding;
mod expression;
mod extent;
mod features;
mod finder;
mod found;
mod hit;
mod literal;
mod memory;
mod node;
mod order;
mod outcome;
mod places;
mod run;
pub mod seam;
mod search;
mod table;
mod text;
mod truncated;
mod wide;
mod words;

pub use batch::Batch;
pub use blocks::{
    BLOCK_BYTES, BlockKey, KnownFile, KnownFiles, KnownFound, KnownRun, KnownRuns, NoKnownSet, SET_BYTES_MAX,
};
pub use encoding::{TextEncoding, UnknownEncoding};
pub use extent::Extent;
pub use features::{FeatureFiles, Histogram};
pub use finder::{Compressed, FileKind, Finder, UnknownCompressed, UnknownFileKind, UnknownFinder};
pub use found::MATCH_BYTES_MAX;
pub use hit::{Hit, InnerHit};
pub use memory::{BLOCK_MEMORY, TooMuch};
pub use node::SearchNode;
pub use order::{Atoms, Order, WORDS_MAX};
pub use outcome::{Gap, Outcome};
pub use places::{
    AcrossFound, AcrossHit, FileJoints, FileRun, LeftOut, NewFile, Place, PlaceLimits, PlaceState, Places,
    PlacesBuilder,
};
pub use run::{RunOptions, SearchedPart, SourcePart, run, run_parts};
pub use search::{CONTEXT_BYTES_MAX, Limits, Pattern, PatternKind, Search};
#[cfg(feature = "parquet")]
pub use table::ParquetTable;
pub use table::{Cell, CsvTable, Layout, Row, RowPlace, RowRule, cells};
pub use truncated::{SearchLimit, Truncation, Truncations, UnknownLimit};
pub use words::read_words;
