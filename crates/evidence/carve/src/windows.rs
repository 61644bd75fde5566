//! Event logs and registry hives of Windows.

use cheetah_device::Result;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use crc_fast::checksum;

use crate::reader::{Reader, u16_le, u32_le};

/// Bytes of the first block of both.
const BLOCK_BYTES: u64 = 4096;
/// Bytes of a chunk of an event log.
const CHUNK_BYTES: u64 = 64 << 10;

/// The header of an event log has a checksum, and says how many chunks follow, each with its mark ("Windows XML Event Log (EVTX)",
/// libevtx).
pub async fn evtx(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let Some(header) = reader.array::<128>(0).await? else { return Ok(None) };
    // A sum of 32 bits.
    let is_right = checksum(Crc32IsoHdlc, &header[..120]) as u32 == u32_le(&header, 124)
        && u64::from(u16_le(&header, 40)) == BLOCK_BYTES;
    let (mut at, end) = (BLOCK_BYTES, BLOCK_BYTES + u64::from(u16_le(&header, 42)) * CHUNK_BYTES);
    if !is_right || end == BLOCK_BYTES {
        return Ok(None);
    }
    while at < end {
        if reader.array::<8>(at).await? != Some(*b"ElfChnk\0") {
            return Ok(None);
        }
        at += CHUNK_BYTES;
    }
    Ok(Some(end))
}

/// The first block of a hive has a checksum, and says how many bytes of bins follow, each with its place and length ("Windows registry
/// file format", M. Suhanov).
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
    let (mut at, end) = (BLOCK_BYTES, BLOCK_BYTES + bins);
    if sum != u32_le(&block, 508) || bins == 0 || end > reader.len() {
        return Ok(None);
    }
    while at < end {
        let Some(bin) = reader.array::<12>(at).await? else { return Ok(None) };
        let len = u64::from(u32_le(&bin, 8));
        let is_bin = bin.starts_with(b"hbin")
            && u64::from(u32_le(&bin, 4)) == at - BLOCK_BYTES
            && len > 0
            && len.is_multiple_of(BLOCK_BYTES);
        if !is_bin {
            return Ok(None);
        }
        at += len;
    }
    Ok(Some(end).filter(|_| at == end))
}
