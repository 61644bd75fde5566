//! Reading around bad sectors.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, DynDevice, Error, Result};
use cheetah_drive::copy::read_exactly;
use cheetah_image::{BadRange, Identity};

use super::liveness::{Liveness, is_bad_sector};

/// How to read around bad sectors.
#[derive(Debug, Clone, Copy)]
pub struct Salvage {
    /// Size of a sector in bytes, the smallest unreadable unit. At least 1.
    pub sector: u64,
    /// Retries of a sector before it counts as unreadable.
    pub retries: u32,
    /// Whether the source is an image with checksums of its own: what does not match them is corrupt there, for good. Content
    /// that another source damages on its way may be good in the next attempt.
    pub is_checked: bool,
}

/// The result of reading a range.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// As long as the range, with zeros for unreadable sectors.
    pub data: Data,
    /// The unreadable ranges.
    pub bad: Vec<BadRange>,
    /// Reads beyond the first.
    pub retries: u64,
}

impl Salvage {
    /// Returns how to read around the bad sectors of a source.
    pub fn of(source: &Identity, retries: u32) -> Self {
        Self { sector: sector_size(source).into(), retries, is_checked: source.kind.has_checksums() }
    }

    /// Reads `range`. Where that fails, reads its halves, and their halves, down to single sectors; one at a time, to
    /// spare a failing disk.
    ///
    /// # Errors
    ///
    /// Errors other than bad sectors ([`is_bad_sector`]) and corrupt ranges of an image, and [`Error::Lost`] if `liveness` shows that the source is
    /// gone.
    pub async fn read(self, device: &DynDevice, range: ByteRange, liveness: &Liveness) -> Result<Salvaged> {
        let mut salvaged = Salvaged::default();
        let (mut inside, mut failed) = (None, None);
        let mut reads: u64 = 0;
        let mut pending = vec![range];
        while let Some(piece) = pending.pop() {
            let halves = self.halve(piece);
            let tries = if halves.is_some() { 1 } else { u64::from(self.retries) + 1 };
            let mut read = read_exactly(device, piece).await;
            reads += 1;
            for _ in 1..tries {
                // An image is corrupt for good.
                if !read.as_ref().is_err_and(is_bad_sector) {
                    break;
                }
                read = read_exactly(device, piece).await;
                reads += 1;
            }
            match (read, halves) {
                (Ok(data), _) => {
                    salvaged.data.append(data);
                    (inside, failed) = (Some(piece), None);
                }
                (Err(error), _) if !is_bad_sector(&error) && !self.is_corrupt(&error) => return Err(error),
                (Err(error), Some((left, right))) => {
                    if piece == range && !self.is_corrupt(&error) {
                        // Before the thousands of reads that a chunk of bad sectors costs.
                        liveness.prove(device, range, (None, true), &error).await?;
                    }
                    pending.extend([right, left]);
                }
                (Err(error), None) => {
                    let (why, corrupt) = (cause(&error), self.is_corrupt(&error));
                    BadRange { offset: piece.offset, len: piece.len, why, corrupt }.push(&mut salvaged.bad);
                    salvaged.data.append(Data::zeros(piece.len));
                    // An image whose content was read and found corrupt is there.
                    failed = (!corrupt).then_some(error);
                }
            }
        }
        match failed {
            // The source may have died meanwhile.
            Some(error) => liveness.prove(device, range, (inside, false), &error).await?,
            None if salvaged.bad.is_empty() => liveness.saw(range),
            None => {}
        }
        salvaged.retries = reads.saturating_sub(1);
        Ok(salvaged)
    }

    fn is_corrupt(self, error: &Error) -> bool {
        self.is_checked && matches!(error, Error::Corrupt { .. })
    }

    /// Returns the halves of a range, split at a multiple of a sector; `None` if it lies within one sector.
    fn halve(self, range: ByteRange) -> Option<(ByteRange, ByteRange)> {
        let middle = range.offset + range.len / 2;
        let below = middle - middle % self.sector;
        let cut = if below > range.offset { below } else { below.checked_add(self.sector)? };
        (cut < range.end()).then(|| (ByteRange::between(range.offset, cut), ByteRange::between(cut, range.end())))
    }
}

/// Returns the source's sector size in bytes, or 512 if it is unknown or implausible.
pub fn sector_size(source: &Identity) -> u32 {
    let known = source.sector_size.filter(|bytes| bytes.is_power_of_two() && (512..=4096).contains(bytes));
    known.unwrap_or(512)
}

/// Returns the source's reason, without the range.
fn cause(error: &Error) -> Arc<str> {
    match error {
        Error::Unreadable { why, .. } | Error::Io { why, .. } => why.clone(),
        Error::Withheld { reason, .. } => reason.to_string().into(),
        // Its name says which part of the image it is, and what is wrong there.
        Error::Corrupt { device, .. } => device.clone(),
        other => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn halves_make_the_whole_and_end_at_sectors(offset in 0u64..10_000, len in 1u64..10_000, sector in 1u64..600) {
            let range = ByteRange::new(offset, len);
            match (Salvage { sector, retries: 0, is_checked: false }).halve(range) {
                Some((left, right)) => {
                    prop_assert!(left.offset == offset && left.end() == right.offset && right.end() == range.end());
                    prop_assert!(!left.is_empty() && !right.is_empty() && right.offset % sector == 0);
                }
                None => prop_assert_eq!(offset / sector, (range.end() - 1) / sector),
            }
        }
    }
}
