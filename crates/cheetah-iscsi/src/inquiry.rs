//! Finding out what a logical unit is, and whether it is still the same one.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::link::{Link, LinkError};
use crate::scsi::{self, BlockLimits, Capacity, Cdb, Sense, SenseKey, Standard, Unreadiness};
use crate::session::Outcome;

/// How often a command is repeated when the logical unit has something else to tell first.
const ATTENTIONS_MAX: usize = 16;
/// The pause before asking again whether the logical unit is ready.
const PAUSE: Duration = Duration::from_millis(200);
/// Sizes of blocks that are believed.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 256..=65536;
/// The most bytes a command reads. Large enough that commands cost nothing, small enough that a bad block takes little
/// with it.
const TRANSFER_LEN_MAX: u32 = 1 << 20;

/// What a logical unit says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// Who made it.
    pub vendor: String,
    /// What they call it.
    pub product: String,
    /// Which version of it.
    pub revision: String,
    /// Its serial number (VPD page 0x80), where it has one.
    pub serial: Option<String>,
    /// Bytes in a logical block: 256 to 65536.
    pub block_bytes: u32,
    /// Logical blocks; their bytes fit into 64 bits.
    pub blocks: u64,
    /// Bytes in a physical block: `block_bytes` or a multiple.
    pub physical_block_bytes: u32,
    /// Whether the target has it write-protected; `None` where it does not say.
    pub write_protected: Option<bool>,
}

impl Inquiry {
    /// Bytes in all.
    pub fn size(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes.into())
    }

    /// How `other`, which should be this unit, differs from it: in size, identity, or blocks.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if self.size() != other.size() || self.block_bytes != other.block_bytes {
            let block = |unit: &Self| format!("{} blocks of {} bytes", unit.blocks, unit.block_bytes);
            return Some(format!("it had {} and now has {}", block(self), block(other)));
        }
        if self.serial != other.serial {
            let serial = |unit: &Self| unit.serial.clone().unwrap_or_else(|| "none".into());
            return Some(format!("its serial number was {} and now is {}", serial(self), serial(other)));
        }
        if (&self.vendor, &self.product) != (&other.vendor, &other.product) {
            let (was, is) =
                (format!("{} {}", self.vendor, self.product), format!("{} {}", other.vendor, other.product));
            return Some(format!("it was a {was} and now is a {is}"));
        }
        None
    }
}

/// What was found out.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub inquiry: Inquiry,
    /// The most blocks in one command; at least 1.
    pub transfer_blocks_max: u32,
}

/// Asks a logical unit what it is.
pub(crate) async fn identify(link: &mut Link) -> Result<Identity, LinkError> {
    let standard = Cdb::Inquiry { page: None, len: 96 };
    let standard = required(link, &standard, 96, "INQUIRY").await?;
    let standard = Standard::parse(&standard).ok_or_else(|| unusable("what it says of itself is cut short"))?;
    if standard.qualifier != 0 {
        return Err(unusable("the target has no such logical unit; check the LUN"));
    }
    if !standard.has_blocks() {
        return Err(LinkError::Unusable(format!(
            "the logical unit is no disk but a {}; check the LUN",
            standard.kind()
        )));
    }
    until_ready(link).await?;
    let capacity = capacity(link).await?;
    let serial = optional(link, &Cdb::Inquiry { page: Some(0x80), len: 255 }, 255).await?;
    let limits = optional(link, &Cdb::Inquiry { page: Some(0xB0), len: 64 }, 64).await?;
    let mode = match standard.tells_write_protection() {
        // Page 0x3F is all pages: no disk is without it. Only the header in front of them is of interest.
        true => optional(link, &Cdb::ModeSense6 { page: 0x3F, len: 192 }, 192).await?,
        false => None,
    };
    let inquiry = describe(standard, capacity, serial.as_deref(), mode.as_deref()).map_err(LinkError::Unusable)?;
    let limit = limits.as_deref().and_then(BlockLimits::parse).map_or(0, |limits| limits.transfer_blocks_max);
    let fits = TRANSFER_LEN_MAX / inquiry.block_bytes;
    let transfer_blocks_max = if limit == 0 { fits } else { fits.min(limit) };
    Ok(Identity { inquiry, transfer_blocks_max })
}

fn describe(
    standard: Standard,
    capacity: Capacity,
    serial: Option<&[u8]>,
    mode: Option<&[u8]>,
) -> Result<Inquiry, String> {
    let Capacity { last_lba, block_bytes, physical_exponent } = capacity;
    if !BLOCK_BYTES.contains(&block_bytes) {
        return Err(format!("the logical unit claims blocks of {block_bytes} bytes"));
    }
    let blocks = last_lba.checked_add(1).filter(|blocks| blocks.checked_mul(block_bytes.into()).is_some());
    let blocks = blocks.ok_or_else(|| format!("the logical unit claims {last_lba} blocks of {block_bytes} bytes"))?;
    Ok(Inquiry {
        vendor: standard.vendor,
        product: standard.product,
        revision: standard.revision,
        serial: serial.and_then(scsi::serial_number),
        block_bytes,
        blocks,
        // At most 2^16 times 2^15.
        physical_block_bytes: block_bytes << physical_exponent,
        write_protected: mode.and_then(scsi::parse_write_protected),
    })
}

