//! Comparing a source with samples of what it sent before.
//!
//! Size, model and serial number do not distinguish a disk from the same disk after a write, nor one export of an NBD
//! server from another. So whenever the source is opened, some grains that were read before are read again and compared
//! with their recorded digests. This detects another disk; it does not prove that no byte has changed.

use std::time::Duration;

use blake3::hazmat::{ChainingValue, HasherExt as _};
use cheetah_device::copy_on_read::GRAIN;
use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage, DynDevice};
use cheetah_error::{Error, Result};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::grains::Grains;
use super::origin::changed;
use super::record::FillRecord;
use crate::file::digests::CHUNK_BYTES;

/// Grains read again each time: half a MiB.
const SAMPLES: u64 = 8;
/// Grains considered for each sample: zeros make poor samples, since every disk has some.
const CANDIDATES: u64 = 64;

/// A grain of the source, and its recorded value.
type GrainSample = (ByteRange, ChainingValue);

/// Compares `source`, which errors call `name`, with what it sent before. Only answers within `patience` count; a sample
/// that has become a bad sector is skipped.
///
/// # Errors
///
/// [`Error::Evidence`] if a sample differs; others if the source cannot be read.
pub(super) async fn compare(record: &FillRecord, source: &DynDevice, name: &str, patience: Duration) -> Result<()> {
    let samples = choose(&record.recorded(), record.grains())?;
    let count = samples.len();
    let read = |(grain, known): GrainSample| async move { (grain, known, source.read(grain).await) };
    let reads: FuturesUnordered<_> = samples.into_iter().map(read).collect();
    let mut reads = std::pin::pin!(reads.take_until(tokio::time::sleep(patience)));
    let mut answered = 0;
    while let Some((grain, known, read)) = reads.next().await {
        answered += 1;
        match read {
            Ok(data) if data.len() == grain.len && record.grains().value(grain, &data) == known => {}
            Ok(_) => return Err(changed(name, format_args!("{grain} was read before, and is different now"))),
            Err(error) if error.is_bad_sector() => {
                tracing::warn!("{name}: {grain} was read before, and cannot be read any more: {error}");
            }
            Err(error) => return Err(Error::device(format!("comparing {name} with what was read before"))(error)),
        }
    }
    match (answered, count) {
        (0, 1..) => Err(Error::failed(format!("{name}: no answer for {patience:?}"))),
        _ => Ok(()),
    }
}

/// Chooses up to [`SAMPLES`] grains with recorded values, spread over the ranges that were read, preferably not zeros.
fn choose(coverage: &Coverage, grains: &Grains) -> Result<Vec<GrainSample>> {
    let runs = whole_grains(coverage);
    let total: u64 = runs.iter().map(|(_, count)| count).sum();
    let zeros = of_zeros();
    let mut samples = Vec::new();
    for part in 0..SAMPLES {
        let (from, to) = (part_start(part, total), part_start(part + 1, total));
        let mut zero = None;
        let step = (to - from).div_ceil(CANDIDATES).max(1);
        for index in (from..to).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let Some(grain) = nth(&runs, index, coverage.size()) else { break };
            match grains.known(grain)? {
                Some(value) if zeros.contains(&value) => zero = zero.or(Some((grain, value))),
                Some(value) => {
                    zero = None;
                    samples.push((grain, value));
                    break;
                }
                None => {}
            }
        }
        samples.extend(zero);
    }
    Ok(samples)
}

/// The first grain of one of [`SAMPLES`] equal parts of `total` grains.
fn part_start(part: u64, total: u64) -> u64 {
    total / SAMPLES * part + total % SAMPLES * part / SAMPLES
}

/// The runs of grains that were read in full: the number of the first, and their count.
fn whole_grains(coverage: &Coverage) -> Vec<(u64, u64)> {
    let whole = |run: ByteRange| {
        let end = if run.end() == coverage.size() { run.end().div_ceil(GRAIN) } else { run.end() / GRAIN };
        let first = run.offset.div_ceil(GRAIN);
        (first, end.saturating_sub(first))
    };
    coverage.in_state(State::Read).map(whole).filter(|(_, count)| *count > 0).collect()
}

