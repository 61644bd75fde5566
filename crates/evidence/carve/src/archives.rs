//! ZIP, gzip and 7z.

use cheetah_device::Result;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use crc_fast::checksum;
use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::reader::{Reader, u16_le, u32_le, u64_le};

/// What the parts of a ZIP begin with: a file, its sums behind it, an entry of the directory, and the end.
const ZIP_FILE: [u8; 4] = *b"PK\x03\x04";
pub(crate) const ZIP_SUMS: &[u8] = b"PK\x07\x08";
const ZIP_ENTRY: [u8; 4] = *b"PK\x01\x02";
const ZIP_END: [u8; 4] = *b"PK\x05\x06";
/// Bytes of these parts without names and the like.
pub(crate) const ZIP_FILE_BYTES: u64 = 30;
const ZIP_ENTRY_BYTES: u64 = 46;
const ZIP_END_BYTES: u64 = 22;
/// The flag of a file whose length stands behind it.
pub(crate) const ZIP_STREAMED: u16 = 8;
/// The most files of an archive without ZIP64.
const ZIP_FILES_MAX: usize = 65_535;

/// Files of ZIP archives, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZipChain {
    /// Where they end.
    pub end: u64,
    /// Where the archive begins that ends behind them, if there is a directory that says so.
    pub archive: Option<u64>,
}

/// Files one after the other, then the directory, which has as many entries, and the end, which says where the directory lies.
pub async fn zip(reader: &mut Reader<'_>) -> Result<std::result::Result<u64, ZipChain>> {
    let (mut at, mut files) = (0, 0);
    while files < ZIP_FILES_MAX && reader.array::<4>(at).await? == Some(ZIP_FILE) {
        let Some(end) = zip_file_end(reader, at).await? else { break };
        at = end;
        files += 1;
    }
    let (directory, mut entries) = (at, 0);
    while entries < ZIP_FILES_MAX {
        let entry = reader.array::<{ ZIP_ENTRY_BYTES as usize }>(at).await?;
        let Some(entry) = entry.filter(|entry| entry.starts_with(&ZIP_ENTRY)) else { break };
        at += ZIP_ENTRY_BYTES + [28, 30, 32].map(|place| u64::from(u16_le(&entry, place))).iter().sum::<u64>();
        entries += 1;
    }
    let end = reader.array::<{ ZIP_END_BYTES as usize }>(at).await?;
    let Some(end) = end.filter(|end| end.starts_with(&ZIP_END)) else {
        return Ok(Err(ZipChain { end: directory, archive: None }));
    };
    let is_directory =
        entries > 0 && usize::from(u16_le(&end, 10)) == entries && directory + u64::from(u32_le(&end, 12)) == at;
    let archive = directory.checked_sub(u64::from(u32_le(&end, 16))).filter(|_| is_directory);
    if archive == Some(0) && entries == files {
        return Ok(Ok(at + ZIP_END_BYTES + u64::from(u16_le(&end, 20))));
    }
    Ok(Err(ZipChain { end: directory, archive }))
}

/// Where a file ends.
async fn zip_file_end(reader: &mut Reader<'_>, at: u64) -> Result<Option<u64>> {
    let Some(head) = reader.array::<{ ZIP_FILE_BYTES as usize }>(at).await? else { return Ok(None) };
    let data = at + ZIP_FILE_BYTES + u64::from(u16_le(&head, 26)) + u64::from(u16_le(&head, 28));
    if u16_le(&head, 6) & ZIP_STREAMED == 0 {
        return Ok(Some(data + u64::from(u32_le(&head, 18))));
    }
    let mut from = data;
    loop {
        let Some(sums) = reader.find(ZIP_SUMS, from, u64::MAX).await? else { return Ok(None) };
        let Some(bytes) = reader.array::<16>(sums).await? else { return Ok(None) };
        if u64::from(u32_le(&bytes, 8)) == sums - data {
            return Ok(Some(sums + 16));
        }
        from = sums + 1;
    }
}

