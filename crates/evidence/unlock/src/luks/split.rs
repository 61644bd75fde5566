//! The anti-forensic splitter of LUKS (section 2.4 of its specification). It spreads a key over many bytes. A key is lost when any of
//! them is overwritten, so wiping a slot destroys it even on a disk that keeps some of the old sectors.

use zeroize::Zeroizing;

use crate::derive::Hash;

/// Merges the stripes in `material` to the key that they were made of, which is as long as each of them.
pub(super) fn merge(hash: Hash, material: &[u8], key: &mut [u8]) {
    // In place: no other memory holds the key, or what it is made of.
    key.fill(0);
    let count = material.len() / key.len().max(1);
    for (nth, stripe) in material.chunks_exact(key.len().max(1)).enumerate() {
        key.iter_mut().zip(stripe).for_each(|(sum, byte)| *sum ^= byte);
        if nth + 1 < count {
            diffuse(hash, key);
        }
    }
}

/// Replaces each piece of the length of a digest by the digest of its number and itself.
fn diffuse(hash: Hash, bytes: &mut [u8]) {
    for (number, piece) in (0_u32..).zip(bytes.chunks_mut(hash.digest_bytes())) {
        let mut digest = Zeroizing::new([0; 64]);
        hash.digest(&[&number.to_be_bytes(), piece], &mut *digest);
        piece.copy_from_slice(&digest[..piece.len()]);
    }
}
