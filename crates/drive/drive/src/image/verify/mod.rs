//! Verifying a drive: reading everything back and comparing it with the digests recorded at load.

mod near;
mod scrub;

use std::collections::BTreeMap;
use std::sync::Arc;

use cheetah_device::ByteRange;
use futures::FutureExt as _;
use serde::Serialize;

use self::scrub::Scrub;
use crate::copy::CopyProgress;
use crate::copy::rescue::Rescue;
use crate::file::digests::Digests;
use crate::file::{DriveFile, ImageState};
use crate::near::lending::LendRequest;
use crate::near::work_done::WorkDone;
use crate::node::health::node_statuses;
use crate::node::trouble::{self, Trouble};
use crate::open::Drive;
use crate::options::OpenOptions;
use crate::session::Session;
use crate::set::newest::refresh;
use cheetah_error::{Error, Fact, Result, next};
use cheetah_image::hash::{HashChoice, HashKind, Hashes};

/// How to verify.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The hashes to recompute, of those recorded at load and of `signed`. Chunk digests are always compared.
    pub hashes: HashChoice,
    /// The hashes that a signed record has of the image. The drive file is not signed.
    pub signed: Hashes,
    /// What the drive is opened with.
    pub session: Session,
    /// Whether nodes that lend their processor hash what they hold. Of the hashes, only BLAKE3 is recomputed then.
    pub at_nodes: bool,
    /// The nodes that are lent the key of a sealed drive for that. Without, it is read.
    pub lend: Option<LendRequest>,
}

/// The result of a verification. Every byte is exactly one of ok, mismatched, unreadable, or not compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyReport {
    /// The size of the drive, all of which was read, in bytes.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// The size of the image, which was compared, in bytes; 0 if there is none.
    #[serde(rename = "image_size_bytes")]
    pub image_size: u64,
    /// The reference for the comparison.
    pub compared: Compared,
    /// Bytes that are unchanged since the load. Outside an image, bytes that are readable.
    pub ok_bytes: u64,
    /// Readable bytes that could not be compared, because another part of their chunk is unreadable.
    pub uncompared_bytes: u64,
    /// Chunks whose digest differs from the one recorded at load, in order.
    pub mismatched: Vec<BadRange>,
    /// Ranges that could not be read, in order.
    pub unreadable: Vec<BadRange>,
    /// Ranges of a sealed drive that a writer wrote after its last flush and never closed, in order. They are among the
    /// unreadable ones, unless they were holes before, which are read as zeros.
    pub unverified: Vec<BadRange>,
    /// Units of a sealed drive that a node returned altered, and that were read without it, by the node's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub altered_units: BTreeMap<Arc<str>, u64>,
    /// The recomputed hashes; empty if part of the image could not be read.
    pub hashes: Hashes,
    /// The recomputed hashes that differ from those recorded in the drive file or signed.
    pub hashes_differing: Vec<String>,
    /// Where it was verified, if nodes were asked to hash what they hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_nodes: Option<AtNodes>,
}

/// Where a drive was verified.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AtNodes {
    /// Where it was hashed.
    #[serde(flatten)]
    pub work: WorkDone,
    /// The recorded hashes that were not recomputed, because they need all bytes in one place.
    pub hashes_skipped: Vec<String>,
}

impl AtNodes {
    /// All of `bytes` was read by this machine.
    fn all_here(bytes: u64, why: Arc<str>) -> Self {
        Self { work: WorkDone::all_here(bytes, why), ..Self::default() }
    }
}

/// The reference for a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Compared {
    /// The digests made when the image was loaded.
    Digests,
    /// Nothing: no image was loaded.
    Empty,
    /// The digests made when the image was loaded; the drive was opened for writing since.
    Modified,
    /// Nothing: the load never finished.
    Loading,
}

/// A range that differs or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BadRange {
    /// The offset of its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The problem.
    pub why: Arc<str>,
}

impl BadRange {
    /// Its offset and length.
    pub const fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.len)
    }

    /// Appends a range to `list`, merging it with the last one if they touch and have the same cause.
    fn push(range: ByteRange, why: &str, list: &mut Vec<Self>) {
        match list.last_mut() {
            Some(last) if last.range().end() == range.offset && &*last.why == why => last.len += range.len,
            last => {
                // One lost node causes many ranges; its error is stored once.
                let same = last.filter(|last| &*last.why == why).map(|last| last.why.clone());
                list.push(Self { offset: range.offset, len: range.len, why: same.unwrap_or_else(|| why.into()) });
            }
        }
    }
}

