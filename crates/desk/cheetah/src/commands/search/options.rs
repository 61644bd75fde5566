//! The options that say what is searched for.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cheetah_search::{
    Atoms, CONTEXT_BYTES_MAX, Compressed, FileKind, Finder, Order, TextEncoding, UnknownCompressed, UnknownFileKind,
    UnknownFinder, read_words,
};

use crate::failure::{Context as _, Failure, Result};

/// The maximum length of a list of words, in bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// What is searched for.
#[derive(Debug, clap::Args)]
pub struct OrderArgs {
    /// File with a word in each line: UTF-8, or UTF-16 with a byte order mark
    words: Option<PathBuf>,

    /// A word; repeat for more
    #[arg(long, value_name = "WORD")]
    word: Vec<String>,

    /// A regular expression whose matches have a greatest length; repeat for more
    #[arg(long, value_name = "REGEX")]
    regex: Vec<String>,

    /// A kind of data: email, url, domain, ipv4, ipv6, telephone, card, iban, bitcoin, gps, or all of them
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    find: Vec<Kinds>,

    /// The headers of files: jpeg, png, gif, pdf, zip, 7z, rar, gzip, bzip2, xz, sqlite, mp4, riff, matroska, ole, pe, elf,
    /// evtx, registry, lnk, prefetch, pst, or all of them
    #[arg(long, value_name = "FORMAT,…", value_delimiter = ',')]
    headers: Vec<Headers>,

    /// Also search what such data hold, compressed: gzip, zip, pdf, or all of them
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    inside: Vec<Insides>,

    /// An encoding of words and kinds of data: utf-8, utf-16le, utf-16be, or a code page such as cp1252, koi8-r or
    /// shift_jis
    #[arg(long, value_name = "ENCODING,…", value_delimiter = ',', default_value = "utf-8,utf-16le")]
    encoding: Vec<TextEncoding>,

    /// Ignore the case of letters, also beyond ASCII; in expressions, of ASCII letters
    #[arg(long)]
    ignore_case: bool,

    /// Bytes before and after each hit to show
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u16).range(..=CONTEXT_BYTES_MAX as i64))]
    context: u16,
}

/// One kind of data, or all.
#[derive(Debug, Clone)]
struct Kinds(Vec<Finder>);

impl FromStr for Kinds {
    type Err = UnknownFinder;

    fn from_str(text: &str) -> Result<Self, UnknownFinder> {
        Ok(Self(if text == "all" { Finder::ALL.to_vec() } else { vec![text.parse()?] }))
    }
}

/// One format of files, or all.
#[derive(Debug, Clone)]
struct Headers(Vec<FileKind>);

impl FromStr for Headers {
    type Err = UnknownFileKind;

    fn from_str(text: &str) -> Result<Self, UnknownFileKind> {
        Ok(Self(if text == "all" { FileKind::ALL.to_vec() } else { vec![text.parse()?] }))
    }
}

/// One kind of compressed data, or all.
#[derive(Debug, Clone)]
struct Insides(Vec<Compressed>);

impl FromStr for Insides {
    type Err = UnknownCompressed;

    fn from_str(text: &str) -> Result<Self, UnknownCompressed> {
        Ok(Self(if text == "all" { Compressed::ALL.to_vec() } else { vec![text.parse()?] }))
    }
}

impl OrderArgs {
    /// Whether compressed data are searched.
    pub const fn is_inside(&self) -> bool {
        !self.inside.is_empty()
    }

    /// Refuses what would do nothing for rules, which are tried on files as they are stored, and say themselves how they ignore case.
    pub fn check_with_rules(&self) -> Result<()> {
        let is_alone = self.words.is_none() && self.word.is_empty() && self.regex.is_empty() && self.is_without_kinds();
        match () {
            () if is_alone && self.is_inside() => Err(Failure::misused(
                "--inside does not try rules on what compressed data hold: add words or the like to search there, or leave it out",
            )),
            () if is_alone && self.ignore_case => Err(Failure::misused(
                "--ignore-case does not change rules: write nocase behind their strings, and leave it out",
            )),
            () => Ok(()),
        }
    }

    const fn is_without_kinds(&self) -> bool {
        self.find.is_empty() && self.headers.is_empty()
    }

    /// Reads the list of words, and returns the order. It may ask for nothing if something else is searched for.
    pub fn read(&self, is_more: bool) -> Result<Order> {
        let listed = self.words.as_deref().map(list).transpose()?;
        let is_empty = self.word.is_empty() && self.regex.is_empty() && self.is_without_kinds();
        match &listed {
            None if is_empty && !is_more => {
                return Err(Failure::misused(
                    "say what to search for: a file of words, --word, --regex, --find, --headers, --known, --blocks or --yara",
                ));
            }
            Some(words) if is_empty && words.is_empty() => {
                let path = self.words.as_deref().unwrap_or(Path::new("")).display();
                return Err(Failure::misused(format!("{path} has no words: write one in each line")));
            }
            _ => {}
        }
        Ok(Order {
            words: listed.into_iter().flatten().chain(self.word.iter().cloned()).collect(),
            expressions: self.regex.clone(),
            finders: self.finders(),
            blocks: Vec::new(),
            atoms: Atoms::default(),
            encodings: self.encoding.clone(),
            ignore_case: self.ignore_case,
            context_bytes: usize::from(self.context),
        })
    }

    fn finders(&self) -> Vec<Finder> {
        let headers = self.headers.iter().flat_map(|formats| formats.0.iter().copied().map(Finder::Header));
        let inside = self.inside.iter().flat_map(|kinds| kinds.0.iter().copied().map(Finder::Compressed));
        self.find.iter().flat_map(|kinds| kinds.0.iter().copied()).chain(headers).chain(inside).collect()
    }
}

/// The words in a file.
fn list(path: &Path) -> Result<Vec<String>> {
    let reading = format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes)).context(&reading)?;
    if bytes.len() as u64 > LIST_BYTES_MAX {
        return Err(Failure::misused(format!("{} is too large for a list of words: divide it", path.display())));
    }
    Ok(read_words(&bytes).map_err(|error| error.within(path.display()))?)
}