fn unusable(why: &str) -> LinkError {
    LinkError::Unusable(why.to_owned())
}

/// Waits until the logical unit can be read, having told all it had to tell. How long is for the caller to limit.
async fn until_ready(link: &mut Link) -> Result<(), LinkError> {
    loop {
        match attended(link, &Cdb::TestUnitReady, 0).await? {
            Outcome::Good(_) => return Ok(()),
            Outcome::Check(sense, _) if sense.unreadiness() == Some(Unreadiness::Transient) => sleep(PAUSE).await,
            Outcome::Check(Sense { key: SenseKey::NoSense | SenseKey::RecoveredError, .. }, _) => return Ok(()),
            other => return Err(refused("TEST UNIT READY", &other)),
        }
    }
}

async fn capacity(link: &mut Link) -> Result<Capacity, LinkError> {
    let long = optional(link, &Cdb::ReadCapacity16 { len: 32 }, 32).await?;
    if let Some(capacity) = long.as_deref().and_then(Capacity::parse16) {
        return Ok(capacity);
    }
    let short = required(link, &Cdb::ReadCapacity10, 8, "READ CAPACITY(10)").await?;
    let capacity = Capacity::parse10(&short).ok_or_else(|| unusable("its capacity is cut short"))?;
    if capacity.last_lba == u32::MAX.into() {
        return Err(unusable("the logical unit has too many blocks to say how many"));
    }
    Ok(capacity)
}

/// What a command returns that every logical unit knows.
async fn required(link: &mut Link, cdb: &Cdb, len: u32, name: &str) -> Result<Bytes, LinkError> {
    match attended(link, cdb, len).await? {
        Outcome::Good(data) => Ok(data),
        other => Err(refused(name, &other)),
    }
}

/// What a command returns; `None` where the logical unit does not know it. Any other trouble is an error: a serial
/// number that is merely not to be had now must not look as if there were none.
async fn optional(link: &mut Link, cdb: &Cdb, len: u32) -> Result<Option<Bytes>, LinkError> {
    match attended(link, cdb, len).await? {
        Outcome::Good(data) => Ok(Some(data)),
        Outcome::Check(Sense { key: SenseKey::IllegalRequest, .. }, _) => Ok(None),
        Outcome::Status(scsi::CHECK_CONDITION) => Ok(None),
        other => Err(refused("asking what it is", &other)),
    }
}

/// Repeats a command while the logical unit tells other things instead of carrying it out.
async fn attended(link: &mut Link, cdb: &Cdb, len: u32) -> Result<Outcome, LinkError> {
    for _ in 0..ATTENTIONS_MAX {
        match link.execute(cdb, len).await? {
            Outcome::Check(sense, _) if sense.key == SenseKey::UnitAttention || sense.deferred => {}
            Outcome::Status(scsi::BUSY | scsi::TASK_SET_FULL) => sleep(PAUSE).await,
            outcome => return Ok(outcome),
        }
    }
    Err(unusable("the logical unit is busy, or has something else to tell, each time it is asked"))
}

fn refused(name: &str, outcome: &Outcome) -> LinkError {
    LinkError::Unusable(match outcome {
        Outcome::Check(sense, _) => format!("{name} failed: {sense}"),
        Outcome::Status(status) => format!("{name} failed: {}", scsi::status_text(*status)),
        Outcome::Failed(code) => format!("{name} failed at the target (response {code:#04x})"),
        Outcome::Good(_) => format!("{name} failed"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> Inquiry {
        Inquiry {
            vendor: "IET".into(),
            product: "DISK".into(),
            revision: "1".into(),
            serial: Some("a".into()),
            block_bytes: 512,
            blocks: 8,
            physical_block_bytes: 4096,
            write_protected: None,
        }
    }

    #[test]
    fn another_disk_in_its_place_is_noticed() {
        let known = unit();
        assert_eq!(known.difference(&Inquiry { revision: "2".into(), write_protected: Some(true), ..unit() }), None);
        for other in [
            Inquiry { serial: Some("b".into()), ..unit() },
            Inquiry { serial: None, ..unit() },
            Inquiry { blocks: 9, ..unit() },
            Inquiry { block_bytes: 4096, blocks: 1, ..unit() },
            Inquiry { product: "DISC".into(), ..unit() },
        ] {
            assert!(known.difference(&other).is_some(), "{other:?}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let standard = || Standard::parse(&[0; 36]).unwrap();
        let of = |last_lba, block_bytes| {
            let capacity = Capacity { last_lba, block_bytes, physical_exponent: 15 };
            describe(standard(), capacity, None, None).map(|inquiry| inquiry.size())
        };
        assert_eq!(of(7, 512), Ok(4096));
        assert_eq!(of((1 << 48) - 2, 65536), Ok(((1 << 48) - 1) << 16));
        for (last_lba, block_bytes) in [(u64::MAX, 512), (1 << 55, 512), (7, 0), (7, 255), (7, 1 << 17)] {
            assert!(of(last_lba, block_bytes).is_err(), "{last_lba} {block_bytes}");
        }
    }
}
