//! Reading a file of unknown length, from its beginning on.

use cheetah_device::around::read_beginning;
use cheetah_device::{ByteRange, DynDevice, Result};
use crc_fast::{CrcAlgorithm, Digest};
use memchr::memmem;

/// Bytes that are read at a time: few where headers are far apart, and more the longer it is read on.
const WINDOW_BYTES_MIN: u64 = 4096;
const WINDOW_BYTES_MAX: u64 = 256 << 10;

/// The bytes of a device from an offset on, up to a limit. Keeps what it read last.
pub struct Reader<'a> {
    device: &'a DynDevice,
    begin: u64,
    len: u64,
    /// Where the window begins, from `begin` on.
    at: u64,
    window: Vec<u8>,
    bytes_read: u64,
}

impl<'a> Reader<'a> {
    pub fn new(device: &'a DynDevice, begin: u64, limit: u64) -> Self {
        let len = device.geometry().size.saturating_sub(begin).min(limit);
        Self { device, begin, len, at: 0, window: Vec::new(), bytes_read: 0 }
    }

    /// How many bytes were read, those that were read again included.
    pub const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// How many bytes there are.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Up to `len` bytes from `at` on, and at most as many as are read at a time: fewer at the end only. Bytes behind them are read ahead,
    /// and may be unreadable.
    pub async fn up_to(&mut self, at: u64, len: u64) -> Result<&[u8]> {
        let len = len.min(WINDOW_BYTES_MAX).min(self.len.saturating_sub(at));
        let (begin, end) = (self.at, self.at + self.window.len() as u64);
        if (at < begin || at + len > end) && len > 0 {
            let reads_on = (begin..=end).contains(&at) && !self.window.is_empty();
            let more = if reads_on { 2 * (end - begin) } else { 0 };
            let window = more.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX).max(len);
            let range = ByteRange::new(self.begin + at, window.min(self.len - at));
            let (bytes, failed) = read_beginning(self.device, range).await?;
            if let Some(error) = failed.filter(|_| (bytes.len() as u64) < len) {
                return Err(error);
            }
            self.bytes_read += bytes.len() as u64;
            (self.at, self.window) = (at, bytes);
        }
        let start = usize::try_from(at.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let end = start.saturating_add(len as usize);
        Ok(self.window.get(start..end).unwrap_or_default())
    }

    /// What is at hand from `at` on, or is read then: at least `least` bytes, fewer at the end only.
    async fn at_hand(&mut self, at: u64, least: u64) -> Result<&[u8]> {
        self.up_to(at, least).await?;
        let start = usize::try_from(at.saturating_sub(self.at)).unwrap_or(usize::MAX);
        Ok(self.window.get(start..).unwrap_or_default())
    }

    /// The next bytes: none at the end only.
    pub async fn some(&mut self, at: u64) -> Result<&[u8]> {
        self.at_hand(at, 1).await
    }

    /// Exactly `N` bytes; `None` if there are fewer.
    pub async fn array<const N: usize>(&mut self, at: u64) -> Result<Option<[u8; N]>> {
        Ok(self.up_to(at, N as u64).await?.first_chunk().copied())
    }

    /// The CRC-32 of a range; `None` if it is not there.
    pub async fn crc32(&mut self, begin: u64, len: u64) -> Result<Option<u32>> {
        let (mut sum, mut at) = (Digest::new(CrcAlgorithm::Crc32IsoHdlc), begin);
        while at < begin + len {
            let bytes = self.up_to(at, begin + len - at).await?;
            if bytes.is_empty() {
                return Ok(None);
            }
            sum.update(bytes);
            at += bytes.len() as u64;
        }
        // A sum of 32 bits.
        Ok(Some(sum.finalize() as u32))
    }

    /// Where `pattern` stands next, from `at` on and before `end`.
    pub async fn find(&mut self, pattern: &[u8], mut at: u64, end: u64) -> Result<Option<u64>> {
        loop {
            let bytes = self.at_hand(at, pattern.len() as u64).await?;
            let left = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            let bytes = bytes.get(..left).unwrap_or(bytes);
            if bytes.len() < pattern.len() {
                return Ok(None);
            }
            if let Some(place) = memmem::find(bytes, pattern) {
                return Ok(Some(at + place as u64));
            }
            at += (bytes.len() - pattern.len() + 1) as u64;
        }
    }
}

/// A number whose lowest byte comes first.
pub fn u16_le(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

pub fn u32_le(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub fn u64_le(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A number whose highest byte comes first.
pub fn u16_be(bytes: &[u8], at: usize) -> u16 {
    u16_le(bytes, at).swap_bytes()
}

pub fn u32_be(bytes: &[u8], at: usize) -> u32 {
    u32_le(bytes, at).swap_bytes()
}

pub fn u64_be(bytes: &[u8], at: usize) -> u64 {
    u64_le(bytes, at).swap_bytes()
}
