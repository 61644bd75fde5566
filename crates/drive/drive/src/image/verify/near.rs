//! Verifying a drive at its nodes: each hashes what it holds, and this process merges the chaining values.
//!
//! The values of a chunk's units give the chunk's digest, and those of the image's units the BLAKE3 of the image; the place of a
//! unit is part of its value, so these are two sets of values, and one set of a unit of 64 KiB is 0.07 % of its bytes. If the
//! BLAKE3 of the image is known, the second set is asked for first: if the hash is the same, every chunk is. Otherwise, and if it
//! differs, the first set says which chunks differ.
//!
//! A chunk of which a part can be had neither as a value nor at the first read takes the way of every other verification
//! ([`Scrub`]), so that the verdict is the same.

use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_error::Result;
use cheetah_image::hash::HashKind;
use futures::{FutureExt as _, StreamExt as _, stream};

use super::scrub::Scrub;
use super::{AtNodes, Compared, VerifyReport};
use crate::copy::{CopyProgress, read_exactly};
use crate::file::DriveFile;
use crate::file::digests::{CHUNK_BYTES, digest};
use crate::near::lending::{self, KeyLending, LendRequest};
use crate::near::tree::{self, Tree};
use crate::near::units::Nodes;
use crate::near::values::{Unit, values};
use crate::near::work_done::DoneBy;
use crate::session::Session;
use crate::set::newest::refresh;

/// Bytes of a part of the drive for each node: larger parts need fewer requests.
const PART_BYTES_OF_NODE: u64 = 128 << 20;

/// The text that the units are hashed as a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    /// The image.
    Image,
    /// Each chunk is one.
    Chunk,
}

/// Verifies a drive at its nodes where they lend their processor, and by reading the rest. `known`: the BLAKE3 of the image, as
/// recorded and as signed.
pub(super) async fn run(
    file: &DriveFile,
    scrub: &Scrub,
    compared: Compared,
    known: &[String],
    (session, lend): (&Session, Option<&LendRequest>),
    mut progress: impl FnMut(CopyProgress) + Send,
) -> Result<VerifyReport> {
    let file = refresh(file, session).await?;
    let (nodes, key_lent) = match nodes(&file, scrub, lend, session).await? {
        Ok(found) => found,
        Err(why) => {
            let report = scrub.run(compared, progress).await?;
            return Ok(VerifyReport { at_nodes: Some(AtNodes::all_here(scrub.size, why)), ..report });
        }
    };
    let pass = Pass { scrub, nodes, compared };
    let mut report = pass.run_all(known, &mut progress).await?;
    if epochs(&refresh(&file, session).await?) != epochs(&file) {
        let report = scrub.run(compared, progress).await?;
        let why = "parts of the drive moved meanwhile, or missed writes".into();
        return Ok(VerifyReport { at_nodes: Some(AtNodes::all_here(scrub.size, why)), ..report });
    }
    if let Some(at_nodes) = &mut report.at_nodes {
        at_nodes.work.key_lent = key_lent;
        let skipped = scrub.hashes.kinds().filter(|kind| *kind != HashKind::Blake3);
        at_nodes.hashes_skipped = skipped.map(|kind| kind.name().to_owned()).collect();
    }
    Ok(report)
}

/// The epochs of the maps.
fn epochs(file: &DriveFile) -> Vec<u64> {
    file.sets.iter().map(|set| set.epoch).collect()
}

/// The nodes that hash, and the key that they were lent; or why this process reads everything.
async fn nodes(
    file: &DriveFile,
    scrub: &Scrub,
    lend: Option<&LendRequest>,
    session: &Session,
) -> Result<std::result::Result<(Nodes, Option<KeyLending>), Arc<str>>> {
    // The digest of a chunk is a root, which is merged from two values at least.
    let units = file.sets.iter().filter_map(|set| set.unit).chain([CHUNK_BYTES / 2]);
    let unit_bytes = file.sealed.as_ref().map(|seal| seal.unit).or(units.min()).unwrap_or(CHUNK_BYTES / 2);
    if (1..=unit_bytes).contains(&scrub.image) {
        return Ok(Err("the image is smaller than a unit".into()));
    }
    lending::nodes(file, unit_bytes, lend, session).await
}

struct Pass<'a> {
    scrub: &'a Scrub,
    nodes: Nodes,
    compared: Compared,
}

