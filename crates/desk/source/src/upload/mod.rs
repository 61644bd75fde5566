//! Uploads an object in parts, as a write-only device; an interrupted upload is resumed.
//!
//! A part is sent once each of its bytes was written, in any order. Its checksum is sent with it, and the store compares it. The
//! object appears under its name only when the upload is complete. The [record](UploadRecord) names the upload and each
//! part that the store has confirmed. To resume, the same bytes are written again. Anyone who can change the folder can
//! change the record, so a part is not sent again only if the store itself says that it has these bytes: by the SHA-256 that
//! it lists, or by an ETag that is their MD5.

mod parts;
mod record;
pub(crate) mod uploads;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::supervise::spawn_blocking;
use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Geometry, Io, Size, try_io};
use cheetah_error::next::Acquisition;
use cheetah_error::{Error, Result};
use cheetah_image::hash::hex;
use cheetah_kit::random;
use md5::{Digest as _, Md5};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::web::s3::answers::{ListedPart, PART_NUMBER_MAX};
pub use crate::web::target::ObjectTarget;
use crate::web::target::{ExistingObject, StoredPart, sha256};
use parts::{Part, Parts};
pub use record::UploadRecord;
use uploads::{BegunUpload, PART_BYTES_MAX};

/// The protocol's limit of the number of parts.
const PARTS_MAX: u64 = PART_NUMBER_MAX as u64;
/// The minimum size of a part here; the protocol allows 5 MiB.
const PART_BYTES_MIN: u64 = 8 << 20;
const MIB: u64 = 1 << 20;
/// The memory for parts, in bytes, and the minimum number of parts in it. Two of them may be incomplete for long, because an E01
/// image is not written in order.
const MEMORY_BYTES: u64 = 64 << 20;
const PARTS_IN_MEMORY_MIN: u64 = 5;

/// An object that is being uploaded.
pub struct Upload {
    target: ObjectTarget,
    begun: BegunUpload,
    name: Arc<str>,
    size_max: u64,
    replace: bool,
    record: Arc<UploadRecord>,
    parts: Mutex<Parts>,
    memory: Arc<Semaphore>,
    /// The parts that the store has.
    stored: Mutex<BTreeMap<u32, StoredPart>>,
    /// Those of them that an earlier run sent, and that were not compared with what the store says yet.
    earlier: Mutex<BTreeMap<u32, ListedPart>>,
    /// The object, if an earlier run completed the upload.
    made: Option<ExistingObject>,
}

impl Upload {
    /// Begins an upload of at most `size_max` bytes, or resumes the one in the record. An object that exists is replaced only
    /// with `replace`.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if the object exists, or is too large for the store. `Kind::Failed` if the store refuses it.
    pub async fn open(target: ObjectTarget, size_max: u64, replace: bool, record: Arc<UploadRecord>) -> Result<Self> {
        let part_bytes = part_bytes(size_max).ok_or_else(|| {
            let (size, max) = (Size(size_max), Size(PARTS_MAX * PART_BYTES_MAX));
            Error::misuse(format!("{}: an object written from here has at most {max}, not {size}", target.shown()))
        })?;
        let known = record.latest(target.file_name());
        if let Some((begun, _)) = known.as_ref().filter(|(begun, _)| begun.part_bytes != part_bytes) {
            // It cannot be resumed, and the record will not name it any more.
            target.abort(&begun.id).await?;
        } else if let Some((begun, parts)) = known {
            let object = target.find().await?.filter(|object| object.token.as_ref() == Some(&begun.token));
            let listed = target.list_parts(&begun.id).await?;
            let stored = match (&object, &listed) {
                (Some(_), _) => parts,
                (None, Some(listed)) => parts.into_iter().filter(|part| is_listed(part, listed)).collect(),
                (None, None) => Vec::new(),
            };
            if object.is_some() || listed.is_some() {
                let upload = Self::new((target, begun), (size_max, replace), record, stored, object);
                let listed = listed.unwrap_or_default().into_iter();
                *upload.earlier.lock() = listed.map(|part| (part.number, part)).collect();
                return Ok(upload);
            }
            tracing::warn!("{}: the store has discarded the unfinished upload; it begins anew", target.shown());
        }
        if !replace && target.exists().await? {
            return Err(target.is_there());
        }
        let token = random::id()?;
        let id = target.begin(&token).await?;
        let begun = BegunUpload { object: target.file_name().to_owned(), id, token, part_bytes };
        record.begun(begun.clone())?;
        Ok(Self::new((target, begun), (size_max, replace), record, Vec::new(), None))
    }

