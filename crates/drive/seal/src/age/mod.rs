//! The `age` file format, version 1, for short secrets: `age` and `rage` can read what this writes.
//!
//! Specified at <https://c2sp.org/age>. Each file has one stanza, for an X25519 recipient or for a passphrase, and a
//! payload of one chunk.

mod header;
mod keys;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::{Zeroize as _, Zeroizing};

use crate::error::SealError;
use crate::key::{derive, random};
use header::Header;
pub use keys::{Identity, Recipient};

/// The largest payload that is wrapped or unwrapped, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1024;
/// The largest file that is read, in bytes.
pub const FILE_BYTES_MAX: usize = 4096;
const FILE_KEY_BYTES: usize = 16;
const NONCE_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// The nonce of the first chunk of a payload if it is the last, too.
const ONLY_CHUNK: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// The key of one file, which its stanza wraps.
type FileKey = Zeroizing<[u8; FILE_KEY_BYTES]>;

/// Encrypts a short secret to a recipient.
pub fn wrap(secret: &[u8], recipient: &Recipient) -> Result<Vec<u8>, SealError> {
    if secret.is_empty() || secret.len() > PAYLOAD_BYTES_MAX {
        return Err(SealError::Malformed("a secret is empty or too long to be wrapped"));
    }
    let file_key: FileKey = random()?;
    let mut file = Header::new(recipient.wrap(&file_key)?).encode(&file_key)?;
    let nonce = random::<NONCE_BYTES>()?;
    file.extend_from_slice(&*nonce);
    let start = file.len();
    file.extend_from_slice(secret);
    let tag = payload_key(&file_key, &*nonce)?.seal_in_place_separate_tag(
        Nonce::assume_unique_for_key(ONLY_CHUNK),
        Aad::empty(),
        file.get_mut(start..).unwrap_or_default(),
    );
    match tag {
        Ok(tag) => file.extend_from_slice(tag.as_ref()),
        Err(_) => {
            file.zeroize();
            return Err(SealError::Malformed("a secret cannot be encrypted"));
        }
    }
    Ok(file)
}

/// Decrypts a file; `None` if it is not for this identity.
///
/// # Errors
///
/// If it is no such file, or was changed.
pub fn unwrap(file: &[u8], identity: &Identity) -> Result<Option<Zeroizing<Vec<u8>>>, SealError> {
    if file.len() > FILE_BYTES_MAX {
        return Err(SealError::Malformed("a wrapped key is too long"));
    }
    let (header, payload) = Header::parse(file)?;
    let Some(file_key) = identity.unwrap(&header.stanza)? else { return Ok(None) };
    header.verify(&file_key)?;
    let Some((nonce, sealed)) = payload.split_at_checked(NONCE_BYTES) else { return Err(CUT_OFF) };
    if sealed.len() <= TAG_BYTES || sealed.len() > PAYLOAD_BYTES_MAX + TAG_BYTES {
        return Err(CUT_OFF);
    }
    let mut sealed = Zeroizing::new(sealed.to_vec());
    let key = payload_key(&file_key, nonce)?;
    let opened = key.open_in_place(Nonce::assume_unique_for_key(ONLY_CHUNK), Aad::empty(), &mut sealed);
    let len = opened.map_err(|_| CHANGED)?.len();
    sealed.truncate(len);
    Ok(Some(sealed))
}

const CUT_OFF: SealError =
    SealError::Malformed("a wrapped key is cut off, or in a form that this version does not read");
const CHANGED: SealError = SealError::NotAuthentic("a wrapped key was changed since it was made");

fn payload_key(file_key: &FileKey, nonce: &[u8]) -> Result<LessSafeKey, SealError> {
    chacha(&*derive(&**file_key, nonce, &[b"payload"])?)
}

fn chacha(key: &[u8]) -> Result<LessSafeKey, SealError> {
    UnboundKey::new(&CHACHA20_POLY1305, key).map(LessSafeKey::new).map_err(|_| CUT_OFF)
}

/// Encrypts a file key under a key that is used once.
fn seal_file_key(key: &[u8], file_key: &FileKey) -> Result<Vec<u8>, SealError> {
    let mut body = file_key.to_vec();
    let sealed = chacha(key)?.seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut body);
    if sealed.is_err() {
        body.zeroize();
        return Err(CUT_OFF);
    }
    Ok(body)
}

/// Decrypts a file key; `None` if it was encrypted under another key.
fn open_file_key(key: &[u8], body: &[u8]) -> Result<Option<FileKey>, SealError> {
    // Checked first: otherwise, one body could open under several keys.
    if body.len() != FILE_KEY_BYTES + TAG_BYTES {
        return Err(CUT_OFF);
    }
    let mut body = Zeroizing::new(body.to_vec());
    let opened = chacha(key)?.open_in_place(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut body);
    let Ok(opened) = opened else { return Ok(None) };
    let mut file_key = Zeroizing::new([0; FILE_KEY_BYTES]);
    file_key.copy_from_slice(opened);
    Ok(Some(file_key))
}

#[cfg(test)]
mod tests;
