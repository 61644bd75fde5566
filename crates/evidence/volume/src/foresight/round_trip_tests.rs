//! The round trips of a survey: a link in virtual time records when each request leaves.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::cache::{Cache, CacheConfig, CachePlace};
use cheetah_device::{ByteRange, Data, Device, Geometry, Io};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Foresight;
use crate::ntfs::tests::{CLUSTER, Volume, file_name, runs};

const ROUND_TRIP: Duration = Duration::from_millis(20);
const SIZE: u64 = 64 << 20;
/// The clusters of the MFT.
const MFT: u64 = 4000;
const MFT_CLUSTERS: u64 = 200;
const DIRECTORIES: u64 = 20;
/// What a connection delivers in its first round trip, in bytes: ten segments.
const FIRST_BYTES: u64 = 14_480;

/// A device that answers after a round trip, whatever is asked for.
struct Link {
    content: Vec<u8>,
    opened: Instant,
    /// When each request left, and its range.
    requests: Mutex<Vec<(Duration, ByteRange)>>,
}

impl Device for Link {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.content.len() as u64, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            self.requests.lock().push((self.opened.elapsed(), range));
            tokio::time::sleep(ROUND_TRIP).await;
            Ok(Data::from(self.content[range.offset as usize..range.end() as usize].to_vec()))
        })
    }
}

/// A volume with directories whose records are all over the MFT, also at both of its ends.
fn volume() -> Vec<u8> {
    let mut volume = Volume::of_size(SIZE, MFT..MFT + MFT_CLUSTERS);
    // What tools look at before they list is no riddle.
    volume.bytes[64 << 10..4 << 20].fill(7);
    volume.put(0, None, false, &[runs(0x80, "", 0, MFT_CLUSTERS * CLUSTER, &[(Some(MFT), MFT_CLUSTERS)])]);
    let index = |nth| runs(0xa0, "$I30", 0, CLUSTER, &[(Some(directory(nth).offset / CLUSTER), 1)]);
    volume.put(5, None, true, &[file_name(5, ".", 3), index(0)]);
    for nth in 1..DIRECTORIES {
        let name = file_name(5, &format!("directory {nth}"), 1);
        volume.put(MFT_CLUSTERS * 4 - 1 - (nth - 1) * 40, None, true, &[name, index(nth)]);
    }
    volume.bytes
}

/// The index of a directory; 0 is the root.
fn directory(nth: u64) -> ByteRange {
    ByteRange::new((8000 + nth * 16) * CLUSTER, CLUSTER)
}

/// Surveys the volume; returns the requests, by the round trip with which they left.
async fn rounds_of_a_survey() -> Vec<Vec<ByteRange>> {
    let link = Arc::new(Link { content: volume(), opened: Instant::now(), requests: Mutex::default() });
    let config = CacheConfig { place: CachePlace::Memory, budget_bytes: 1 << 30 };
    let cache = Cache::new(link.clone(), config).unwrap();
    let foresight = Foresight::new(cache.clone(), cache.clone(), 1 << 30, None, None);
    foresight.settled().await;
    let requests = link.requests.lock();
    let rounds = requests.chunk_by(|(one, _), (next, _)| one == next);
    rounds.map(|round| round.iter().map(|(_, range)| *range).collect()).collect()
}

/// The round in which the last byte of `range` was requested, from 1.
fn round_of(rounds: &[Vec<ByteRange>], range: ByteRange) -> Option<usize> {
    let sectors = (range.offset..range.end()).step_by(512);
    let asks = |round: &Vec<ByteRange>, at| round.iter().any(|asked| (asked.offset..asked.end()).contains(&at));
    let round = |at| rounds.iter().position(|round| asks(round, at)).map(|round| round + 1);
    sectors.map(round).collect::<Option<Vec<_>>>()?.into_iter().max()
}

#[tokio::test(start_paused = true)]
async fn a_survey_of_ntfs_waits_only_for_what_locates_the_next_requests() {
    let rounds = rounds_of_a_survey().await;
    let round = |range| round_of(&rounds, range).unwrap();
    let mft = ByteRange::new(MFT * CLUSTER, MFT_CLUSTERS * CLUSTER);
    assert_eq!(round(ByteRange::new(0, 8192)), 1);
    assert_eq!(round(ByteRange::new(mft.offset, 64 << 10)), 2, "it begins where the boot sector says");
    assert_eq!(round(mft), 3, "its first record locates the rest");
    assert_eq!(round(directory(0)), 3, "its record is among the first");
    assert_eq!((0..DIRECTORIES).map(|nth| round(directory(nth))).max(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_delivers_both_ends_of_the_device_in_one_round_trip() {
    let rounds = rounds_of_a_survey().await;
    let ends = [ByteRange::new(0, 8192), ByteRange::new(SIZE - 4096, 4096)];
    assert_eq!(rounds[0][..2], ends);
    assert!(ends.map(|range| range.len).iter().sum::<u64>() <= FIRST_BYTES);
}