/// Flags of gzip's header.
const HEADER_SUM: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
/// The longest content that is unpacked, in bytes: sums confirm a file at its end only.
const UNPACKED_BYTES_MAX: u64 = 4 << 30;
/// The longest name or comment in a header.
const TEXT_BYTES_MAX: u64 = 4096;

/// One member after the other, each unpacked and compared with its checksum and its length.
pub async fn gzip(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let (mut end, mut unpacked) = (None, 0);
    loop {
        let begin = end.unwrap_or(0);
        let member = match gzip_header(reader, begin).await? {
            Some(data) => gzip_member(reader, data, &mut unpacked).await?,
            None => None,
        };
        // What follows a member may be another one.
        match member {
            Some(next) => end = Some(next),
            None => return Ok(end),
        }
    }
}

/// Where the data of a member begin.
pub(crate) async fn gzip_header(reader: &mut Reader<'_>, begin: u64) -> Result<Option<u64>> {
    let Some(head) = reader.array::<10>(begin).await? else { return Ok(None) };
    let ([0x1f, 0x8b, 8, flags @ 0..=0x1f], mut at) = ([head[0], head[1], head[2], head[3]], begin + 10) else {
        return Ok(None);
    };
    if flags & EXTRA != 0 {
        let Some(len) = reader.array::<2>(at).await? else { return Ok(None) };
        at += 2 + u64::from(u16_le(&len, 0));
    }
    for _ in 0..(flags & (NAME | COMMENT)).count_ones() {
        let Some(end) = reader.find(&[0], at, at + TEXT_BYTES_MAX).await? else { return Ok(None) };
        at = end + 1;
    }
    Ok(Some(if flags & HEADER_SUM != 0 { at + 2 } else { at }))
}

/// Where a member ends whose data begin at `at`.
async fn gzip_member(reader: &mut Reader<'_>, mut at: u64, unpacked: &mut u64) -> Result<Option<u64>> {
    let (mut inflater, mut sum, mut out) = (Decompress::new(false), Crc::new(), vec![0; 64 << 10]);
    loop {
        let packed = reader.some(at).await?;
        let (read, written) = (inflater.total_in(), inflater.total_out());
        let Ok(status) = inflater.decompress(packed, &mut out, FlushDecompress::None) else { return Ok(None) };
        let (read, written) = (inflater.total_in() - read, inflater.total_out() - written);
        // Not truncated: no more than the buffer has.
        sum.update(&out[..written as usize]);
        at += read;
        *unpacked += written;
        match status {
            Status::StreamEnd => break,
            _ if read == 0 && written == 0 || *unpacked > UNPACKED_BYTES_MAX => return Ok(None),
            _ => {}
        }
    }
    let Some(trailer) = reader.array::<8>(at).await? else { return Ok(None) };
    // The length counts modulo 2^32.
    let is_right = u32_le(&trailer, 0) == sum.sum() && u32_le(&trailer, 4) == inflater.total_out() as u32;
    Ok(Some(at + 8).filter(|_| is_right))
}

/// The first header of a 7z says where the second one is, which ends it. Both have checksums.
pub async fn seven_zip(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let Some(first) = reader.array::<32>(0).await? else { return Ok(None) };
    // Sums of 32 bits.
    if checksum(Crc32IsoHdlc, &first[12..]) as u32 != u32_le(&first, 8) {
        return Ok(None);
    }
    let (after, len) = (u64_le(&first, 12), u64_le(&first, 20));
    if after > reader.len() || len > reader.len() || len == 0 {
        return Ok(None);
    }
    let begin = 32 + after;
    // Nothing is read of a header that does not fit.
    if begin + len > reader.len() {
        return Ok(None);
    }
    let sum = reader.crc32(begin, len).await?;
    Ok(Some(begin + len).filter(|_| sum == Some(u32_le(&first, 28))))
}
