//! Entries, of which metadata and key files consist, and the keys in them.

use aes::Aes256;
use ccm::aead::AeadInOut as _;
use ccm::aead::consts::{U12, U16};
use ccm::{Ccm, KeyInit as _};
use cheetah_device::le::{u16_at, u32_at};
use cheetah_kit::locked::LockedBytes;

use crate::refusal::Result;

const HEADER_BYTES: usize = 8;
const NONCE_BYTES: usize = 12;
const MAC_BYTES: usize = 16;
/// The header of a key within an entry: its method.
const METHOD_BYTES: usize = 4;
/// The longest sealed key, in bytes. They have at most 76.
const SEALED_BYTES_MAX: usize = 512;
/// Bytes of a key that seals another.
pub(super) const KEY_BYTES: usize = 32;

/// Kinds of entries, and of their values.
pub(super) mod kind {
    pub const VOLUME_MASTER_KEY: u16 = 2;
    pub const VOLUME_KEY: u16 = 3;
    pub const STARTUP_KEY: u16 = 6;
    pub const VOLUME_HEADER: u16 = 15;
}
pub(super) mod value {
    pub const KEY: u16 = 1;
    pub const STRETCH_KEY: u16 = 3;
    pub const SEALED_KEY: u16 = 5;
    pub const VOLUME_MASTER_KEY: u16 = 8;
    pub const EXTERNAL_KEY: u16 = 9;
    pub const PLACE: u16 = 15;
}

/// One entry.
pub(super) struct Entry<'a> {
    pub kind: u16,
    pub value: u16,
    pub content: &'a [u8],
}

/// The entries one after the other, up to the first that is none.
pub(super) fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    std::iter::from_fn(move || {
        let size = usize::from(u16_at(bytes, 0));
        let entry = bytes.get(..size).filter(|entry| entry.len() >= HEADER_BYTES)?;
        bytes = &bytes[size..];
        Some(Entry { kind: u16_at(entry, 2), value: u16_at(entry, 4), content: &entry[HEADER_BYTES..] })
    })
}

/// A key that another one seals, with AES-CCM.
#[derive(Clone)]
pub(super) struct SealedKey {
    nonce: [u8; NONCE_BYTES],
    mac: [u8; MAC_BYTES],
    sealed: Vec<u8>,
}

/// A key and the method that it is for.
pub(super) struct MethodKey {
    pub method: u16,
    pub bytes: LockedBytes,
}

impl SealedKey {
    /// Parses the content of an entry; `None` if it is none of a sealed key.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let (nonce, rest) = content.split_first_chunk()?;
        let (mac, sealed) = rest.split_first_chunk()?;
        let is_short = sealed.len() <= SEALED_BYTES_MAX;
        is_short.then(|| Self { nonce: *nonce, mac: *mac, sealed: sealed.to_vec() })
    }

    /// Opens it with `key`; `None` if that is not the key, which the MAC says.
    pub fn open(&self, key: &[u8]) -> Result<Option<MethodKey>> {
        let Ok(ccm) = Ccm::<Aes256, U16, U12>::new_from_slice(key) else { return Ok(None) };
        let mut opened = LockedBytes::copy_of(&self.sealed)?;
        let is_right = ccm.decrypt_inout_detached(&self.nonce.into(), &[], (&mut *opened).into(), &self.mac.into());
        if is_right.is_err() {
            return Ok(None);
        }
        Ok(entries(&opened).find(|entry| entry.value == value::KEY).and_then(|entry| MethodKey::parse(entry.content)))
    }
}

impl MethodKey {
    /// Parses the content of an entry of a key.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let bytes = content.get(METHOD_BYTES..)?;
        // The upper half repeats the method, or holds flags.
        let method = (u32_at(content, 0) & 0xffff) as u16;
        Some(Self { method, bytes: LockedBytes::copy_of(bytes).ok()? })
    }
}
