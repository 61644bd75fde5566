//! The disks that a volume lies on: recorded when the acquisition of its content begins, and compared whenever it is opened again.

use std::collections::BTreeSet;

use cheetah_device::ByteRange;
use cheetah_device::around::is_local;
use cheetah_device::path_text::path_to_text;
use cheetah_device::supervise;
use cheetah_drive::copy::read_exactly;
use cheetah_drive::digests::digest;
use cheetah_drive::recognise::DiskCompared;
use cheetah_error::Error;
use cheetah_error::next::Acquisition;
use cheetah_image::hash::hex;
use cheetah_image::{Kind, Source, SourceFile};
use cheetah_kit::file::Status;
use cheetah_kit::random;
use futures::{StreamExt as _, stream};

use super::unrecognised::Unrecognised;
use crate::journal::{self, ContentSample, DiskState, FileState};

type Result<T, E = Error> = std::result::Result<T, E>;

/// Bytes of a page, of which the samples are.
const PAGE_BYTES: u64 = 4096;
/// The pages that are chosen at random. If all of them are equal, less than 1 % of the disk differs, with a confidence of 99.9 %.
const PAGES: u64 = 690;
/// The pages at each end that are always compared: superblocks and the metadata of arrays and volume groups lie there.
const PAGES_AT_ENDS: u64 = 16;
/// Reads in flight at once.
const AT_ONCE: usize = 32;

/// Records the disks as they are now.
///
/// # Errors
///
/// `Kind::Device` if one of them is lost.
pub async fn examine(disks: &[Source]) -> Result<Vec<DiskState>> {
    let mut states = Vec::new();
    for disk in disks {
        let samples = read(disk, places(disk)?).await?;
        states.push(DiskState { identity: disk.identity.clone(), files: files_of(disk).await, samples });
    }
    Ok(states)
}

/// Disks that were compared. No difference was found but those that are vouched for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComparedDisks {
    /// The differences that the examiner vouches for, a sentence each.
    pub vouched: Vec<String>,
    /// Each disk, in order.
    pub disks: Vec<DiskCompared>,
}

/// Compares the disks as they are `now` with what was recorded of them.
///
/// # Errors
///
/// `Kind::Evidence` if one of them is, or may be, another one, or has changed; `Kind::Misuse` if there are more or fewer;
/// `Kind::Device` if one of them is lost.
pub async fn compare(then: &[DiskState], now: &[Source], same_source: bool) -> Result<ComparedDisks, Unrecognised> {
    // Earlier versions recorded no disks, and read a volume from one alone.
    if then.is_empty() && now.len() <= 1 {
        return Ok(ComparedDisks::default());
    }
    if then.len() != now.len() {
        let (then, now) = (then.len(), now.len());
        return Err(Unrecognised::Failed(
            Error::misuse(format!("this acquisition was begun with {then} disks, and {now} are given"))
                .next(Acquisition::RepeatOrBeginAgain),
        ));
    }
    let mut compared = ComparedDisks::default();
    for (index, (then, now)) in then.iter().zip(now).enumerate() {
        let found = compare_one(then, now, same_source).await;
        let (vouched, disk) = found.map_err(|why| match why {
            // Only the first can have called, and another may call.
            Unrecognised::Another(error) if index > 0 => Unrecognised::Failed(error),
            why => why,
        })?;
        compared.vouched.extend(vouched);
        compared.disks.push(disk);
    }
    Ok(compared)
}

async fn compare_one(
    then: &DiskState,
    now: &Source,
    same_source: bool,
) -> Result<(Vec<String>, DiskCompared), Unrecognised> {
    let location = &now.identity.location;
    let changes = journal::known_changes(&then.identity, &now.identity, same_source);
    let mut vouched = changes.map_err(Unrecognised::Another)?;
    // A process may serve several disks: one that is vouched for is compared.
    let is_vouched_for = !vouched.is_empty();
    let written = written_since(&then.files, &files_of(now).await);
    if let (Some(how), false) = (&written, same_source) {
        return Err(Unrecognised::Failed(journal::unknown_source(location, how)));
    }
    vouched.extend(written);
    let instance = now.identity.instance();
    let is_kept_open = !is_vouched_for && instance.is_some() && instance == then.identity.instance();
    let (compared_bytes, unreadable_bytes) = match is_kept_open {
        true => (0, 0),
        false => compare_content(then, now).await?,
    };
    let size_bytes = now.identity.size;
    let disk = DiskCompared { location: location.clone(), size_bytes, compared_bytes, unreadable_bytes };
    Ok((vouched.into_iter().map(|how| format!("{location}: {how}")).collect(), disk))
}