impl Pass<'_> {
    async fn run_all(
        &self,
        known: &[String],
        progress: &mut (impl FnMut(CopyProgress) + Send),
    ) -> Result<VerifyReport> {
        let wants_hash = self.scrub.hashes.kinds().any(|kind| kind == HashKind::Blake3) && !known.is_empty();
        let mut hash = None;
        if wants_hash {
            let mut report = self.scrub.report(self.compared);
            hash = self.run(Text::Image, &mut report, progress).await?.map(|hash| hash.to_hex().to_string());
            report.hashes.blake3.clone_from(&hash);
            if hash.as_ref().is_some_and(|hash| known.iter().all(|known| known == hash)) {
                return Ok(report);
            }
        }
        let mut report = self.scrub.report(self.compared);
        self.run(Text::Chunk, &mut report, progress).await?;
        // Without a part of the image, a hash of the whole means nothing.
        if report.unreadable.iter().all(|bad| bad.offset >= self.scrub.image) {
            report.hashes.blake3 = hash;
        }
        Ok(report)
    }

    /// Goes over the drive once. Returns the BLAKE3 of the image, if that is the text and all of it was read.
    async fn run(
        &self,
        text: Text,
        report: &mut VerifyReport,
        progress: &mut (impl FnMut(CopyProgress) + Send),
    ) -> Result<Option<blake3::Hash>> {
        let mut parts = Vec::new();
        for chunks in self.parts(self.nodes.part_bytes(PART_BYTES_OF_NODE)) {
            parts.push(self.collect(chunks, text).boxed());
        }
        let mut collected = stream::iter(parts).buffered(self.nodes.parts());
        let mut tree = (text == Text::Image).then(Tree::default);
        let mut tally = AtNodes::default();
        while let Some((chunks, units)) = collected.next().await {
            let mut rest = &units[..];
            for chunk in chunks {
                let count = self.units(chunk).count();
                let (own, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
                rest = others;
                self.judge(chunk, own, &mut tree, report, &mut tally).await;
                progress(CopyProgress { done: chunk.end(), total: self.scrub.size });
            }
        }
        report.at_nodes = Some(tally);
        Ok(tree.and_then(Tree::finish))
    }

    /// The values of the units of chunks.
    async fn collect(&self, chunks: Vec<ByteRange>, text: Text) -> (Vec<ByteRange>, Vec<Unit>) {
        let units: Vec<ByteRange> = chunks.iter().flat_map(|chunk| self.units(*chunk)).collect();
        let text_bytes = (text == Text::Chunk).then_some(CHUNK_BYTES);
        let units = values(&self.nodes, &self.scrub.device, &units, text_bytes).await;
        (chunks, units)
    }

    /// Compares a chunk.
    async fn judge(
        &self,
        chunk: ByteRange,
        units: &[Unit],
        tree: &mut Option<Tree>,
        report: &mut VerifyReport,
        tally: &mut AtNodes,
    ) {
        let values: Option<Vec<_>> = units.iter().map(|unit| unit.value).collect();
        let Some(values) = values.filter(|_| units.len() > 1 || !self.scrub.is_image(chunk)) else {
            return self.judge_whole(chunk, units, tree, report, tally).await;
        };
        units.iter().for_each(|unit| tally.work.add(&unit.by, unit.range.len));
        match tree.as_mut() {
            Some(tree) if self.scrub.is_image(chunk) => {
                values.into_iter().for_each(|value| tree.push(value));
                // If it differs, the hash of the whole does.
                report.ok_bytes += chunk.len;
            }
            Some(_) => report.ok_bytes += chunk.len,
            None => self.scrub.compare(chunk, || Tree::hash(values).map(Into::into).unwrap_or_default(), report),
        }
    }

    /// Reads and compares a chunk.
    async fn judge_whole(
        &self,
        chunk: ByteRange,
        units: &[Unit],
        tree: &mut Option<Tree>,
        report: &mut VerifyReport,
        tally: &mut AtNodes,
    ) {
        let here = units.iter().map(|unit| &unit.by).find(|by| matches!(by, DoneBy::Here(_))).cloned();
        tally.work.add(&here.unwrap_or_else(|| DoneBy::Here("it is smaller than a unit".into())), chunk.len);
        let data = match read_exactly(&self.scrub.device, chunk).await {
            Ok(data) => Some(data),
            Err(_) => self.scrub.read_in_pieces(chunk, report).await,
        };
        match data {
            Some(data) => {
                if let Some(tree) = tree.as_mut().filter(|_| self.scrub.is_image(chunk)) {
                    for unit in self.units(chunk) {
                        tree.push(tree::value(unit.offset, &data.slice(unit.offset - chunk.offset, unit.len)));
                    }
                }
                self.scrub.compare(chunk, || digest(&data), report);
            }
            None if self.scrub.is_image(chunk) => *tree = None,
            None => {}
        }
    }

    /// The units of a chunk.
    fn units(&self, chunk: ByteRange) -> impl Iterator<Item = ByteRange> + use<> {
        chunk.split_at_multiples(self.nodes.unit_bytes)
    }

    /// The chunks of the drive, in order and in parts of about this size. What follows the image starts with a new chunk.
    fn parts(&self, bytes: u64) -> impl Iterator<Item = Vec<ByteRange>> + Send + use<> {
        let (image, size) = (self.scrub.image.min(self.scrub.size), self.scrub.size);
        let halves = [ByteRange::new(0, image), ByteRange::between(image, size)];
        let parts = halves.into_iter().flat_map(move |half| half.split_at_multiples(bytes));
        parts.map(|part| part.split_at_multiples(CHUNK_BYTES).collect())
    }
}