    fn new(
        (target, begun): (ObjectTarget, BegunUpload),
        (size_max, replace): (u64, bool),
        record: Arc<UploadRecord>,
        stored: Vec<StoredPart>,
        made: Option<ExistingObject>,
    ) -> Self {
        let in_memory = (MEMORY_BYTES / begun.part_bytes).max(PARTS_IN_MEMORY_MIN);
        Self {
            name: target.shown().into(),
            parts: Mutex::new(Parts::new(begun.part_bytes)),
            // A small number.
            memory: Arc::new(Semaphore::new(in_memory as usize)),
            stored: Mutex::new(stored.into_iter().map(|part| (part.number, part)).collect()),
            earlier: Mutex::default(),
            target,
            begun,
            size_max,
            replace,
            record,
            made,
        }
    }

    /// Stores the rest of an object of `len` bytes, each of which has been written.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if the store does not take it.
    pub async fn store_rest(&self, len: u64) -> Result<()> {
        let last = self.parts.lock().last(len).map_err(|why| self.failed(&format!("{why}; this is a bug")))?;
        if let Some((number, part)) = last {
            self.store(number, part).await?;
        } else if len == 0 {
            // An upload has at least one part.
            self.send(1, Bytes::new()).await?;
        }
        let stored = self.stored.lock();
        let expected = len.div_ceil(self.begun.part_bytes).max(1);
        match stored.len() as u64 == expected && stored.values().map(|part| part.bytes).sum::<u64>() == len {
            true => Ok(()),
            false => Err(self.failed("the stored parts are not those of the whole").next(Acquisition::BeginAgain)),
        }
    }

    /// Makes the object, once the rest is stored.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if the object exists and is not to be replaced, `Kind::Failed` if the store does not make it.
    pub async fn complete(&self) -> Result<()> {
        let parts: Vec<_> = self.stored.lock().values().cloned().collect();
        if let Some(made) = &self.made {
            return self.target.check_size(made, &parts);
        }
        self.target.complete((&self.begun.id, &self.begun.token), &parts, self.replace).await
    }

    /// Whether this run sent the part, or the store says that it has this content.
    async fn is_attested(&self, listed: Option<ListedPart>, content: &Bytes, sum: &str) -> Result<bool> {
        let Some(listed) = listed else { return Ok(true) };
        if let Some(told) = &listed.sha256 {
            return Ok(told == sum);
        }
        let content = content.clone();
        let md5 = spawn_blocking(move || hex(&Md5::digest(&content))).await;
        let md5 = md5.map_err(|error| self.failed(&error.to_string()))?;
        Ok(listed.etag.is_some_and(|etag| etag.trim_matches('"').eq_ignore_ascii_case(&md5)))
    }

    fn failed(&self, why: &str) -> Error {
        Error::failed(format!("{}: {why}", self.name))
    }

    async fn write(&self, range: ByteRange, data: Data) -> Result<()> {
        for piece in range.split_at_multiples(self.begun.part_bytes) {
            let number = self.parts.lock().number(piece.offset);
            let number = number.ok_or_else(|| self.failed("too many parts"))?;
            if !self.parts.lock().is_open(number) {
                // The semaphore is never closed.
                let permit = self.memory.clone().acquire_owned().await;
                let permit = permit.map_err(|error| self.failed(&error.to_string()))?;
                self.parts.lock().open(number, permit);
            }
            let full = self.parts.lock().write(piece.offset, &data.slice(piece.offset - range.offset, piece.len));
            if let Some((number, part)) = full {
                self.store(number, part).await?;
            }
        }
        Ok(())
    }

