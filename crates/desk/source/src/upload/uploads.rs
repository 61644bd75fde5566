//! What the record of uploads says. No I/O.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

use crate::web::s3::answers::PART_NUMBER_MAX;
use crate::web::target::StoredPart;

/// The maximum size of a part, by the protocol; where pointers have 32 bits, some parts must fit into memory together.
pub const PART_BYTES_MAX: u64 = if usize::BITS < 64 { 256 << 20 } else { 5 << 30 };
/// The maximum length of a line: it has some short texts of the store.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A line of the record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line: the object, as the user named it.
    UploadsTo(String),
    /// An upload has begun.
    Begun(BegunUpload),
    /// The store has confirmed a part of the upload to this object.
    Part { object: String, part: StoredPart },
}

/// An upload that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunUpload {
    /// The object's name within its folder.
    pub object: String,
    /// The store's name of the upload.
    pub id: String,
    /// The mark of the object that it makes.
    pub token: String,
    pub part_bytes: u64,
}

/// The uploads to one destination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uploads {
    /// The destination; `None` if the record is empty.
    pub to: Option<String>,
    /// The latest upload to each object, and its parts by their numbers.
    latest: Vec<(BegunUpload, BTreeMap<u32, StoredPart>)>,
}

impl Uploads {
    /// Reads a record of `size` bytes. Also returns the length of its whole lines. The inner error says why a record is
    /// damaged.
    pub fn read(mut record: impl BufRead, size: u64) -> io::Result<Result<(Self, u64), &'static str>> {
        let (mut uploads, mut end, mut text) = (Self::default(), 0, Vec::new());
        loop {
            text.clear();
            let len = io::Read::take(&mut record, LINE_BYTES_MAX).read_until(b'\n', &mut text)? as u64;
            let is_last = end + len >= size;
            let line = text.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
            match line.map(|line| uploads.apply(line)) {
                Some(Ok(())) => end += len,
                Some(Err(why)) => return Ok(Err(why)),
                None if is_last => return Ok(Ok((uploads, end))),
                None => return Ok(Err("a line is invalid")),
            }
        }
    }

    /// Adds what a line says.
    pub fn apply(&mut self, line: Line) -> Result<(), &'static str> {
        match line {
            Line::UploadsTo(_) if self.to.is_some() => return Err("a second beginning"),
            Line::UploadsTo(to) => self.to = Some(to),
            _ if self.to.is_none() => return Err("it has no beginning"),
            Line::Begun(begun) => {
                self.latest.retain(|(earlier, _)| earlier.object != begun.object);
                self.latest.push((begun, BTreeMap::new()));
            }
            Line::Part { part, .. } if !(1..=PART_NUMBER_MAX).contains(&part.number) || part.bytes > PART_BYTES_MAX => {
                return Err("a part that an upload cannot have");
            }
            Line::Part { object, part } => {
                let upload = self.latest.iter_mut().find(|(begun, _)| begun.object == object);
                upload.ok_or("a part of no upload")?.1.insert(part.number, part);
            }
        }
        Ok(())
    }

    /// Returns the latest upload to each object.
    pub fn all(&self) -> impl Iterator<Item = &BegunUpload> {
        self.latest.iter().map(|(begun, _)| begun)
    }

    /// Returns the latest upload to an object, and its parts in order.
    pub fn latest(&self, object: &str) -> Option<(BegunUpload, Vec<StoredPart>)> {
        let (begun, parts) = self.latest.iter().find(|(begun, _)| begun.object == object)?;
        Some((begun.clone(), parts.values().cloned().collect()))
    }
}
