//! The end of a custody log: its last records, for people who watch the work.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use cheetah_error::{Error, Result};
use serde::Serialize;

use crate::log_file::LOG;
use crate::record::Parsed;

/// The bytes at the end of a log in which its last records are looked for.
const TAIL_BYTES_MAX: u64 = 256 << 10;
/// The most characters of what a record says.
const TEXT_CHARS_MAX: usize = 200;

/// A record at the end of a log. Its signature and its place in the chain are not checked here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastRecord {
    /// Its number, from 1.
    pub seq: u64,
    /// RFC 3339, as written.
    pub time: String,
    /// The user, as written.
    pub user: String,
    /// The event's name.
    pub event: String,
    /// The sentence in it, if it has one: why, or what failed.
    pub text: Option<String>,
}

/// The last `count` records of the log at `path`, oldest first.
///
/// # Errors
///
/// If the file cannot be read, or is a symbolic link.
pub fn last_records(path: &Path, count: usize) -> Result<Vec<LastRecord>> {
    let shown = path.display();
    let file = LOG.open_with(path, OpenOptions::new().read(true))?;
    let file = file.ok_or_else(|| Error::failed(format!("there is no custody log {shown}")))?;
    let end = read_end(file).map_err(|error| Error::io(format_args!("reading the custody log {shown}"), &error))?;
    let mut records: Vec<_> =
        end.rsplit(|byte| *byte == b'\n').filter_map(Parsed::of).take(count).map(LastRecord::of).collect();
    records.reverse();
    Ok(records)
}

fn read_end(mut file: File) -> std::io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES_MAX)))?;
    let mut end = Vec::new();
    // It may grow meanwhile.
    file.take(TAIL_BYTES_MAX).read_to_end(&mut end)?;
    Ok(end)
}

impl LastRecord {
    fn of(parsed: Parsed<'_>) -> Self {
        let record = parsed.record;
        let text = record.sentence().map(|text| text.chars().take(TEXT_CHARS_MAX).collect());
        Self { seq: record.seq, time: record.time, user: record.user, event: record.name, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Custodian, CustodyEvent, CustodyLog, SigningKey};

    #[test]
    fn the_last_records_of_a_log_are_read_also_behind_an_unfinished_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.custody");
        let key = SigningKey::load_or_make(&dir.path().join("k")).unwrap();
        let mut log = CustodyLog::open(&path, key, &Custodian::default()).unwrap();
        for at in 1..=5 {
            log.append(&CustodyEvent::Stopped { why: format!("reason {at}") }).unwrap();
        }
        drop(log);
        let found = last_records(&path, 2).unwrap();
        let seen: Vec<_> = found.iter().map(|record| (record.seq, record.text.as_deref())).collect();
        assert_eq!(seen, [(4, Some("reason 4")), (5, Some("reason 5"))]);
        assert_eq!(found[0].event, "stopped");
        let mut text = std::fs::read(&path).unwrap();
        text.truncate(text.len() - 10);
        std::fs::write(&path, text).unwrap();
        assert_eq!(last_records(&path, 1).unwrap()[0].seq, 4);
    }

    #[test]
    fn a_log_of_any_bytes_has_no_records() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.custody");
        std::fs::write(&path, vec![0xff; 1 << 20]).unwrap();
        assert_eq!(last_records(&path, 5).unwrap(), []);
        assert!(last_records(&dir.path().join("none"), 5).is_err());
    }
}
