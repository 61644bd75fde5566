//! The answers of `search`.

use std::borrow::Cow;

use cheetah_drive::WorkDone;
use serde::Serialize;

/// The event of `search` without a folder for the result.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Found {
    /// A hit.
    Hit {
        /// The text around it, itself included; control characters and bytes that are no text as `\xNN`.
        context: String,
        /// The encoding in which it was found.
        encoding: String,
        /// Of a hit inside compressed data, which begin at `offset`: the way from there, as kinds of data and offsets in what they
        /// hold, such as `ZIP-70-GZIP-512`.
        #[serde(skip_serializing_if = "Option::is_none")]
        inside: Option<String>,
        /// Of a hit that a node found, the instance of that node: another one each time it starts.
        #[serde(skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
        /// Its length in bytes.
        len: u64,
        /// The node that found it, with its name in the drive file; none if this machine did.
        #[serde(skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// The offset of its first byte in the source.
        offset: u64,
        /// The word, the expression, or the kind of data.
        pattern: String,
        /// Where it lies, with `--files`.
        #[serde(skip_serializing_if = "Option::is_none")]
        place: Option<Place>,
        /// Its text.
        text: String,
    },
    /// A match of a YARA rule, with `--yara`.
    Match {
        /// The offset of its first byte in the file; none if the condition of the rule holds without a string.
        file_offset: Option<u64>,
        /// Its length in bytes.
        len: u64,
        /// The offset of its first byte in the source; none without a string, and of content that is stored otherwise than it is read.
        offset: Option<u64>,
        /// The path of the file in the volume.
        path: String,
        /// The name of the rule.
        rule: String,
        /// The name of the file of the rule.
        rules: String,
        /// `allocated` or `deleted`.
        state: &'static str,
        /// The identifier of the string that matches; none if the condition holds without one.
        string: Option<String>,
        /// The tags of the rule.
        tags: Vec<String>,
        /// Its text, of its first 256 bytes.
        text: String,
        /// The number of the volume.
        volume: u32,
    },
}

/// The answer of an earlier `search` of the same, as it was stored: a [`Search`].
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Earlier(pub serde_json::Value);

/// The same schema is in the reference already.
impl super::Answer for Earlier {}

/// Where a hit lies.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Place {
    /// The offset in the file; none without a file, and of compressed content.
    pub file_offset: Option<u64>,
    /// Of a hit that was found across fragments of a file only: the ranges in the source that it covers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<Range>,
    /// The number of further files, and further names of files, that hold its first byte.
    pub others: u64,
    /// The path in the volume of the file that holds its first byte.
    pub path: Option<String>,
    /// The run in the source that holds its first byte: of that file, or of free clusters; none for any other byte.
    pub run: Option<Range>,
    /// `allocated`, `slack`, `unallocated`, `deleted`, `metadata`, `outside` or `unknown`.
    pub state: &'static str,
    /// The number of the volume.
    pub volume: Option<u32>,
}

/// A range of bytes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Range {
    /// Its length in bytes.
    pub len: u64,
    /// The offset of its first byte.
    pub offset: u64,
}

/// The answer of `search`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Search<'a> {
    /// Where it was searched, if nodes were asked to search what they hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_nodes: Option<&'a WorkDone>,
    /// The files that were carved, if that was asked for and the search came to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carved: Option<Carved>,
    /// Whether all that was to be searched was searched to its end: every byte of the source, of compressed data all that they hold, fragments of
    /// every file as one, and with `--yara` every file. Without that, nothing is known of the rest. Files that were not carved are in `carved`.
    pub complete: bool,
    /// The files in which hits lie, with `--files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Files<'a>>,
    /// Whether the search came to its end; otherwise it was stopped, or the source failed.
    pub finished: bool,
    /// The ranges that were not searched, in order; not those that were not reached.
    pub gaps: Vec<Gap<'a>>,
    /// The number of hits.
    pub hits: u64,
    /// What became of compressed data, if these were searched and the search came to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<Inside>,
    /// What was found of known files, if their blocks were searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Known<'a>>,
    /// The folder of the result, if there is one.
    pub out: Option<Cow<'a, str>>,
    /// What was searched for, in the order in which it was given.
    pub patterns: Vec<Pattern<'a>>,
    /// What became of the files on which YARA rules were tried, with `--yara`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Rules<'a>>,
    /// Bytes that were searched; with `--yara` alone, for atoms of the rules.
    pub searched_bytes: u64,
    /// The size of the source, in bytes.
    pub size_bytes: u64,
    /// The source, as the user wrote it.
    pub source: &'a str,
    /// The ranges that were searched only partly because a limit was reached, in the order in which they were found. They may overlap.
    pub truncated: Vec<Truncated>,
    /// The bytes in them that were searched, each once. `searched_bytes` includes them. Without hits, nothing is known of what they hold beyond the limit.
    pub truncated_bytes: u64,
    /// Bytes that cannot be read.
    pub unreadable_bytes: u64,
    /// Bytes that were not searched for another reason: the source does not have them yet, or they were not reached.
    pub unsearched_bytes: u64,
}