/// Compares the samples. What could not be read then does not count. Returns the bytes that are equal, and those that cannot be read now.
async fn compare_content(then: &DiskState, now: &Source) -> Result<(u64, u64), Unrecognised> {
    let location = &now.identity.location;
    let known = || then.samples.iter().filter(|sample| sample.blake3.is_some());
    let found = read(now, known().map(|sample| ByteRange::new(sample.offset, sample.len)).collect()).await?;
    let (mut equal_bytes, mut unreadable_bytes) = (0, 0);
    for (then, now) in known().zip(&found) {
        match &now.blake3 {
            None => unreadable_bytes += now.len,
            Some(_) if now.blake3 == then.blake3 => equal_bytes += now.len,
            Some(_) => {
                let place = ByteRange::new(now.offset, now.len);
                return Err(Unrecognised::Failed(journal::changed(
                    location,
                    format_args!("{place} has another content now"),
                )));
            }
        }
    }
    // A disk of which little can be read any more is not recognised.
    match equal_bytes >= unreadable_bytes {
        true => Ok((equal_bytes, unreadable_bytes)),
        false => Err(Unrecognised::Failed(Error::failed(format!(
            "{location} cannot be recognised: most of what could be read of it in the beginning cannot be read any more"
        )))),
    }
}

/// How the files differ, if they do: a clause.
fn written_since(then: &[FileState], now: &[FileState]) -> Option<String> {
    if then.len() != now.len() {
        return Some(format!("it was read from {} files and is now from {}", then.len(), now.len()));
    }
    let is_changed =
        |then: &FileState, now: &FileState| (then.size_bytes, then.modified) != (now.size_bytes, now.modified);
    let (_, file) = then.iter().zip(now).find(|(then, now)| is_changed(then, now))?;
    Some(format!("its file {} has another size or another time of its last change", file.path))
}

/// The files of this machine that a disk is read from. Those that are gone are left out, which is a difference, too.
async fn files_of(disk: &Source) -> Vec<FileState> {
    let files = disk.files.clone();
    let state = |file: &SourceFile| {
        let status = Status::at(&file.path).ok()?;
        let path = path_to_text(&file.path).into_owned();
        Some(FileState { path, size_bytes: status.len, modified: status.modified })
    };
    let look = move || files.iter().filter(|file| !file.is_remote()).filter_map(state).collect::<Vec<_>>();
    supervise::spawn_blocking(look).await.unwrap_or_default()
}

/// The places of the samples of a disk, in order: both ends, and pages at random between them.
fn places(disk: &Source) -> Result<Vec<ByteRange>> {
    let size = disk.identity.size;
    let pages = size.div_ceil(PAGE_BYTES);
    let mut chosen: BTreeSet<u64> = (0..pages.min(PAGES_AT_ENDS)).collect();
    if !is_in_order(disk.identity.kind) {
        chosen.extend(pages.saturating_sub(PAGES_AT_ENDS)..pages);
        let wanted = PAGES + 2 * PAGES_AT_ENDS;
        if pages <= 2 * wanted {
            chosen.extend(0..pages);
        } else {
            while (chosen.len() as u64) < wanted {
                chosen.insert(random::bits_64()? % pages);
            }
        }
    }
    let page = |page: u64| ByteRange::new(page * PAGE_BYTES, PAGE_BYTES.min(size - page * PAGE_BYTES));
    Ok(chosen.into_iter().map(page).collect())
}

/// Whether reading its end may take as long as reading all of it. The time of its file's last change stands for the rest.
fn is_in_order(kind: Kind) -> bool {
    matches!(kind, Kind::Gzip | Kind::Bzip2 | Kind::Xz | Kind::Zstd)
}

