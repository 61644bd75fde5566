//! Event logs and registry hives of Windows.

use cheetah_device::Result;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use crc_fast::checksum;

use crate::reader::{Reader, u16_le, u32_le};

/// Bytes of the first block of both.
const BLOCK_BYTES: u64 = 4096;
/// Bytes of a chunk of an event log.
const CHUNK_BYTES: u64 = 64 << 10;

/// The header of an event log has a checksum, and says how many chunks follow ("Windows XML Event Log (EVTX)", libevtx).
pub async fn evtx(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let Some(header) = reader.array::<128>(0).await? else { return Ok(None) };
    // A sum of 32 bits.
    let is_right = checksum(Crc32IsoHdlc, &header[..120]) as u32 == u32_le(&header, 124)
        && u64::from(u16_le(&header, 40)) == BLOCK_BYTES
        && reader.array::<8>(BLOCK_BYTES).await? == Some(*b"ElfChnk\0");
    Ok(Some(BLOCK_BYTES + u64::from(u16_le(&header, 42)) * CHUNK_BYTES).filter(|_| is_right))
}

/// The first block of a hive has a checksum, and says how many bytes of bins follow ("Windows registry file format", M. Suhanov).
pub async fn registry(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let Some(block) = reader.array::<512>(0).await? else { return Ok(None) };
    let sum = block[..508].as_chunks::<4>().0.iter().fold(0, |sum, word| sum ^ u32::from_le_bytes(*word));
    // Two values are replaced.
    let sum = match sum {
        0 => 1,
        u32::MAX => u32::MAX - 1,
        sum => sum,
    };
    let bins = u64::from(u32_le(&block, 40));
    let is_right = sum == u32_le(&block, 508)
        && bins > 0
        && bins.is_multiple_of(BLOCK_BYTES)
        && reader.array::<4>(BLOCK_BYTES).await? == Some(*b"hbin");
    Ok(Some(BLOCK_BYTES + bins).filter(|_| is_right))
}
