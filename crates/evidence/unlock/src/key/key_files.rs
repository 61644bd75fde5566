//! Key files of VeraCrypt and TrueCrypt, which are mixed into a password (VeraCrypt, "Keyfiles": a pool of sums that the CRC-32 of the
//! content so far is added to, byte by byte).

use std::fs::File;
use std::io::Read as _;

use cheetah_error::{Error, Result};
use cheetah_kit::locked::LockedBytes;

use super::{VERACRYPT, VERACRYPT_BYTES_MAX};

/// What begins the path of a key file among the options of a line.
const KEY_FILE: &[u8] = b"keyfile=";
/// The part of a key file that counts, in bytes.
const COUNTED_BYTES_MAX: u64 = 1 << 20;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 4096;
/// The longest password that has the short pool, in bytes; the pools.
const SHORT_BYTES_MAX: usize = 64;
const SHORT_POOL_BYTES: usize = 64;
const LONG_POOL_BYTES: usize = 128;

/// A line that names key files, `veracrypt,keyfile=PATH:PASSWORD`, as the same without them: they are mixed into its password. `None`
/// for another line.
pub(super) fn mixed(line: &[u8]) -> Result<Option<LockedBytes>> {
    let Some(rest) = line.strip_prefix(VERACRYPT) else { return Ok(None) };
    let Some(colon) = rest.iter().position(|byte| *byte == b':') else { return Ok(None) };
    let (options, password) = (rest[..colon].split(|byte| *byte == b','), &rest[colon + 1..]);
    let (mut kept, mut files) = (VERACRYPT.to_vec(), Vec::new());
    for option in options.skip(1) {
        match option.strip_prefix(KEY_FILE) {
            Some(path) => files.push(path),
            None => kept.extend([&b","[..], option].concat()),
        }
    }
    if files.is_empty() || password.len() > VERACRYPT_BYTES_MAX || !rest.starts_with(b",") {
        return Ok(None);
    }
    kept.push(b':');
    let pool_bytes = if password.len() <= SHORT_BYTES_MAX { SHORT_POOL_BYTES } else { LONG_POOL_BYTES };
    let mut line = LockedBytes::zeroed(kept.len() + pool_bytes).map_err(no_memory)?;
    let (start, pool) = line.split_at_mut(kept.len());
    start.copy_from_slice(&kept);
    files.iter().try_for_each(|path| add(path, pool))?;
    pool.iter_mut().zip(password).for_each(|(sum, byte)| *sum = sum.wrapping_add(*byte));
    Ok(Some(line))
}

/// Adds a key file to the pool.
fn add(path: &[u8], pool: &mut [u8]) -> Result<()> {
    let name = String::from_utf8_lossy(path).into_owned();
    let failed = |error: std::io::Error| Error::io(format!("reading the key file {name}"), &error).as_misuse();
    let mut file = File::open(&name).map_err(failed)?.take(COUNTED_BYTES_MAX);
    let mut piece = LockedBytes::zeroed(PIECE_BYTES).map_err(no_memory)?;
    let (mut crc, mut at) = (u32::MAX, 0);
    loop {
        let read = file.read(&mut piece).map_err(failed)?;
        if read == 0 {
            return Ok(());
        }
        for byte in &piece[..read] {
            crc = crc32_step(crc, *byte);
            for part in crc.to_be_bytes() {
                pool[at] = pool[at].wrapping_add(part);
                at = (at + 1) % pool.len();
            }
        }
    }
}

/// The register of a CRC-32 after one more byte.
fn crc32_step(crc: u32, byte: u8) -> u32 {
    (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
}

fn no_memory(error: std::io::Error) -> Error {
    Error::io("taking memory for a key", &error)
}
