//! The lines of a journal: records with checks, each over the one before it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};

use cheetah_image::hash::hex;
use cheetah_kit::file::FileExt;
use ring::digest::{Context, SHA256};

use super::record::Record;

/// The longest line: a hit of the longest word.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// The number of digits of a check.
pub const CHECK_DIGITS: usize = 32;
/// How records of hits begin, which need another one behind them to count.
const HITS: [&[u8]; 2] = [br#"{"hits":"#, br#"{"inner_hits":"#];

/// The check of a record.
pub type Check = [u8; 16];

/// The check before the first record.
pub const FIRST: Check = [0; 16];

/// The check of a record behind another one.
pub fn check(before: Check, json: &[u8]) -> Check {
    let mut context = Context::new(&SHA256);
    context.update(&before);
    context.update(json);
    context.finish().as_ref().first_chunk().copied().unwrap_or_default()
}

/// The line of a record behind one with this check, and its own check; an error if it cannot be written as JSON, or is too long.
pub fn line(record: &Record, before: Check) -> io::Result<(Vec<u8>, Check)> {
    let json = serde_json::to_vec(record).map_err(io::Error::other)?;
    let (line, check) = json_line(&json, before);
    match line.len() as u64 > LINE_BYTES_MAX {
        true => Err(io::Error::other("a record is too long")),
        false => Ok((line, check)),
    }
}

/// The line of JSON behind a line with this check, and its own check.
pub fn json_line(json: &[u8], before: Check) -> (Vec<u8>, Check) {
    let check = check(before, json);
    ([hex(&check).as_bytes(), b" ", json, b"\n"].concat(), check)
}

/// The check and the JSON of a line.
fn parts(line: &[u8]) -> Option<(Check, &[u8])> {
    let (digits, json) = line.strip_suffix(b"\n")?.split_at_checked(CHECK_DIGITS)?;
    let json = json.strip_prefix(b" ")?;
    let number = u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let check = number.to_be_bytes();
    // A sign, or capital letters.
    (hex(&check).as_bytes() == digits).then_some((check, json))
}

/// What a journal is read from.
pub trait Source {
    /// Reads bytes from this offset on, and returns how many.
    fn read_from(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize>;
}

/// A file is read whatever its cursor is at.
impl Source for File {
    fn read_from(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, bytes, at)
    }
}

impl Source for &[u8] {
    fn read_from(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(self.len());
        self.get(from..).unwrap_or_default().read(bytes)
    }
}

/// A source that is read from an offset on.
struct At<'a> {
    source: &'a dyn Source,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read_from(self.at, bytes)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// What the next line is.
pub enum Line {
    /// A record.
    Record(Box<Record>),
    /// No record, or its check is wrong.
    Bad,
    /// Its check is right, and it is no record that is known: no crash made it.
    Unknown,
    /// There is none.
    End,
}

/// The lines of a journal from one on.
pub struct Lines<'a> {
    reader: BufReader<At<'a>>,
    line: Vec<u8>,
    /// The offset of the next line.
    pub at: u64,
    /// The check before it.
    pub before: Check,
}

impl<'a> Lines<'a> {
    /// The lines from an offset on, before which this check is.
    pub fn new(source: &'a dyn Source, at: u64, before: Check) -> Self {
        Self { reader: BufReader::with_capacity(1 << 16, At { source, at }), line: Vec::new(), at, before }
    }

    fn next_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        Ok(self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line)? > 0)
    }

    /// The next line. Nothing is read behind one that is bad.
    pub fn read(&mut self) -> io::Result<Line> {
        if !self.next_line()? {
            return Ok(Line::End);
        }
        let Some((printed, json)) = parts(&self.line) else { return Ok(Line::Bad) };
        if check(self.before, json) != printed {
            return Ok(Line::Bad);
        }
        let Ok(record) = serde_json::from_slice(json) else { return Ok(Line::Unknown) };
        self.at += self.line.len() as u64;
        self.before = printed;
        Ok(Line::Record(Box::new(record)))
    }

    /// Whether a bad line may be of the last group, which a crash left in part: at most one record that makes a group count follows,
    /// as the last one.
    pub fn ends_in_last_group(mut self) -> io::Result<bool> {
        let mut before = parts(&self.line).map(|(check, _)| check);
        let mut has_ended = false;
        while self.next_line()? {
            if has_ended {
                return Ok(false);
            }
            let found = parts(&self.line);
            has_ended = match (before, found) {
                (Some(before), Some((printed, json))) => {
                    check(before, json) == printed && !HITS.iter().any(|hits| json.starts_with(hits))
                }
                _ => false,
            };
            before = found.map(|(check, _)| check);
        }
        Ok(true)
    }
}