/// The grain with this index in the runs.
fn nth(runs: &[(u64, u64)], mut index: u64, size: u64) -> Option<ByteRange> {
    for (first, count) in runs {
        if index < *count {
            let start = (first + index) * GRAIN;
            return Some(ByteRange::between(start, (start + GRAIN).min(size)));
        }
        index -= count;
    }
    None
}

/// The values of a grain of zeros at each place in a chunk.
fn of_zeros() -> Vec<ChainingValue> {
    let zeros = vec![0; GRAIN as usize];
    let at = |offset| blake3::Hasher::new().set_input_offset(offset).update(&zeros).finalize_non_root();
    (0..CHUNK_BYTES / GRAIN).map(|place| at(place * GRAIN)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::DriveFile;
    use crate::file::tests::example;
    use cheetah_device::copy_on_read::Ledger as _;
    use cheetah_device::memory::Memory;
    use cheetah_device::{Data, Device as _};
    use std::sync::Arc;

    /// 64 grains and 100 bytes.
    const SIZE: u64 = 64 * GRAIN + 100;
    const PATIENCE: Duration = Duration::from_secs(60);

    /// The record of a fill that has read these ranges.
    async fn record(dir: &tempfile::TempDir, content: &[u8], read: &[ByteRange]) -> FillRecord {
        let file = DriveFile { path: dir.path().join("case.drive"), ..example() };
        let mut coverage = Coverage::new(SIZE);
        let record = FillRecord::open(&file, coverage.clone()).unwrap();
        let content = Data::from(content.to_vec());
        for range in read {
            record.passed(*range, &content.slice(range.offset, range.len));
            coverage.set(*range, State::Read);
        }
        record.record(coverage).await.unwrap();
        record
    }

    fn content() -> Vec<u8> {
        (0..SIZE).map(|at| (at % 251) as u8 | 1).collect()
    }

    #[tokio::test]
    async fn a_disk_with_other_content_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let (front, back) = (ByteRange::new(0, 20 * GRAIN), ByteRange::between(40 * GRAIN, SIZE));
        let record = record(&dir, &content(), &[front, back]).await;
        let memory = Arc::new(Memory::new(content()));
        let source: DynDevice = memory.clone();
        compare(&record, &source, "nbd://h", PATIENCE).await.unwrap();
        // Ranges that were not read yet may have changed.
        memory.write(20 * GRAIN, Data::zeros(20 * GRAIN), false).await.unwrap();
        compare(&record, &source, "nbd://h", PATIENCE).await.unwrap();
        memory.write(40 * GRAIN, Data::zeros(20 * GRAIN), false).await.unwrap();
        let error = compare(&record, &source, "nbd://h", PATIENCE).await.unwrap_err();
        assert!(error.exit_code() == 3 && error.to_string().contains("nbd://h is not what"), "{error}");
    }

    #[tokio::test]
    async fn samples_are_spread_and_avoid_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let mut content = content();
        content[..30 * GRAIN as usize].fill(0);
        content[5 * GRAIN as usize] = 1;
        let record = record(&dir, &content, &[ByteRange::new(0, SIZE)]).await;
        let chosen = choose(&record.recorded(), record.grains()).unwrap();
        let chosen: Vec<_> = chosen.into_iter().map(|(grain, _)| grain.offset / GRAIN).collect();
        assert_eq!(chosen, [5, 8, 16, 30, 32, 40, 48, 56]);
    }

    #[tokio::test]
    async fn a_source_of_which_little_was_read_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let source: DynDevice = Arc::new(Memory::new(content()));
        let nothing = record(&dir, &content(), &[]).await;
        compare(&nothing, &source, "disk", PATIENCE).await.unwrap();
        let tail = record(&dir, &content(), &[ByteRange::between(64 * GRAIN - 5, SIZE)]).await;
        compare(&tail, &source, "disk", PATIENCE).await.unwrap();
        assert_eq!(choose(&tail.recorded(), tail.grains()).unwrap().len(), 1, "the last grain is a whole one");
    }
}