    async fn store(&self, number: u32, part: Part) -> Result<()> {
        let Part { bytes, permit, .. } = part;
        self.send(number, bytes.into()).await?;
        drop(permit);
        Ok(())
    }

    /// Sends a part, unless the store has it.
    async fn send(&self, number: u32, content: Bytes) -> Result<()> {
        let hashed = content.clone();
        let sum = spawn_blocking(move || sha256(&hashed)).await;
        let sum = sum.map_err(|error| self.failed(&error.to_string()))?;
        let is_same = |part: &StoredPart| part.sha256 == sum && part.bytes == content.len() as u64;
        let is_known = self.stored.lock().get(&number).is_some_and(is_same);
        let listed = self.earlier.lock().remove(&number);
        if is_known && self.made.is_some() {
            return Ok(());
        }
        if is_known && self.is_attested(listed, &content, &sum).await? {
            return Ok(());
        }
        if self.made.is_some() {
            return Err(Error::evidence(format!(
                "{} was completed by an earlier run, and its part {number} had other content; look into that, and choose \
                 another name",
                self.name
            )));
        }
        let part = self.target.put_part(&self.begun.id, number, content, sum).await?;
        let (record, object, recorded) = (self.record.clone(), self.begun.object.clone(), part.clone());
        let recording = spawn_blocking(move || record.stored(&object, recorded)).await;
        recording.map_err(|error| self.failed(&error.to_string()))??;
        self.stored.lock().insert(number, part);
        Ok(())
    }
}

impl Device for Upload {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size_max, writable: true, block_preferred: 1 << 20 }
    }

    fn read(&self, _range: ByteRange) -> Io<'_, Data> {
        Io::fail(DeviceError::Unsupported("reading an object that is being uploaded"))
    }

    /// Each byte may be written once.
    fn write(&self, offset: u64, data: Data, _fua: bool) -> Io<'_, ()> {
        let range = ByteRange::new(offset, data.len());
        try_io!(self.check(range));
        Io::later(async move {
            let written = Self::write(self, range, data).await;
            written.map_err(|error| DeviceError::Invalid(error.to_string().into()))
        })
    }
}

/// Returns the size of a part of an object of at most `size` bytes; `None` if the object is too large.
fn part_bytes(size: u64) -> Option<u64> {
    let part_bytes = size.div_ceil(PARTS_MAX).next_multiple_of(MIB).max(PART_BYTES_MIN);
    (part_bytes <= PART_BYTES_MAX).then_some(part_bytes)
}

/// Whether a part is among those that the store lists, as far as it says what it has.
fn is_listed(part: &StoredPart, listed: &[ListedPart]) -> bool {
    let same = |told: &Option<String>, known: &str| told.as_deref().is_none_or(|told| told == known);
    let mut of_number = listed.iter().filter(|listed| listed.number == part.number);
    of_number.any(|listed| {
        listed.bytes == part.bytes && same(&listed.etag, &part.etag) && same(&listed.sha256, &part.sha256)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_large_enough_for_the_limit_of_parts() {
        assert_eq!(part_bytes(0), Some(8 << 20));
        assert_eq!(part_bytes(80_000 << 20), Some(8 << 20));
        assert_eq!(part_bytes((80_000 << 20) + 1), Some(9 << 20));
        assert_eq!(part_bytes(PARTS_MAX * PART_BYTES_MAX), Some(PART_BYTES_MAX));
        assert_eq!(part_bytes(PARTS_MAX * PART_BYTES_MAX + 1), None);
    }
}
