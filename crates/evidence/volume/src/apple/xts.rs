//! AES with 128 bits in XTS (IEEE 1619), for metadata whose key lies beside them: it hides nothing, so nothing is wiped here.

use aes::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};
use aes::{Aes128, Block};

const BLOCK_BYTES: usize = 16;

/// The keys of the data and of the tweaks, expanded.
pub(super) struct Xts {
    data: Aes128,
    tweak: Aes128,
}

impl Xts {
    pub fn new(data: &[u8; 16], tweak: &[u8; 16]) -> Self {
        Self { data: Aes128::new(data.into()), tweak: Aes128::new(tweak.into()) }
    }

    /// Decrypts whole units, which are numbered from `first` on.
    pub fn decrypt(&self, unit_bytes: usize, first: u64, bytes: &mut [u8]) {
        for (nth, unit) in bytes.chunks_exact_mut(unit_bytes).enumerate() {
            self.decrypt_unit(first.wrapping_add(nth as u64), unit);
        }
    }

    /// Decrypts a unit of at least one block. If the last block is not whole, it has stolen bytes of the one before.
    pub fn decrypt_unit(&self, number: u64, unit: &mut [u8]) {
        let (whole, rest) = (unit.len() - unit.len() % BLOCK_BYTES, unit.len() % BLOCK_BYTES);
        let mut first = Block::from(u128::from(number).to_le_bytes());
        self.tweak.encrypt_block(&mut first);
        let mut tweak = u128::from_le_bytes(first.0);
        let (start, last) = unit.split_at_mut(whole);
        let usual = if rest == 0 { whole } else { whole.saturating_sub(BLOCK_BYTES) };
        for block in Block::slice_as_chunks_mut(&mut start[..usual]).0 {
            self.decrypt_block(tweak, block);
            tweak = times_x(tweak);
        }
        if let Some(place) = start[usual..].first_chunk_mut::<BLOCK_BYTES>() {
            let mut block = Block::from(*place);
            self.decrypt_block(times_x(tweak), &mut block);
            block.0[..rest].swap_with_slice(last);
            self.decrypt_block(tweak, &mut block);
            *place = block.0;
        }
    }

    fn decrypt_block(&self, tweak: u128, block: &mut Block) {
        add(tweak, block);
        self.data.decrypt_block(block);
        add(tweak, block);
    }
}

fn add(tweak: u128, block: &mut Block) {
    block.0 = (u128::from_le_bytes(block.0) ^ tweak).to_le_bytes();
}

/// The product with x in the field of 2^128 elements.
fn times_x(tweak: u128) -> u128 {
    (tweak << 1) ^ (0x87 * (tweak >> 127))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    /// Vectors 15 and 4 of IEEE 1619, and one that another program made with the key of vector 15.
    #[test]
    fn units_of_any_length_are_decrypted() {
        let stealing = "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0bfbebdbcbbbab9b8b7b6b5b4b3b2b1b0";
        let vectors = [
            (stealing, 0x12_3456_789a, "6c1625db4671522d3d7599601de7ca09ed"),
            (stealing, 0x12_3456_789a, "d05bc090a8e04f1b3d3ecdd5baec0fd4edbf9dace45d6f6a7306e64be5dd82"),
            (
                "2718281828459045235360287471352631415926535897932384626433832795",
                0,
                "27a7479befa1d476489f308cd4cfa6e2a96e4bbe3208ff25287dd3819616e89c",
            ),
        ];
        for (key, number, sealed) in vectors {
            let (key, mut unit) = (hex(key), hex(sealed));
            let xts = Xts::new(key[..16].try_into().unwrap(), key[16..].try_into().unwrap());
            xts.decrypt_unit(number, &mut unit);
            assert_eq!(unit, (0..unit.len() as u8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn units_are_numbered() {
        let (xts, sealed) = (Xts::new(&[1; 16], &[2; 16]), [7; 64]);
        let (mut together, mut second) = (sealed, sealed);
        xts.decrypt(32, 5, &mut together);
        xts.decrypt_unit(6, &mut second[..32]);
        assert!(together[32..] == second[..32] && together[..32] != second[..32]);
    }
}