impl VerifyReport {
    /// Whether everything could be read and nothing differs (exit code 0, otherwise 3).
    pub fn is_ok(&self) -> bool {
        self.is_ok_but_for_nodes() && self.altered_units.is_empty()
    }

    /// The same, if nodes that return altered content do not count, because others do not.
    pub fn is_ok_but_for_nodes(&self) -> bool {
        self.mismatched.is_empty()
            && self.unreadable.is_empty()
            && self.unverified.is_empty()
            && self.hashes_differing.is_empty()
            && self.compared != Compared::Loading
    }
}

/// Reads the drive and compares it with the digests made at load. Ranges on lost nodes are reported as unreadable.
pub async fn verify(
    file: &DriveFile,
    options: VerifyOptions,
    progress: impl FnMut(CopyProgress) + Send,
) -> Result<VerifyReport> {
    let (compared, expected) = expected(file)?;
    let open = OpenOptions {
        allow_lost: true,
        half_loaded: true,
        prefetch_budget: 0,
        ..OpenOptions::new(options.session.clone())
    };
    let drive = Drive::open(file, open).await?;
    only_access(file, drive.troubles())?;
    let recorded = file.image.as_ref().filter(|_| expected.is_some());
    let hashes = recorded.map(|image| image.hashes.clone()).unwrap_or_default();
    let scrub = Scrub {
        device: drive.device(),
        rescue: Rescue::new(file, drive.device()),
        size: file.size,
        image: recorded.map_or(0, |image| image.size),
        expected,
        hashes: hashes.iter().fold(options.signed.choice(), |all, (kind, _)| all.with(kind)) & options.hashes,
    };
    let mut report = match options.at_nodes {
        true => {
            let known = [&hashes, &options.signed].into_iter().filter_map(|all| all.blake3.clone());
            let known: Vec<String> = known.collect();
            // It is large, and most verifications do without it.
            let lend = (&options.session, options.lend.as_ref());
            near::run(file, &scrub, compared, &known, lend, progress).boxed().await?
        }
        false => scrub.run(compared, progress).await?,
    };
    let differs = |kind: &HashKind| {
        let differs_from =
            |now| [&hashes, &options.signed].iter().any(|then| then.get(*kind).is_some_and(|then| then != now));
        report.hashes.get(*kind).is_some_and(differs_from)
    };
    report.hashes_differing = HashKind::ALL.into_iter().filter(differs).map(|kind| kind.name().to_owned()).collect();
    if let Some(sealed) = drive.sealed() {
        let unverified = sealed.unverified().await.map_err(Error::device("looking for unverified units"))?;
        for range in unverified.into_iter().filter(|_| sealed.accepted() == 0) {
            BadRange::push(range, "written after the last flush of a writer that never closed", &mut report.unverified);
        }
        report.altered_units = sealed.altered();
    }
    drive.close().await?;
    if !report.unreadable.is_empty() && report.mismatched.is_empty() {
        let now = node_statuses(&refresh(file, &options.session).await?, &options.session).await;
        only_access(file, &now.iter().filter_map(Trouble::of).collect::<Vec<_>>())?;
    }
    Ok(report)
}

/// Fails if all that is wrong is that nodes refuse this member or cannot be reached: ranges that could not be asked for
/// are not found unreadable.
fn only_access(file: &DriveFile, troubles: &[Trouble]) -> Result<()> {
    let is_about_access = |trouble: &Trouble| trouble.fact.is_some_and(Fact::is_about_access);
    if troubles.is_empty() || !troubles.iter().all(is_about_access) {
        return Ok(());
    }
    Err(trouble::not_verified(&file.name, troubles, file.nodes().count()))
}

/// The reference to compare the drive with.
fn expected(file: &DriveFile) -> Result<(Compared, Option<Digests>)> {
    let Some(image) = &file.image else { return Ok((Compared::Empty, None)) };
    let compared = match image.state {
        ImageState::Intact | ImageState::Incomplete => Compared::Digests,
        ImageState::Filling => {
            let (name, from) = (&file.name, &image.source);
            return Err(Error::evidence(format!("{name} is incomplete: it is still being filled from {from}"))
                .next(next::Drive::AwaitFill));
        }
        // It was opened for writing, but may not have been written.
        ImageState::Modified => Compared::Modified,
        ImageState::Loading => return Ok((Compared::Loading, None)),
    };
    let Some(recorded) = &image.digests else { return Ok((Compared::Loading, None)) };
    Ok((compared, Some(Digests::load(file, recorded, image.size)?)))
}
