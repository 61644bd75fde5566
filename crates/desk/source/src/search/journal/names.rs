//! The names in the folder of a search.

/// The name of the journal, and that of one that takes its place.
pub const NAME: &str = "search.journal";
pub const NEXT: &str = "search.journal.next";
/// The folder of carved files.
pub const CARVED: &str = "carved";
/// The table of carved files, in their folder.
pub const CARVED_TABLE: &str = "carved.csv";

/// The names of what a result consists of, beside the journal and carved files.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Files.
    pub files: &'static [&'static str],
    /// Folders.
    pub folders: &'static [&'static str],
}