/// What became of the places where headers were found.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Carved {
    /// The bytes of the files that were saved.
    pub bytes: u64,
    /// Files that were saved.
    pub files: u64,
    /// Places where files were not looked for, or not to their greatest length: there were too many, or too much was read for places
    /// where no file begins.
    pub given_up: u64,
    /// Places within a file that was saved.
    pub inside: u64,
    /// Places where no valid file begins.
    pub invalid: u64,
    /// Places where something that had to be looked at cannot be read.
    pub unreadable: u64,
}

/// What was found of known files.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Known<'a> {
    /// The bytes of all runs; those of runs of several files at the same place count for each.
    pub bytes: u64,
    /// The number of known files.
    pub files: usize,
    /// The files of which something was found, the largest share first.
    pub found: Vec<KnownFile<'a>>,
    /// The number of runs: at least two blocks that follow each other in the file and in the source.
    pub runs: usize,
    /// Blocks that were found alone, which are in no run.
    pub singles: u64,
}

/// What was found of a known file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KnownFile<'a> {
    /// Its blocks of 4 KiB, without those that many files have.
    pub blocks: u64,
    /// The file.
    pub file: &'a str,
    /// Its blocks in runs, each once.
    pub found: u64,
}

/// What became of compressed data.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Inside {
    /// The bytes that the streams hold.
    pub bytes: u64,
    /// Streams that were searched up to a limit of size, growth, depth or hits.
    pub cut: u64,
    /// Streams that were searched up to where they are damaged, or that have a wrong checksum.
    pub damaged: u64,
    /// Places that were not searched: there are too many, or too much was read and unpacked for those before.
    pub given_up: u64,
    /// The number of hits in them, which `hits` includes.
    pub hits: u64,
    /// Places that look like the beginning of compressed data, where nothing can be unpacked.
    pub invalid: u64,
    /// Streams that were unpacked and searched.
    pub streams: u64,
    /// Streams that were searched up to where the source cannot be read.
    pub unreadable: u64,
}

/// A range that was not searched.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Gap<'a> {
    /// Its length in bytes.
    pub len: u64,
    /// The offset of its first byte.
    pub offset: u64,
    /// `unreadable`, or `unread`: the source does not have it yet.
    pub state: &'static str,
    /// Why, as a clause.
    pub why: &'a str,
}

/// A range that was searched only partly.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Truncated {
    /// Its length in bytes. Of compressed data, what was read of them; of several that were not searched, from the first to the last.
    pub len: u64,
    /// The limit that was reached first: `size` of what compressed data hold, `depth` of such data in each other, `hits` in them, `work` for
    /// all of them, or `places` where they begin; or `end` of the source, which does not have these bytes, although its partition tables or
    /// file systems say so.
    pub limit: &'static str,
    /// The offset of its first byte.
    pub offset: u64,
}

/// Something that was searched for.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pattern<'a> {
    /// The encodings in which it was searched; none if it cannot be written in any that was chosen.
    pub encodings: Vec<String>,
    /// The number of its hits.
    pub hits: u64,
    /// `word`, `regex`, `find`, `header` or `rule`.
    pub kind: &'static str,
    /// The word, the expression, the kind of data, or the name of the rule.
    pub pattern: &'a str,
}

