use proptest::prelude::*;
use sha1::Digest as _;

use super::{Digests, Md5Sha};

/// The digests of bytes that come in pieces; `None` where the processor lacks the instructions.
fn together(bytes: &[u8], cuts: &[usize]) -> Option<Digests> {
    let (mut hashes, mut from) = (Md5Sha::new()?, 0);
    for cut in cuts.iter().map(|cut| *cut.min(&bytes.len())).chain([bytes.len()]) {
        hashes.update(&bytes[from..cut]);
        from = cut;
    }
    Some(hashes.finalize())
}

fn of_the_libraries(bytes: &[u8]) -> Digests {
    Digests {
        md5: md5::Md5::digest(bytes).into(),
        sha1: sha1::Sha1::digest(bytes).into(),
        sha256: sha2::Sha256::digest(bytes).into(),
    }
}

/// Bytes without a pattern.
fn noise(len: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_u32;
    let bytes = std::iter::repeat_with(|| {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        word as u8
    });
    bytes.take(len).collect()
}

proptest! {
    #[test]
    fn bytes_in_any_pieces_have_the_hashes_of_the_libraries(
        bytes in prop::collection::vec(any::<u8>(), 0..700),
        mut cuts in prop::collection::vec(0..700_usize, 0..6),
    ) {
        cuts.sort_unstable();
        if let Some(digests) = together(&bytes, &cuts) {
            prop_assert_eq!(digests, of_the_libraries(&bytes));
        }
    }

    #[test]
    fn long_messages_in_any_pieces_have_the_hashes_of_the_libraries(
        len in 0..300_usize << 10,
        mut cuts in prop::collection::vec(0..300_usize << 10, 0..20),
    ) {
        cuts.sort_unstable();
        let bytes = noise(len);
        if let Some(digests) = together(&bytes, &cuts) {
            prop_assert_eq!(digests, of_the_libraries(&bytes));
        }
    }
}

#[test]
fn every_length_around_the_end_of_a_block_is_padded() {
    for len in 0..200 {
        let bytes = vec![7; len];
        if let Some(digests) = together(&bytes, &[]) {
            assert_eq!(digests, of_the_libraries(&bytes), "{len}");
        }
    }
}

/// "abc" and a million letters "a" (RFC 1321, appendix A.5; NIST, Secure Hash Standard Validation System, and its examples).
#[test]
fn the_examples_of_the_standards_have_their_digests() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (message, md5, sha1, sha256) in [
        (
            b"abc".to_vec(),
            "900150983cd24fb0d6963f7d28e17f72",
            "a9993e364706816aba3e25717850c26c9cd0d89d",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            vec![b'a'; 1_000_000],
            "7707d6ae4e027c70eea2a935c2296f21",
            "34aa973cd4c4daa4f61eeb2bdbad27316534016f",
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        ),
    ] {
        if let Some(digests) = together(&message, &[]) {
            assert_eq!([hex(&digests.md5), hex(&digests.sha1), hex(&digests.sha256)], [md5, sha1, sha256]);
        }
    }
}

#[test]
fn a_copy_goes_on_without_the_other() {
    let bytes = noise(1_000);
    if let Some(mut hashes) = Md5Sha::new() {
        hashes.update(&bytes[..500]);
        let mut copy = hashes.clone();
        copy.update(b"other");
        hashes.update(&bytes[500..]);
        assert_eq!(hashes.finalize(), of_the_libraries(&bytes));
        assert_eq!(copy.finalize(), of_the_libraries(&[&bytes[..500], b"other"].concat()));
    }
}
