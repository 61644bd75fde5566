//! Reading everything back, and comparing it with what was loaded.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Data, DynDevice};
use futures::StreamExt as _;
use serde::Serialize;

use crate::copy::{Chunk, Progress, chunks};
use crate::digests::{ChunkDigest, Digests, digest};
use crate::file::{DriveFile, ImageState};
use crate::open::{Drive, OpenOptions};
use crate::rescue::Rescue;
use cheetah_image::error::{Error, Result};
use cheetah_image::hash::{HashChoice, HashKind, Hashes, Hashing};

/// How to verify.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Hashes of the whole to recompute, of those that were recorded at load. Chunk digests are always compared.
    pub hashes: HashChoice,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// What was found. Every byte looked at is ok, mismatched, unreadable or not compared, and only one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Bytes looked at: the drive's.
    pub size: u64,
    /// Bytes of them, from the start, that are the image's and were compared; 0 where there is none.
    pub image_size: u64,
    /// What they were compared with.
    pub compared: Compared,
    /// Bytes that are as they were loaded; or merely readable, behind the image or where there is none.
    pub ok_bytes: u64,
    /// Bytes that could be read, but not compared, because another part of their chunk could not be read.
    pub uncompared_bytes: u64,
    /// Ranges that differ from what was loaded: whole chunks. In order.
    pub mismatched: Vec<Found>,
    /// Ranges that could not be read. In order.
    pub unreadable: Vec<Found>,
    /// Hashes recomputed; only if the whole image could be read.
    pub hashes: Hashes,
    /// The recomputed hashes that differ from those recorded.
    pub hashes_differing: Vec<String>,
}

/// What the drive's content was compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compared {
    /// The digests made when the image was loaded.
    Digests,
    /// Nothing: no image was loaded.
    Empty,
    /// The digests made when the image was loaded; but the drive was opened for writing since.
    Modified,
    /// Nothing: the load never finished.
    Loading,
}

/// A bad range and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// What is wrong with it.
    pub why: Arc<str>,
}

impl Found {
    /// Where it is.
    pub const fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.len)
    }

    /// Appends to `list`, merging with its last where they touch and have the same cause.
    fn push(range: ByteRange, why: &str, list: &mut Vec<Self>) {
        match list.last_mut() {
            Some(last) if last.range().end() == range.offset && &*last.why == why => last.len += range.len,
            last => {
                // A dead node is behind many ranges; its epitaph is stored once.
                let same = last.filter(|last| &*last.why == why).map(|last| last.why.clone());
                list.push(Self { offset: range.offset, len: range.len, why: same.unwrap_or_else(|| why.into()) });
            }
        }
    }
}

impl VerifyReport {
    /// Whether everything could be read and nothing differs (exit code 0, otherwise 3).
    pub fn is_ok(&self) -> bool {
        self.mismatched.is_empty()
            && self.unreadable.is_empty()
            && self.hashes_differing.is_empty()
            && self.compared != Compared::Loading
    }
}

/// Reads the drive and compares it with the digests made at load. Lost nodes make unreadable ranges, not an error.
pub async fn verify(
    file: &DriveFile,
    options: VerifyOptions,
    progress: impl FnMut(Progress) + Send,
) -> Result<VerifyReport> {
    let (compared, expected) = expected(file)?;
    let open = OpenOptions {
        allow_lost: true,
        half_loaded: true,
        timeout: options.timeout,
        prefetch_budget: 0,
        ..OpenOptions::default()
    };
    let drive = Drive::open(file, open).await?;
    let recorded = file.image.as_ref().filter(|_| expected.is_some());
    let hashes = recorded.map(|image| image.hashes.clone()).unwrap_or_default();
    let scrub = Scrub {
        device: drive.device(),
        rescue: Rescue::new(file, drive.device()),
        size: file.size,
        image: recorded.map_or(0, |image| image.size),
        expected,
        hashes: hashes.choice() & options.hashes,
    };
    let mut report = scrub.run(compared, progress).await?;
    let differs = |kind: &HashKind| report.hashes.get(*kind).is_some_and(|now| Some(now) != hashes.get(*kind));
    report.hashes_differing = HashKind::ALL.into_iter().filter(differs).map(|kind| kind.name().to_owned()).collect();
    drive.close().await?;
    Ok(report)
}

