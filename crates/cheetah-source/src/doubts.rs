//! What is in doubt about a source although it can be read.

use std::time::Duration;

use cheetah_image::{Kind, Source};
use cheetah_volume::reach::{ReachOptions, beyond};

/// The part of an image that is read if it can be read only from start to end: it stays in memory.
const IN_ORDER_BYTES: u64 = cheetah_image::compressed::FRAME_MAX;

/// Returns what is in doubt about a source, a sentence each: what was found when it was opened, and partition tables and file
/// systems that reach beyond its end. Reads its first bytes and those of its partitions; what cannot be read in `patience` is
/// left out.
pub async fn doubts(source: &Source, patience: Duration) -> Vec<String> {
    let is_compressed = matches!(source.identity.kind, Kind::Gzip | Kind::Bzip2 | Kind::Xz | Kind::Zstd);
    let read_up_to = if is_compressed { IN_ORDER_BYTES } else { u64::MAX };
    // Images say 512, whatever the disk had.
    let sector_bytes = source.identity.sector_size.filter(|bytes| *bytes != 512);
    let looking = beyond(&*source.device, ReachOptions { sector_bytes, read_up_to });
    let found = tokio::time::timeout(patience, looking).await.unwrap_or_default();
    source.notes.iter().cloned().chain(found).collect()
}
