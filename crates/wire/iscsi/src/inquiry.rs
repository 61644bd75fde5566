//! Identifying a logical unit, and recognising it after a reconnection.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::connection::{ConnectionError, IscsiConnection};
use crate::scsi::{self, BlockLimits, Capacity, Cdb, NotReadyReason, Sense, SenseKey, Standard};
use crate::session::Outcome;

/// The number of times a command is repeated while the logical unit reports unit attentions instead.
const ATTENTIONS_MAX: usize = 16;
/// The pause between two readiness checks.
const PAUSE: Duration = Duration::from_millis(200);
/// The block sizes accepted as plausible.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 256..=65536;
/// The maximum number of bytes a command reads: large enough to make the cost of a command negligible, small enough
/// that a bad block fails few others.
const TRANSFER_LEN_MAX: u32 = 1 << 20;

/// The properties a logical unit reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// The vendor.
    pub vendor: String,
    /// The product name.
    pub product: String,
    /// The product revision.
    pub revision: String,
    /// The serial number (VPD page 0x80), if it has one.
    pub serial: Option<String>,
    /// Bytes in a logical block: 256 to 65536.
    pub block_bytes: u32,
    /// The number of logical blocks; their total size in bytes fits into 64 bits.
    pub blocks: u64,
    /// Bytes in a physical block: `block_bytes` or a multiple.
    pub physical_block_bytes: u32,
    /// Whether the target write-protects it; `None` if the target does not report it.
    pub write_protected: Option<bool>,
}

impl Inquiry {
    /// Returns the total size in bytes.
    pub fn size(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes.into())
    }

    /// Describes the first difference to `other` in size, identity or block size; `None` if there is none.
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

/// A logical unit's properties and limits.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub inquiry: Inquiry,
    /// The maximum number of blocks in one command; at least 1.
    pub transfer_blocks_max: u32,
}

/// Reads a logical unit's identity and limits.
pub(crate) async fn identify(connection: &mut IscsiConnection) -> Result<Identity, ConnectionError> {
    let standard = Cdb::Inquiry { page: None, len: 96 };
    let standard = required(connection, &standard, 96, "INQUIRY").await?;
    let standard = Standard::parse(&standard).ok_or_else(|| unusable("its INQUIRY data is cut short"))?;
    if standard.qualifier != 0 {
        return Err(unusable("the target has no such logical unit; check the LUN"));
    }
    if !standard.has_blocks() {
        return Err(ConnectionError::Unusable(format!(
            "the logical unit is not a disk but a {}; check the LUN",
            standard.kind()
        )));
    }
    until_ready(connection).await?;
    let capacity = capacity(connection).await?;
    let serial = optional(connection, &Cdb::Inquiry { page: Some(0x80), len: 255 }, 255).await?;
    let limits = optional(connection, &Cdb::Inquiry { page: Some(0xB0), len: 64 }, 64).await?;
    let mode = match standard.tells_write_protection() {
        // Page 0x3F requests all pages, so every disk supports it. Only the header before them is used.
        true => optional(connection, &Cdb::ModeSense6 { page: 0x3F, len: 192 }, 192).await?,
        false => None,
    };
    let inquiry = describe(standard, capacity, serial.as_deref(), mode.as_deref())?;
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
) -> Result<Inquiry, ConnectionError> {
    let Capacity { last_lba, block_bytes, physical_exponent } = capacity;
    if !BLOCK_BYTES.contains(&block_bytes) {
        return Err(unusable(&format!("the logical unit claims blocks of {block_bytes} bytes")));
    }
    let blocks = last_lba.checked_add(1).filter(|blocks| blocks.checked_mul(block_bytes.into()).is_some());
    let claimed = || unusable(&format!("the logical unit claims {last_lba} blocks of {block_bytes} bytes"));
    let blocks = blocks.ok_or_else(claimed)?;
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

fn unusable(why: &str) -> ConnectionError {
    ConnectionError::Unusable(why.to_owned())
}

/// Waits until the logical unit is ready and has reported its pending unit attentions. The caller sets the time limit.
async fn until_ready(connection: &mut IscsiConnection) -> Result<(), ConnectionError> {
    loop {
        match attended(connection, &Cdb::TestUnitReady, 0).await? {
            Outcome::Good(_) => return Ok(()),
            Outcome::Check(sense, _) if sense.not_ready_reason() == Some(NotReadyReason::Transient) => {
                sleep(PAUSE).await
            }
            Outcome::Check(Sense { key: SenseKey::NoSense | SenseKey::RecoveredError, .. }, _) => return Ok(()),
            other => return Err(refused("TEST UNIT READY", &other)),
        }
    }
}

async fn capacity(connection: &mut IscsiConnection) -> Result<Capacity, ConnectionError> {
    let long = optional(connection, &Cdb::ReadCapacity16 { len: 32 }, 32).await?;
    if let Some(capacity) = long.as_deref().and_then(Capacity::parse16) {
        return Ok(capacity);
    }
    let short = required(connection, &Cdb::ReadCapacity10, 8, "READ CAPACITY(10)").await?;
    let capacity = Capacity::parse10(&short).ok_or_else(|| unusable("its capacity is cut short"))?;
    if capacity.last_lba == u32::MAX.into() {
        return Err(unusable("the logical unit has more blocks than it can report"));
    }
    Ok(capacity)
}

/// Runs a command that every logical unit supports, and returns its data.
async fn required(connection: &mut IscsiConnection, cdb: &Cdb, len: u32, name: &str) -> Result<Bytes, ConnectionError> {
    match attended(connection, cdb, len).await? {
        Outcome::Good(data) => Ok(data),
        other => Err(refused(name, &other)),
    }
}

/// Runs a command and returns its data; `None` if the logical unit does not support it. Any other failure is an error:
/// a serial number that cannot be read now must not pass for a missing one.
async fn optional(connection: &mut IscsiConnection, cdb: &Cdb, len: u32) -> Result<Option<Bytes>, ConnectionError> {
    match attended(connection, cdb, len).await? {
        Outcome::Good(data) => Ok(Some(data)),
        Outcome::Check(Sense { key: SenseKey::IllegalRequest, .. }, _) => Ok(None),
        Outcome::Status(scsi::CHECK_CONDITION) => Ok(None),
        other => Err(refused("INQUIRY", &other)),
    }
}

/// Repeats a command while the logical unit reports unit attentions instead of executing it.
async fn attended(connection: &mut IscsiConnection, cdb: &Cdb, len: u32) -> Result<Outcome, ConnectionError> {
    for _ in 0..ATTENTIONS_MAX {
        match connection.execute(cdb, len).await? {
            Outcome::Check(sense, _) if sense.key == SenseKey::UnitAttention || sense.deferred => {}
            Outcome::Status(scsi::BUSY | scsi::TASK_SET_FULL) => sleep(PAUSE).await,
            outcome => return Ok(outcome),
        }
    }
    Err(unusable("the logical unit is busy, or reports a unit attention, at every attempt"))
}

fn refused(name: &str, outcome: &Outcome) -> ConnectionError {
    ConnectionError::Unusable(match outcome {
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
        assert_eq!(of(7, 512).unwrap(), 4096);
        assert_eq!(of((1 << 48) - 2, 65536).unwrap(), ((1 << 48) - 1) << 16);
        for (last_lba, block_bytes) in [(u64::MAX, 512), (1 << 55, 512), (7, 0), (7, 255), (7, 1 << 17)] {
            assert!(of(last_lba, block_bytes).is_err(), "{last_lba} {block_bytes}");
        }
    }
}
