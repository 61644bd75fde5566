//! What is in doubt about a source although it can be read.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::window::Window;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_drive::{Drive, DriveFile, OpenOptions, Session};
use cheetah_image::{Evidence, Identity, Kind, Source};
use cheetah_volume::reach::{Claim, ReachOptions, add_claims, beyond_end};

/// The part of an image that is read if it can be read only from start to end: it stays in memory.
const IN_ORDER_BYTES: u64 = cheetah_image::compressed::FRAME_MAX;

/// Returns what is in doubt about a source, a sentence each: what was found when it was opened, and partition tables and file
/// systems that reach beyond its end. Reads its first bytes and those of its partitions; that this takes longer than `patience`
/// is a doubt, too.
pub async fn doubts(source: &Source, patience: Duration) -> Vec<String> {
    let (claims, is_whole) = claims(source, patience).await;
    let found = beyond_end(claims, source.device.geometry().size);
    let late = (!is_whole).then(|| unexamined(&format!("that takes longer than {patience:?}")));
    source.notes.iter().cloned().chain(found).chain(late).collect()
}

/// The range behind the end of a source that its partition tables and file systems claim to have, as far as that is found within
/// `patience`; `None` if they claim none.
pub(crate) async fn claimed_behind(source: &Source, patience: Duration) -> Option<ByteRange> {
    let (claims, _) = claims(source, patience).await;
    let end = claims.iter().map(|claim| claim.end_bytes).max()?;
    let behind = ByteRange::between(source.device.geometry().size, end);
    (!behind.is_empty()).then_some(behind)
}

/// What partition tables and file systems of a source claim, and whether all of them were looked at.
async fn claims(source: &Source, patience: Duration) -> (Vec<Claim>, bool) {
    let options = ReachOptions { sector_bytes: recorded_sector_size(source), read_up_to: readable_up_to(source) };
    let mut claims = Vec::new();
    let looking = add_claims(&*source.device, options, &mut claims);
    let is_whole = tokio::time::timeout(patience, looking).await.is_ok();
    (claims, is_whole)
}

/// Says that a look for doubts did not end, and why: a sentence without its end.
pub fn unexamined(why: &str) -> String {
    format!("not all of its partition tables and file systems were examined for where they end: {why}")
}

/// Whether a source may be looked at while it is read: it is behind a link, over which the look takes some round trips, and need not be
/// read from start to end.
pub fn may_look_meanwhile(evidence: &Evidence) -> bool {
    evidence.wire.is_some() && readable_up_to(&evidence.source) == u64::MAX
}

/// The offset up to which a source can be read without much cost.
pub(crate) fn readable_up_to(source: &Source) -> u64 {
    match source.identity.kind {
        Kind::Gzip | Kind::Bzip2 | Kind::Xz | Kind::Zstd => IN_ORDER_BYTES,
        _ => u64::MAX,
    }
}

/// The sector size that a source records, in bytes. Images say 512, whatever the disk had.
pub(crate) fn recorded_sector_size(source: &Source) -> Option<u32> {
    source.identity.sector_size.filter(|bytes| *bytes != 512)
}

/// The same for the content of a drive, read through `device`. An image ends where it ended at its source, not with the drive.
pub async fn doubts_about(file: &DriveFile, device: DynDevice, patience: Duration) -> Vec<String> {
    doubts(&image_on(file, device), patience).await
}

/// The image on a drive, as a source.
pub(crate) fn image_on(file: &DriveFile, device: DynDevice) -> Source {
    let size = file.image.as_ref().map_or(file.size, |image| image.size);
    let whole: DynDevice = match Window::new(device.clone(), ByteRange::new(0, size)) {
        Ok(window) => Arc::new(window),
        Err(_) => device,
    };
    let sector_size = file.image.as_ref().and_then(|image| image.sector_size);
    let identity = Identity { sector_size, ..Identity::new(Kind::Drive, file.name.clone(), size) };
    Source::new(whole, identity, file.name.clone())
}

/// The same for a drive that is not open; nothing if it cannot be opened, which others say.
pub async fn doubts_about_drive(file: &DriveFile, session: &Session) -> Vec<String> {
    let options = OpenOptions { allow_lost: true, prefetch_budget: 0, ..OpenOptions::new(session.clone()) };
    match Drive::open(file, options).await {
        // The device of a drive that is only read keeps all that its reads need.
        Ok(drive) => doubts_about(file, drive.device(), session.timeout).await,
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use cheetah_testing::SilentDevice;
    use cheetah_testing::raid::disk;
    use cheetah_volume::reach::Claim;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_that_takes_too_long_is_a_doubt_beside_what_it_found() {
        let mut ext = vec![0; 512 << 10];
        ext[1028..1032].copy_from_slice(&512_u32.to_le_bytes());
        ext[1080..1082].copy_from_slice(&[0x53, 0xef]);
        let mut bytes = disk(&[(0x83, &ext), (0x83, &[5; 128 << 10])]);
        let end_bytes = bytes.len() as u64;
        // Within the second partition.
        bytes.truncate(bytes.len() - (64 << 10));
        let second = (1 << 20) + (512 << 10);
        let late = "not all of its partition tables and file systems were examined for where they end: that takes longer \
                    than 10s";
        for (from, found) in [(0, 0), (second, 1)] {
            let identity = Identity::new(Kind::Nbd, "nbd://host/", bytes.len() as u64);
            let device = Arc::new(SilentDevice::new(bytes.clone(), from));
            let mut source = Source::new(device, identity, "host".into());
            source.notes.push("a part may be missing".into());
            let said = doubts(&source, Duration::from_secs(10)).await;
            assert_eq!((said.len(), &*said[0], &*said[said.len() - 1]), (found + 2, "a part may be missing", late));
            let size = source.device.geometry().size;
            let claim = Claim { what: "partition 2 of the MBR".to_owned(), end_bytes };
            assert!(found == 0 || Some(&said[1]) == claim.beyond(size).as_ref(), "{said:?}");
            let behind = claimed_behind(&source, Duration::from_secs(10)).await;
            assert_eq!(behind.map(|behind| behind.offset), (found == 1).then_some(bytes.len() as u64));
        }
    }
}
