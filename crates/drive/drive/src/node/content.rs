//! Data on foreign servers. A drive over such a server shows that data until they are overwritten, and then they are lost.

use std::str::FromStr;

use cheetah_device::{ByteRange, Device as _};
use cheetah_error::{Error, Result, next};
use cheetah_nbd::uri::NbdUri;
use futures::future::{join_all, try_join_all};

use super::connect::{Connect, connect};
use super::spec::{AvailableNode, NodePlace};
use crate::session::Session;

/// The bytes that are read at each place.
const SAMPLE_BYTES: u64 = 64 << 10;
/// The number of places, which are spread evenly, from the first byte to the last.
const SAMPLES: u64 = 16;

/// Refuses foreign servers that hold data: another drive, a file system, evidence. Samples are read, so data that lie between
/// them go unnoticed. File systems, partition tables and nearly all images have data at their beginning.
///
/// # Errors
///
/// If a sample has a byte that is not zero, or cannot be read.
pub async fn refuse_data(nodes: &[AvailableNode], session: &Session) -> Result<()> {
    join_all(nodes.iter().map(|node| refuse_data_of(node, session))).await.into_iter().collect()
}

async fn refuse_data_of(node: &AvailableNode, session: &Session) -> Result<()> {
    let NodePlace::Foreign { uri } = &node.place else { return Ok(()) };
    let uri = NbdUri::from_str(uri).map_err(|error| Error::failed(format!("{}: {error}", node.name)))?;
    let client = connect(Connect { uri, ..Connect::reading(node.name.clone(), session) }).await?;
    let reads = samples(client.geometry().size).map(|range| client.read(range));
    let read = try_join_all(reads).await.map_err(Error::device(format!("reading {}", node.name)))?;
    if read.iter().all(cheetah_device::Data::is_zero) {
        return Ok(());
    }
    Err(Error::failed(format!("{} holds data, which a drive over it would overwrite", node.name))
        .next(next::Node::OverwriteServer))
}

/// The ranges to read of a server of `size` bytes.
fn samples(size: u64) -> impl Iterator<Item = ByteRange> {
    let len = SAMPLE_BYTES.min(size);
    let last = size - len;
    let step = (last / (SAMPLES - 1)).next_multiple_of(SAMPLE_BYTES).max(SAMPLE_BYTES);
    let starts = (0..SAMPLES - 1).map(move |index| index * step).take_while(move |start| *start < last);
    starts.chain([last]).filter(move |_| len > 0).map(move |start| ByteRange::new(start, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_of_the_first_and_of_the_last_bytes_and_lie_within_a_server_of_any_size() {
        assert_eq!(samples(0).count(), 0);
        for size in [1, 512, SAMPLE_BYTES, SAMPLE_BYTES + 1, 10 * SAMPLE_BYTES, (1 << 40) + 512, u64::MAX] {
            let ranges: Vec<_> = samples(size).collect();
            assert!(ranges.len() <= usize::try_from(SAMPLES).unwrap());
            assert_eq!(ranges[0].offset, 0);
            assert_eq!(ranges.last().unwrap().end(), size);
            assert!(ranges.is_sorted_by_key(|range| range.offset), "{ranges:?}");
        }
    }
}