/// What became of the files on which YARA rules were tried.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rules<'a> {
    /// The atoms of the rules: literal bytes of which one occurs wherever a rule matches.
    pub atoms: usize,
    /// The rules that have no atoms. If there are any, no atoms are searched for, and the rules are tried on every file.
    pub central: &'a [CentralRule],
    /// How often a rule has more matches in a file than are listed.
    pub cut: u64,
    /// Files on which the rules were tried.
    pub files: u64,
    /// Files of more than 32 MiB: the rules were tried on pieces of them.
    pub in_pieces: u64,
    /// Whether the rules were tried on every file of every volume that can be listed; only for the report.
    #[serde(skip)]
    pub is_whole: bool,
    /// How the process that tries rules ended, if it did so before it had found the volumes: `killed`, `exited`, `malformed` or `silent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lister: Option<&'static str>,
    /// Why volumes may be missing, a sentence each; 20 at most.
    pub problems: &'a [String],
    /// Whether the atoms were searched where the bytes lie.
    pub searched: bool,
    /// Deleted files whose content is another file's now, and files that name no content.
    pub skipped: u64,
    /// Files on which the rules were not tried, or not to the end; 1000 at most.
    pub untried: Vec<UntriedFile<'a>>,
    /// The number of all of these.
    pub untried_files: u64,
    /// The volumes.
    pub volumes: Vec<ListedVolume<'a>>,
    /// Files on which the rules were not tried, since no atom of them is in the file.
    pub without_atoms: u64,
}

/// A rule without atoms.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CentralRule {
    /// The name of its file.
    pub file: String,
    /// Its name; none for all rules of the file.
    pub rule: Option<String>,
    /// `condition`: it may hold where none of its strings is; `strings`: these have too few bytes that are fixed; `too-many`: there are too
    /// many atoms; `not-parsed`: the file is not understood, or includes others.
    pub why: String,
}

/// A file on which rules were not tried, or not to its end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UntriedFile<'a> {
    /// Its path in the volume.
    pub path: &'a str,
    /// The number of the volume.
    pub volume: u32,
    /// Why.
    pub why: &'a str,
}

/// The files in which hits lie.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Files<'a> {
    /// What became of the joints of fragmented files, if the search came to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub across: Option<Across>,
    /// The number of files and other streams.
    pub files: usize,
    /// Files that had no room; hits in them have no path.
    pub left_out_files: u64,
    /// Volumes whose free clusters had no room; hits there have the state `unknown`.
    pub left_out_free: u64,
    /// Runs of files that had no room; hits in them have no path.
    pub left_out_runs: u64,
    /// Volumes that had no room.
    pub left_out_volumes: u64,
    /// How the lister ended, if it did so before it had found the volumes: `killed`, `exited`, `malformed` or `silent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lister: Option<&'static str>,
    /// Why volumes may be missing, a sentence each: a partition table that could not be read, or what no key opened; 20 at most.
    pub problems: &'a [String],
    /// The number of runs of all files.
    pub runs: usize,
    /// The volumes.
    pub volumes: Vec<ListedVolume<'a>>,
}

/// What became of the joints of fragmented files.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Across {
    /// Hits across fragments, which `hits` includes.
    pub hits: u64,
    /// Joints that were not searched: there are too many.
    pub left_out: u64,
    /// Joints that were searched.
    pub searched: u64,
    /// Joints beside which something cannot be read.
    pub unreadable: u64,
}

/// A volume whose files were to be listed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListedVolume<'a> {
    /// What it is.
    pub description: &'a str,
    /// The Sleuth Kit's name of its file system; empty if it has none that is known.
    pub file_system: &'a str,
    /// Its length in bytes.
    pub len: u64,
    /// `whole`; `partly`: some files may be missing; `unsupported`: no file system that can be listed; `not-reached`; or how the lister
    /// ended while it listed it: `killed` by a signal, `exited`, `malformed`: it said something that is not understood, or `silent`: it did
    /// nothing for 5 minutes, and was stopped.
    pub listing: &'static str,
    /// Its number.
    pub number: u32,
    /// The offset of its first byte.
    pub offset: u64,
    /// What is missing, a sentence each; 20 at most.
    pub problems: &'a [String],
    /// The exit code of the lister that ended, or the number of the signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
}
