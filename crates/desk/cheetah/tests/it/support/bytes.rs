//! Bytes to test with.

use super::MIB;

/// `len` bytes that repeat nowhere, except that every eighth 64 KiB is zero, as on real disks.
pub fn noise(len: u64, seed: u64) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(len).unwrap()];
    let mut state = seed | 1;
    for (index, page) in out.chunks_mut(64 << 10).enumerate() {
        if index % 8 == 5 {
            continue;
        }
        for word in page.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
    }
    out
}

/// An image with a partition table: 1 MiB, two partitions of `each` bytes of noise.
pub fn partitioned(each: u64) -> Vec<u8> {
    let mut image = vec![0; MIB as usize];
    for (index, (kind, start)) in [(7, MIB), (0x83, MIB + each)].into_iter().enumerate() {
        let entry = &mut image[446 + 16 * index..][..16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&u32::try_from(start / 512).unwrap().to_le_bytes());
        entry[12..16].copy_from_slice(&u32::try_from(each / 512).unwrap().to_le_bytes());
    }
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image.extend(noise(each, 1));
    image.extend(noise(each, 2));
    image
}
