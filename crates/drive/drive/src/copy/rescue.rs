//! Reads around lost ranges: a range that fails is read again in smaller pieces.

use cheetah_device::{ByteRange, Data, DynDevice, Error as DeviceError};
use futures::future::join_all;

use super::read_exactly;
use crate::file::DriveFile;

/// The largest piece that a failed range is read again in, in bytes.
const PIECE_BYTES_MAX: u64 = 64 << 10;
/// The smallest piece, in bytes: a node keeps one digest per page.
const PAGE_BYTES: u64 = 4 << 10;

/// Reads a drive that may have lost nodes, or pages of them.
pub(crate) struct Rescue {
    device: DynDevice,
    /// At most the stripe unit, so that a piece is on one node.
    piece_bytes: u64,
}

/// A part of a range, with its content or the reason it cannot be read.
pub(crate) type PartRead = (ByteRange, Result<Data, Unread>);

/// Why a part cannot be read. Displays without its range, so that neighbouring ranges with the same cause can be merged.
#[derive(Debug, thiserror::Error)]
#[error("{}", cause(.0))]
pub(crate) struct Unread(#[source] DeviceError);

impl Rescue {
    /// Reads `device`, which is the drive that `file` describes.
    pub(crate) fn new(file: &DriveFile, device: DynDevice) -> Self {
        let unit = file.sets.iter().filter_map(|set| set.unit).min().unwrap_or(PIECE_BYTES_MAX);
        Self { device, piece_bytes: unit.min(PIECE_BYTES_MAX) }
    }

    /// Reads `range` in pieces, and a piece with damaged memory page by page. The parts are in order and make up
    /// `range`. A lost node fails whole pieces; it is not asked for single pages.
    pub(crate) async fn read(&self, range: ByteRange) -> Vec<PartRead> {
        let mut parts = Vec::new();
        for (piece, read) in self.read_each(range, self.piece_bytes).await {
            match read {
                Ok(data) => parts.push((piece, Ok(data))),
                Err(error @ DeviceError::Lost { .. }) => parts.push((piece, Err(Unread(error)))),
                Err(_) => {
                    let pages = self.read_each(piece, PAGE_BYTES).await;
                    parts.extend(pages.into_iter().map(|(page, read)| (page, read.map_err(Unread))));
                }
            }
        }
        parts
    }

    /// Reads the pieces of `range` concurrently, so that a node that does not answer costs one time-out.
    async fn read_each(&self, range: ByteRange, piece: u64) -> Vec<(ByteRange, cheetah_device::Result<Data>)> {
        let read = |piece| async move { (piece, read_exactly(&self.device, piece).await) };
        join_all(range.split_at_multiples(piece).map(read)).await
    }
}

fn cause(error: &DeviceError) -> String {
    match error {
        // The reason a node is lost usually names it already.
        DeviceError::Lost { device, why, .. } if why.contains(&**device) => why.to_string(),
        DeviceError::Lost { device, why, .. } => format!("{device}: {why}"),
        DeviceError::Unreadable { why, .. } => why.to_string(),
        DeviceError::Withheld { reason, .. } => reason.to_string(),
        DeviceError::Corrupt { device, .. } => format!("{device}: the node's memory is damaged"),
        // The context is the device's name, followed by the operation and its range.
        DeviceError::Io { context, why, .. } => format!("{}: {why}", context.split(": ").next().unwrap_or(context)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_cause_names_a_lost_node_once() {
        let lost = |why: &str| {
            let range = ByteRange::new(0, 1);
            cause(&DeviceError::Lost { device: "lab-7".into(), range, why: Arc::from(why) })
        };
        assert_eq!(lost("node lab-7: cannot connect"), "node lab-7: cannot connect");
        assert_eq!(lost("no answer for 10s"), "lab-7: no answer for 10s");
    }
}
