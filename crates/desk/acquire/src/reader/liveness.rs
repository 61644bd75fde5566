//! Telling a bad sector from a source that died.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cheetah_device::error::EIO;
use cheetah_device::{ByteRange, DynDevice, Error, Result};

use crate::order::Opener;

/// The number of bytes read to test a place.
const PLACE_LEN: u64 = 4096;
/// The number of places tested.
const PLACES: u64 = 4;
/// The number of attempts to read a place that was read before: with half of all reads failing by chance, one check in some
/// thousands takes a living source for dead.
const ATTEMPTS: u32 = 10;
/// The most readable ranges remembered.
const GOOD_MAX: usize = 64;

/// Tells a bad sector from a source that died. Both fail with the same error, but only the first concerns the evidence.
/// A source is alive if it can be read elsewhere.
///
/// Ranges read before may come from a cache, ours or the server's, long after the disk died. So unread places are tried
/// first, then several that were read, none of which may fail for good. A local source must also be openable again.
pub struct Liveness {
    name: Arc<str>,
    /// Opens the source again; `None` for remote sources.
    reopen: Option<Opener>,
    /// The disks that it lies on, if these are several.
    disks: Vec<DiskPlaces>,
    good: Mutex<Vec<ByteRange>>,
    good_seen: AtomicU64,
    asked: AtomicU64,
}

/// A disk that a source lies on.
pub struct DiskPlaces {
    /// Its content.
    pub device: DynDevice,
    /// Places of it that could be read before.
    pub good: Vec<ByteRange>,
}

impl DiskPlaces {
    /// Whether one of several places can be read. Those at random come first: no cache answers for them.
    async fn is_readable(&self, round: u64) -> Result<bool> {
        let whole = ByteRange::new(0, self.device.geometry().size);
        let random = (0..PLACES).filter_map(|n| place(whole, round + n));
        for range in random.chain(self.good.iter().copied()) {
            if can_read(&self.device, range).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Liveness {
    /// Returns the check for the source that errors call `name`; the ranges `good` were readable before.
    pub fn new(name: &str, reopen: Option<Opener>, good: impl IntoIterator<Item = ByteRange>) -> Self {
        let good: Vec<_> = good.into_iter().take(GOOD_MAX).collect();
        let good_seen = AtomicU64::new(good.len() as u64);
        Self {
            name: name.into(),
            reopen,
            disks: Vec::new(),
            good: Mutex::new(good),
            good_seen,
            asked: AtomicU64::new(0),
        }
    }

    /// Tests each of these disks, on which the source lies. One disk can be readable while another is not.
    #[must_use]
    pub fn on(self, disks: Vec<DiskPlaces>) -> Self {
        Self { disks, ..self }
    }

    /// Remembers a readable range.
    pub fn saw(&self, range: ByteRange) {
        let seen = self.good_seen.fetch_add(1, Ordering::Relaxed) + 1;
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if good.len() < GOOD_MAX {
            good.push(range);
        } else if let Ok(index) = usize::try_from(mix(seen) % seen)
            && let Some(old) = good.get_mut(index)
        {
            *old = range;
        }
    }

    /// Fails with [`Error::Lost`] if nothing can be read outside `suspect`, or of one of its disks, where `error` occurred; `inside` is what
    /// was readable within it. Where nothing can be tested, `maybe` decides. Fails with [`Error::Invalid`] if the source has another size
    /// when it is opened again.
    pub async fn prove(
        &self,
        device: &DynDevice,
        suspect: ByteRange,
        (inside, maybe): (Option<ByteRange>, bool),
        error: &Error,
    ) -> Result<()> {
        let round = self.asked.fetch_add(1, Ordering::Relaxed).wrapping_mul(PLACES);
        let lost = |what: &str| {
            let (device, why) = (self.name.clone(), format!("{what}, after: {error}").into());
            Err(Error::Lost { device, range: suspect, why })
        };
        for disk in &self.disks {
            if !disk.is_readable(round).await? {
                return lost("one of the disks that it lies on cannot be read any more");
            }
        }
        let ahead = ByteRange::between(suspect.end(), device.geometry().size.max(suspect.end()));
        for place in (0..PLACES).filter_map(|n| place(ahead, suspect.offset ^ (round + n))) {
            if can_read(device, place).await? {
                return Ok(());
            }
        }
        let mut device = device.clone();
        if let Some(reopen) = &self.reopen {
            match reopen().await {
                Ok(again) if again.source.device.geometry().size == device.geometry().size => {
                    device = again.source.device;
                }
                Ok(again) => {
                    let sizes = (device.geometry().size, again.source.device.geometry().size);
                    return Err(self.another(sizes, error));
                }
                Err(error) => return lost(&format!("it cannot be reopened ({error})")),
            }
        }
        let behind = self.some_good(round, inside);
        for place in &behind {
            if !can_read_again(&device, *place).await? {
                return lost(&format!(
                    "nothing can be read of it any more, not even {place}, which could be read before"
                ));
            }
        }
        if behind.is_empty() && !maybe {
            return lost("nothing at all can be read of it");
        }
        Ok(())
    }

    /// The error for a source that had one size and has another one when it is opened again, after `error`.
    fn another(&self, (then, now): (u64, u64), error: &Error) -> Error {
        let name = &self.name;
        let why = format!(
            "{name} had {then} bytes, and has {now} since it was opened again, so it is another disk, or its adapter fails; \
             connect the disk that was read, after: {error}"
        );
        Error::Invalid(why.into())
    }

    fn some_good(&self, round: u64, inside: Option<ByteRange>) -> Vec<ByteRange> {
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let pick = |n: u64| {
            let index = mix(round + n).checked_rem(good.len() as u64)?;
            place(*good.get(usize::try_from(index).ok()?)?, round + n)
        };
        let mut places: Vec<_> = (0..PLACES).filter_map(pick).collect();
        if places.is_empty() {
            places.extend(inside.and_then(|inside| place(inside, round)));
        }
        places
    }
}

/// Returns a place in `range`; `None` if that is empty.
fn place(range: ByteRange, seed: u64) -> Option<ByteRange> {
    let index = mix(seed).checked_rem(range.len.div_ceil(PLACE_LEN))?;
    let start = range.offset + index * PLACE_LEN;
    Some(ByteRange::between(start, (start + PLACE_LEN).min(range.end())))
}

/// Whether a place that was read before can be read, in one of several attempts: errors may come and go.
async fn can_read_again(device: &DynDevice, place: ByteRange) -> Result<bool> {
    for _ in 0..ATTEMPTS {
        if can_read(device, place).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn can_read(device: &DynDevice, place: ByteRange) -> Result<bool> {
    match device.read(place).await {
        Ok(_) => Ok(true),
        Err(error) if is_bad_sector(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Mixes bits (the finaliser of SplitMix64).
const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns whether an error is about the medium rather than the link.
pub fn is_bad_sector(error: &Error) -> bool {
    matches!(error, Error::Unreadable { .. } | Error::Withheld { .. } | Error::Io { errno: EIO, .. })
}
