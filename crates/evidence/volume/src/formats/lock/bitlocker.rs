//! The metadata of BitLocker, as "BitLocker Drive Encryption (BDE) format specification" describes it (J. Metz, libbde).

use cheetah_device::le::{u16_at, u32_at, u64_at};

use super::{Lock, text};
use crate::partition::guid_text;

const SIGNATURE: &[u8] = b"-FVE-FS-";
/// The places of a boot sector that may hold the identifier of a BitLocker volume: on fixed disks, and on removable ones
/// ("To Go"). The offsets of its metadata follow.
const IDENTIFIERS: [usize; 2] = [160, 424];
/// The length of the header of a block, and where the metadata begins in it.
const BLOCK_HEADER_BYTES: usize = 64;
const METADATA_HEADER_BYTES: usize = 48;
/// The longest metadata read, in bytes. They take some hundred.
const METADATA_BYTES_MAX: u32 = 64 << 10;
const ENTRY_HEADER_BYTES: usize = 8;
/// Kinds of entries, and of their values.
const VOLUME_MASTER_KEY: u16 = 2;
const DESCRIPTION: u16 = 7;
const KEY: u16 = 8;
const STRING: u16 = 2;

/// States of a volume.
const DECRYPTED: u16 = 1;
const ENCRYPTED: u16 = 4;

/// The length to read of a block of metadata, in bytes: nearly all are shorter.
pub(in super::super) const BLOCK_BYTES: u64 = 8 << 10;
/// The length of the longest one.
pub(in super::super) const BLOCK_BYTES_MAX: u64 = BLOCK_HEADER_BYTES as u64 + METADATA_BYTES_MAX as u64;

/// Whether a block says that it is longer than these bytes of it.
pub(in super::super) fn is_longer(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE) && BLOCK_HEADER_BYTES + u32_at(bytes, BLOCK_HEADER_BYTES) as usize > bytes.len()
}

/// Describes the volume by a block of metadata; `None` if the block is damaged.
pub(in super::super) fn parse(bytes: &[u8]) -> Option<Lock> {
    if !bytes.starts_with(SIGNATURE) {
        return None;
    }
    let metadata = bytes.get(BLOCK_HEADER_BYTES..)?;
    let (size, header) = (u32_at(metadata, 0), u32_at(metadata, 8));
    if header != METADATA_HEADER_BYTES as u32 || !(header..=METADATA_BYTES_MAX).contains(&size) {
        return None;
    }
    // Before the end of a small volume there may be less.
    let metadata = &metadata[..metadata.len().min(size as usize)];
    let (now, next) = (u16_at(bytes, 12), u16_at(bytes, 14));
    let state = match (now, next) {
        (DECRYPTED, DECRYPTED) => "not encrypted any more",
        _ if now != next || now != ENCRYPTED => "being encrypted or decrypted",
        _ => "",
    };
    let id = guid(metadata.get(16..32)?);
    let mut lock = Lock { id, cipher: cipher(u32_at(metadata, 36)), state, ..Lock::default() };
    for (kind, value, content) in entries(metadata.get(METADATA_HEADER_BYTES..).unwrap_or_default()) {
        match (kind, value) {
            (DESCRIPTION, STRING) => lock.label = utf16(content),
            (VOLUME_MASTER_KEY, KEY) if content.len() >= 28 => {
                lock.protect(protector(u16_at(content, 26)), guid(&content[..16]));
            }
            _ => {}
        }
    }
    Some(lock)
}

/// Returns the offsets of the blocks of metadata that the boot sector `head` names, in bytes from the start of the volume. The
/// first block that can be read describes the volume.
pub(in super::super) fn find(head: &[u8]) -> Vec<u64> {
    let is_fixed = head.get(3..11) == Some(SIGNATURE);
    let place = IDENTIFIERS[usize::from(!is_fixed)];
    // Vista names a cluster in the place of the file system's second table.
    let in_vista =
        u64_at(head, 56).saturating_mul(u64::from(u16_at(head, 11)) * u64::from(head.get(13).copied().unwrap_or(0)));
    let is_vista = is_fixed && head.get(160..176).is_none_or(|id| !is_known(id));
    let at =
        if is_vista { vec![in_vista] } else { (1..=3).map(|number| u64_at(head, place + 8 + 8 * number)).collect() };
    at.into_iter().filter(|at| *at > 0).collect()
}

/// Whether this is the identifier of a volume whose boot sector names its metadata.
fn is_known(id: &[u8]) -> bool {
    id.starts_with(b"\x3b\xd6\x67\x49") || id.starts_with(b"\x3b\x4d\xa8\x92")
}

/// Returns the kind, the kind of value and the content of each entry.
fn entries(mut bytes: &[u8]) -> impl Iterator<Item = (u16, u16, &[u8])> {
    std::iter::from_fn(move || {
        let size = usize::from(u16_at(bytes, 0));
        let entry = bytes.get(..size).filter(|entry| entry.len() >= ENTRY_HEADER_BYTES)?;
        bytes = &bytes[size..];
        Some((u16_at(entry, 2), u16_at(entry, 4), &entry[ENTRY_HEADER_BYTES..]))
    })
}

fn cipher(method: u32) -> String {
    match method & 0xffff {
        0 => String::new(),
        0x8000 => "AES-CBC 128 with diffuser".to_owned(),
        0x8001 => "AES-CBC 256 with diffuser".to_owned(),
        0x8002 => "AES-CBC 128".to_owned(),
        0x8003 => "AES-CBC 256".to_owned(),
        0x8004 => "AES-XTS 128".to_owned(),
        0x8005 => "AES-XTS 256".to_owned(),
        other => format!("method {other:#x}"),
    }
}

fn protector(kind: u16) -> String {
    match kind {
        0x0000 => "clear key".to_owned(),
        0x0100 => "TPM".to_owned(),
        0x0200 => "startup key".to_owned(),
        0x0500 => "TPM with PIN".to_owned(),
        0x0800 => "recovery password".to_owned(),
        0x2000 => "password".to_owned(),
        other => format!("protector of kind {other:#x}"),
    }
}

/// As Windows shows it, but in lower case.
fn guid(bytes: &[u8]) -> String {
    guid_text(bytes).to_lowercase()
}

fn utf16(bytes: &[u8]) -> String {
    let (units, _) = bytes.as_chunks();
    text(char::decode_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit))).map(|c| c.unwrap_or('\u{fffd}')))
}