/// Reads samples of a disk.
async fn read(disk: &Source, places: Vec<ByteRange>) -> Result<Vec<ContentSample>> {
    let device = &disk.device;
    let read = |place: ByteRange| async move { (place, read_exactly(device, place).await) };
    let mut reads = std::pin::pin!(stream::iter(places).map(read).buffered(AT_ONCE));
    let mut samples = Vec::new();
    while let Some((ByteRange { offset, len }, read)) = reads.next().await {
        let blake3 = match read {
            Ok(data) => Some(hex(&digest(&data))),
            Err(error) if is_local(&error) => None,
            Err(error) => return Err(Error::device(format!("comparing {}", disk.identity.location))(error)),
        };
        samples.push(ContentSample { offset, len, blake3 });
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cheetah_device::memory::Memory;
    use cheetah_image::{Identity, ServedBy};

    use super::*;

    const SIZE: usize = 8 << 20;

    fn disk(location: &str, content: &[u8]) -> Source {
        let identity = Identity::new(Kind::Raw, location, content.len() as u64);
        Source::new(Arc::new(Memory::new(content.to_vec())), identity, location.to_owned())
    }

    async fn refused(then: &[DiskState], now: &[Source], same_source: bool) -> Error {
        compare(then, now, same_source).await.expect_err("refused").into_error()
    }

    #[tokio::test]
    async fn a_disk_that_changed_or_was_swapped_is_refused_whichever_it_is() {
        let disks = [disk("a", &vec![1; SIZE]), disk("b", &vec![2; SIZE])];
        let then = examine(&disks).await.unwrap();
        let known = compare(&then, &disks, false).await.ok().unwrap();
        assert!(known.vouched.is_empty() && known.disks.iter().all(|disk| disk.compared_bytes > 0), "{known:?}");
        for index in 0..disks.len() {
            let mut now = disks.clone();
            now[index] = disk(&disks[index].identity.location, &vec![3; SIZE]);
            // An examiner cannot vouch for other content.
            assert!(refused(&then, &now, true).await.is_evidence(), "{index}");
            let mut superblock = vec![index as u8 + 1; SIZE];
            superblock[SIZE - 1] ^= 1;
            now[index] = disk(&disks[index].identity.location, &superblock);
            assert!(refused(&then, &now, false).await.is_evidence(), "{index}");
            now[index] = disk(&disks[index].identity.location, &vec![index as u8 + 1; SIZE - 512]);
            assert!(refused(&then, &now, true).await.is_evidence(), "{index}");
        }
    }

    #[tokio::test]
    async fn a_disk_at_another_place_is_vouched_for_by_the_examiner_alone() {
        let then = examine(&[disk("a", &vec![1; SIZE]), disk("b", &vec![2; SIZE])]).await.unwrap();
        let now = [disk("a", &vec![1; SIZE]), disk("c", &vec![2; SIZE])];
        assert!(refused(&then, &now, false).await.is_evidence());
        assert_eq!(compare(&then, &now, true).await.ok().map(|known| known.vouched.len()), Some(1));
    }

    #[tokio::test]
    async fn another_disk_of_the_same_agent_is_compared_although_the_examiner_vouches_for_it() {
        let served = |path: &str, byte: u8| {
            let server = ServedBy { path: Some(path.into()), instance: Some("1".into()), ..ServedBy::default() };
            let disk = disk("nbd://host/", &vec![byte; SIZE]);
            Source { identity: Identity { server: Some(server), ..disk.identity.clone() }, ..disk }
        };
        let then = examine(&[served("/dev/sda", 1)]).await.unwrap();
        assert!(refused(&then, &[served("/dev/sdb", 2)], true).await.is_evidence());
        let known = compare(&then, &[served("/dev/sda", 1)], false).await.ok().unwrap();
        assert_eq!(known.disks[0].compared_bytes, 0);
    }

    #[tokio::test]
    async fn more_or_fewer_disks_are_a_misuse() {
        let disks = [disk("a", &[1; 4096]), disk("b", &[2; 100])];
        let then = examine(&disks).await.unwrap();
        assert!(refused(&then, &disks[..1], true).await.is_misuse());
        assert!(refused(&then[..1], &disks, true).await.is_misuse());
        assert!(refused(&[], &disks, true).await.is_misuse());
        assert_eq!(compare(&[], &disks[..1], false).await.ok(), Some(ComparedDisks::default()));
    }

    #[tokio::test]
    async fn a_file_that_was_written_to_since_is_refused_unless_the_examiner_vouches_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.raw");
        std::fs::write(&path, [1; 4096]).unwrap();
        let file = SourceFile { path: path.clone(), size: 4096 };
        let disks = [disk("a.raw", &[1; 4096]).with_files(vec![file])];
        let then = examine(&disks).await.unwrap();
        let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(past).unwrap();
        assert!(refused(&then, &disks, false).await.is_evidence());
        assert_eq!(compare(&then, &disks, true).await.ok().map(|known| known.vouched.len()), Some(1));
    }

    #[test]
    fn the_places_of_a_large_disk_are_in_order_apart_and_include_both_ends() {
        let size = 1_000_000 * PAGE_BYTES + 100;
        let large = Source { identity: Identity::new(Kind::Raw, "a", size), ..disk("a", &[0; 512]) };
        let places = places(&large).unwrap();
        assert_eq!(places.len() as u64, PAGES + 2 * PAGES_AT_ENDS);
        assert!(places.windows(2).all(|pair| pair[0].end() <= pair[1].offset));
        assert_eq!((places[0].offset, places.last().map(|place| place.end())), (0, Some(size)));
    }
}
