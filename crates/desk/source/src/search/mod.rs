//! Searching an open source: at the nodes of a drive, if that is asked for, and otherwise here.
//!
//! The beginnings of compressed data, the blocks of known files and the atoms of rules are hits like others. [`inside::Streams`],
//! [`known::Known`] and [`atoms::FoundAtoms`] take them out of the results, to make more of them.

pub mod atoms;
pub mod inside;
pub mod journal;
pub mod known;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::ByteRange;
use cheetah_device::coverage::State;
use cheetah_drive::WorkDone;
use cheetah_drive::lending::LendRequest;
use cheetah_drive::search::{NearOptions, PATIENCE, search_at_nodes};
use cheetah_error::Result;
use cheetah_image::coverage::{map_path, read_map};
use cheetah_image::spec;
use cheetah_search::{Batch, Order, RunOptions, Search, SearchLimit, Truncation, run};
use futures::stream::BoxStream;
use parking_lot::Mutex;

use crate::kind::is_drive;
use crate::opened::OpenedSource;

/// How a source is searched. Hits and coverage do not depend on it.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// Whether nodes that lend their processor search what they hold.
    pub at_nodes: bool,
    /// The number of parts that this process searches at once.
    pub workers: usize,
    /// The nodes that are lent the key of a sealed drive.
    pub lend: Option<LendRequest>,
    /// The ranges in which hits may begin; `None`: everywhere.
    pub within: Option<Vec<ByteRange>>,
}

/// A search that has begun.
pub struct Searching {
    /// The results, in order and without gaps.
    pub batches: BoxStream<'static, Result<Batch>>,
    /// What was searched where, so far; `None` if no nodes were asked.
    pub near: Option<Arc<Mutex<WorkDone>>>,
}

impl OpenedSource {
    /// Begins to search it; `text` is how the user calls it, and `search` is `order`, compiled. Opened volumes are searched
    /// decrypted, and not by nodes, which hold what is on the disk.
    ///
    /// # Errors
    ///
    /// If the map of the drive, or of the image, cannot be read.
    pub async fn search(
        &self,
        text: &str,
        (order, search): (&Order, &Arc<Search>),
        options: SearchOptions,
    ) -> Result<Searching> {
        let device = self.decrypted()?;
        if let Some((file, session)) = self.nodes().filter(|_| options.at_nodes && self.stack.unlocked.is_none()) {
            let SearchOptions { workers, lend, within, .. } = options;
            let options = NearOptions { workers, lend, within, patience: PATIENCE };
            let near = search_at_nodes(file, &device, (order, search), session, options).await?;
            return Ok(Searching { batches: near.batches, near: Some(near.done) });
        }
        let SearchOptions { workers, within, .. } = options;
        let usual = RunOptions::new(workers);
        let usual = if is_image_file(text) { usual.of_local_file() } else { usual };
        let options = RunOptions { absent: never_read(text)?, within, ..usual };
        Ok(Searching { batches: run(search, &device, &options), near: None })
    }

    /// What cannot be searched because the source does not have it, although its partition tables or file systems say that it has. The look
    /// may take `patience`.
    pub fn truncated_end(&self, patience: Duration) -> impl Future<Output = Option<Truncation>> + Send + use<> {
        let looking = self.claimed_behind(patience);
        async move { looking.await.map(|range| Truncation { range, limit: SearchLimit::End }) }
    }
}

/// Whether it is a file with an image, and neither a drive, a device nor a URI. It may still lie on a server's file system: then fewer reads
/// than usual are ahead there, too.
fn is_image_file(text: &str) -> bool {
    image_path(text).and_then(|path| std::fs::metadata(path).ok()).is_some_and(|found| found.is_file())
}

/// The path of an image, or of a device; `None` for a drive, and for a URI.
fn image_path(text: &str) -> Option<PathBuf> {
    let (path, _) = spec::path_of(text)?;
    (!is_drive(&path)).then_some(path)
}

/// The ranges that the coverage map beside an image calls never read.
///
/// # Errors
///
/// If the map cannot be read.
pub fn never_read(text: &str) -> Result<Vec<ByteRange>> {
    let Some(path) = image_path(text) else { return Ok(Vec::new()) };
    let map = read_map(&map_path(&path))?;
    Ok(map.iter().flat_map(|map| map.in_state(State::Unread)).collect())
}
