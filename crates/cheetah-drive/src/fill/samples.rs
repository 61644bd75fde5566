//! Whether a source still says what it said: a little of what came from it is read once more.
//!
//! Size, model and serial number do not tell a disk from one that was written to meanwhile, nor one export of an NBD
//! server from another. So whenever the source is opened, some of what is recorded as read is compared with the
//! digests made when it came. This finds another disk; it does not prove that no byte has changed.

use std::time::Duration;

use blake3::hazmat::{ChainingValue, HasherExt as _};
use cheetah_device::copy_on_read::GRAIN;
use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage, DynDevice};
use cheetah_image::{Error, Result};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::account::Account;
use super::grains::Grains;
use super::origin::changed;
use crate::digests::CHUNK_BYTES;

/// Grains read anew each time: half a MiB.
const SAMPLES: u64 = 8;
/// Grains looked up for each of them, since zeros are worth little: every disk has some.
const CANDIDATES: u64 = 64;

/// What is known of a grain of the source.
type Sample = (ByteRange, ChainingValue);

/// Compares `source`, which errors call `name`, with what came from it before. Whatever it answers within `patience`
/// counts; a sample that has become a bad sector meanwhile says nothing.
///
/// # Errors
///
/// [`Error::Evidence`] if it is not what it was; others if it cannot be read.
pub(super) async fn compare(account: &Account, source: &DynDevice, name: &str, patience: Duration) -> Result<()> {
    let samples = choose(&account.recorded(), account.grains())?;
    let count = samples.len();
    let read = |(grain, known): Sample| async move { (grain, known, source.read(grain).await) };
    let reads: FuturesUnordered<_> = samples.into_iter().map(read).collect();
    let mut reads = std::pin::pin!(reads.take_until(tokio::time::sleep(patience)));
    let mut answered = 0;
    while let Some((grain, known, read)) = reads.next().await {
        answered += 1;
        match read {
            Ok(data) if data.len() == grain.len && account.grains().value(grain, &data) == known => {}
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

/// Up to [`SAMPLES`] grains that were read and noted, from all over what was; without zeros where there are such.
fn choose(coverage: &Coverage, grains: &Grains) -> Result<Vec<Sample>> {
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

/// Where a part begins of so many grains.
fn part_start(part: u64, total: u64) -> u64 {
    total / SAMPLES * part + total % SAMPLES * part / SAMPLES
}

/// The grains that were read as a whole, by their numbers: the first of a run, and how many.
fn whole_grains(coverage: &Coverage) -> Vec<(u64, u64)> {
    let whole = |run: ByteRange| {
        let end = if run.end() == coverage.size() { run.end().div_ceil(GRAIN) } else { run.end() / GRAIN };
        let first = run.offset.div_ceil(GRAIN);
        (first, end.saturating_sub(first))
    };
    coverage.in_state(State::Read).map(whole).filter(|(_, count)| *count > 0).collect()
}

/// One of them.
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

/// What is noted of a grain of zeros, at each place within a chunk.
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

    /// Sixty-four grains and a bit.
    const SIZE: u64 = 64 * GRAIN + 100;
    const PATIENCE: Duration = Duration::from_secs(60);

    /// What came of a source of which the ranges were read.
    async fn account(dir: &tempfile::TempDir, content: &[u8], read: &[ByteRange]) -> Account {
        let file = DriveFile { path: dir.path().join("case.drive"), ..example() };
        let mut coverage = Coverage::new(SIZE);
        let account = Account::open(&file, coverage.clone()).unwrap();
        let content = Data::from(content.to_vec());
        for range in read {
            account.passed(*range, &content.slice(range.offset, range.len));
            coverage.set(*range, State::Read);
        }
        account.record(coverage).await.unwrap();
        account
    }

    fn content() -> Vec<u8> {
        (0..SIZE).map(|at| (at % 251) as u8 | 1).collect()
    }

    #[tokio::test]
    async fn a_disk_with_another_content_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let (front, back) = (ByteRange::new(0, 20 * GRAIN), ByteRange::between(40 * GRAIN, SIZE));
        let account = account(&dir, &content(), &[front, back]).await;
        let memory = Arc::new(Memory::new(content()));
        let source: DynDevice = memory.clone();
        compare(&account, &source, "nbd://h", PATIENCE).await.unwrap();
        // What was not read yet may be anything.
        memory.write(20 * GRAIN, Data::zeros(20 * GRAIN), false).await.unwrap();
        compare(&account, &source, "nbd://h", PATIENCE).await.unwrap();
        memory.write(40 * GRAIN, Data::zeros(20 * GRAIN), false).await.unwrap();
        let error = compare(&account, &source, "nbd://h", PATIENCE).await.unwrap_err();
        assert!(error.exit_code() == 3 && error.to_string().contains("nbd://h is not what"), "{error}");
    }

    #[tokio::test]
    async fn samples_are_few_and_from_all_over_and_zeros_only_where_there_is_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut content = content();
        content[..30 * GRAIN as usize].fill(0);
        content[5 * GRAIN as usize] = 1;
        let account = account(&dir, &content, &[ByteRange::new(0, SIZE)]).await;
        let chosen = choose(&account.recorded(), account.grains()).unwrap();
        let chosen: Vec<_> = chosen.into_iter().map(|(grain, _)| grain.offset / GRAIN).collect();
        assert_eq!(chosen, [5, 8, 16, 30, 32, 40, 48, 56]);
    }

    #[tokio::test]
    async fn little_or_nothing_that_was_read_is_no_reason_to_refuse() {
        let dir = tempfile::tempdir().unwrap();
        let source: DynDevice = Arc::new(Memory::new(content()));
        let nothing = account(&dir, &content(), &[]).await;
        compare(&nothing, &source, "disk", PATIENCE).await.unwrap();
        let tail = account(&dir, &content(), &[ByteRange::between(64 * GRAIN - 5, SIZE)]).await;
        compare(&tail, &source, "disk", PATIENCE).await.unwrap();
        assert_eq!(choose(&tail.recorded(), tail.grains()).unwrap().len(), 1, "the last grain is a whole one");
    }
}
