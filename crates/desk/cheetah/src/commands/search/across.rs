//! Hits across the fragments of files, which a search of the bytes in their order does not find.

use std::sync::Arc;

use cheetah_device::DynDevice;
use cheetah_error::Error;
use cheetah_search::{AcrossFound, AcrossHit, FileJoints, Places, Search};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use tokio::task::JoinError;

use super::lister::Listed;
use super::stages;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// As many times the size of the source are read beside the joints of all files, and this beside it.
const WORK: u64 = 4;
const WORK_FREE_BYTES: u64 = 1 << 30;

/// What became of the joints.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Hits across them.
    pub hits: u64,
    /// Joints that were searched.
    pub searched: u64,
    /// Joints beside which something cannot be read.
    pub unreadable: u64,
    /// Joints that were not searched: there are too many.
    pub left_out: u64,
}

impl Counts {
    /// Adds those of a file.
    pub const fn add(&mut self, found: &AcrossFound) {
        self.hits += found.hits.len() as u64;
        self.searched += found.searched;
        self.unreadable += found.unreadable;
        self.left_out += found.left_out;
    }
}

/// Searches the fragments of each file as one, and calls `found` with the number of a file and each hit. Returns what became of their
/// joints, or why not all were searched. Fails if a hit cannot be kept.
pub async fn search_all(
    listed: &Listed,
    (search, workers): (&Arc<Search>, usize),
    device: &DynDevice,
    (ui, mut found): (Ui, impl FnMut(usize, &AcrossHit) -> Result<()>),
    stop: &mut Stop,
) -> Result<Result<Counts>> {
    if search.is_for_rules_alone() {
        return Ok(Ok(Counts::default()));
    }
    let progress = ui.progress("searching fragments of files".to_owned(), listed.places.files() as u64);
    let mut counts = Counts::default();
    let take = |(file, hits): (usize, AcrossFound)| -> Result<()> {
        counts.add(&hits);
        for hit in &hits.hits {
            found(file, hit)?;
        }
        progress.set(file as u64 + 1);
        Ok(())
    };
    let ended = stages::each(self::search(listed.places.clone(), device, search, workers), stop, take).await?;
    Ok(ended.map(|()| counts))
}

/// Searches the joints of all fragmented files, several side by side. The results are in the order of the files: the number of each, and what was
/// found. Which joints are too many does not depend on the workers.
fn search(
    places: Arc<Places>,
    device: &DynDevice,
    search: &Arc<Search>,
    workers: usize,
) -> BoxStream<'static, Result<(usize, AcrossFound)>> {
    let (device, search) = (device.clone(), search.clone());
    let mut left_bytes = device.geometry().size.saturating_mul(WORK).saturating_add(WORK_FREE_BYTES);
    let overlap = search.overlap();
    let files = (0..places.files()).filter_map(move |file| places.joints_of(file, overlap)).map(move |joints| {
        let bytes = joints.bytes();
        let has_room = bytes <= left_bytes;
        left_bytes -= if has_room { bytes } else { 0 };
        (joints, has_room)
    });
    let each = move |(joints, has_room): (FileJoints, bool)| -> BoxFuture<'static, Result<(usize, AcrossFound)>> {
        let (file, left_out) = (joints.file, joints.left_out);
        if !has_room {
            let found = AcrossFound { left_out: left_out + joints.joints(), ..AcrossFound::default() };
            return async move { Ok((file, found)) }.boxed();
        }
        let (device, search) = (device.clone(), search.clone());
        let searching = tokio::spawn(async move { joints.search(&device, &search).await });
        async move {
            let ended =
                |error: JoinError| Failure::from(Error::failed(format!("searching fragments of files: {error}")));
            let found = searching.await.map_err(ended)??;
            Ok((file, AcrossFound { left_out: found.left_out + left_out, ..found }))
        }
        .boxed()
    };
    stream::iter(files).map(each).buffered(workers.max(1)).boxed()
}