/// What to compare the drive with.
fn expected(file: &DriveFile) -> Result<(Compared, Option<Digests>)> {
    let Some(image) = &file.image else { return Ok((Compared::Empty, None)) };
    let compared = match image.state {
        ImageState::Intact | ImageState::Incomplete => Compared::Digests,
        ImageState::Filling => {
            let (name, from) = (&file.name, &image.source);
            return Err(Error::Evidence(format!(
                "{name} is incomplete: it is still being filled from {from}; `cheetah status` says how far it is, and \
                 `cheetah load` without an image finishes it"
            )));
        }
        // Whoever opened it for writing need not have written.
        ImageState::Modified => Compared::Modified,
        ImageState::Loading => return Ok((Compared::Loading, None)),
    };
    let Some(recorded) = &image.digests else { return Ok((Compared::Loading, None)) };
    Ok((compared, Some(Digests::load(file, recorded, image.size)?)))
}

/// A reading of everything.
struct Scrub {
    device: DynDevice,
    rescue: Rescue,
    size: u64,
    /// Bytes from the start that are compared and hashed.
    image: u64,
    expected: Option<Digests>,
    hashes: HashChoice,
}

impl Scrub {
    async fn run(self, compared: Compared, mut progress: impl FnMut(Progress) + Send) -> Result<VerifyReport> {
        let mut report = VerifyReport {
            size: self.size,
            image_size: self.image,
            compared,
            ok_bytes: 0,
            uncompared_bytes: 0,
            mismatched: Vec::new(),
            unreadable: Vec::new(),
            hashes: Hashes::default(),
            hashes_differing: Vec::new(),
        };
        let mut hashing = Some(Hashing::start(self.hashes)?);
        let mut reads = std::pin::pin!(chunks(self.device.clone(), self.size, self.image));
        while let Some(Chunk { range, read }) = reads.next().await {
            let readable = match read {
                Ok(readable) => Some(readable),
                Err(_) => self.read_in_pieces(range, &mut report).await.map(|data| (data, None)),
            };
            match readable {
                Some((data, known)) => {
                    if let Some(hashing) = hashing.as_ref().filter(|_| self.is_image(range)) {
                        hashing.push(&data).await?;
                    }
                    self.compare(range, || known.unwrap_or_else(|| digest(&data)), &mut report);
                }
                // Hashes of the whole mean nothing without this part.
                None if self.is_image(range) => hashing = None,
                None => {}
            }
            progress(Progress { done: range.end(), total: self.size });
        }
        if let Some(hashing) = hashing {
            report.hashes = hashing.finish().await?;
        }
        Ok(report)
    }

    /// Whether a chunk is the image's; none is so in part.
    const fn is_image(&self, range: ByteRange) -> bool {
        range.end() <= self.image
    }

    fn compare(&self, range: ByteRange, digest: impl FnOnce() -> ChunkDigest, report: &mut VerifyReport) {
        match &self.expected {
            Some(expected) if self.is_image(range) && expected.get(range.offset) != Some(&digest()) => {
                Found::push(range, "differs from what was loaded", &mut report.mismatched);
            }
            _ => report.ok_bytes += range.len,
        }
    }

    /// Reads a chunk that could not be read in one go. Its bytes, if it can be now; otherwise what cannot be read
    /// goes into the report.
    async fn read_in_pieces(&self, range: ByteRange, report: &mut VerifyReport) -> Option<Data> {
        let mut whole = Data::new();
        let mut unreadable = 0;
        for (part, read) in self.rescue.read(range).await {
            match read {
                Ok(data) => whole.append(data),
                Err(why) => {
                    unreadable += part.len;
                    Found::push(part, &why, &mut report.unreadable);
                }
            }
        }
        if unreadable == 0 {
            return Some(whole);
        }
        let readable = range.len - unreadable;
        if self.is_image(range) {
            report.uncompared_bytes += readable
        } else {
            report.ok_bytes += readable
        }
        None
    }
}
