//! Ciphers against published vectors, and every way to divide a read against one.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn xts_cipher(key: &[u8], iv: Iv, numbering: Numbering, sector_bytes: u64) -> SectorCipher {
    let (data, tweak) = key.split_at(key.len() / 2);
    let mode = Mode::Xts { data: Aes::new(data).unwrap(), tweak: Aes::new(tweak).unwrap(), iv };
    SectorCipher::new(mode, numbering, sector_bytes).unwrap()
}

const BY_512: Numbering = Numbering { unit_bytes: 512, first: 0 };

#[test]
fn a_vector_of_ieee_1619_is_decrypted() {
    // Vector 4: its plaintext is 00 01 … ff twice, its data unit number 0. Of the ciphertext, the first and last blocks.
    let key = hex("2718281828459045235360287471352631415926535897932384626433832795");
    let cipher = xts_cipher(&key, Iv::Plain64, BY_512, 512);
    let mut sector = vec![0; 512];
    sector[..32].copy_from_slice(&hex("27a7479befa1d476489f308cd4cfa6e2a96e4bbe3208ff25287dd3819616e89c"));
    cipher.decrypt(0, &mut sector);
    assert_eq!(sector[..32], (0..32).collect::<Vec<u8>>());
}

#[test]
fn cbc_decrypts_a_vector_of_nist() {
    // SP 800-38A, F.2.2: the IV is not a number, so the first block is checked without it.
    let data = Aes::new(&hex("2b7e151628aed2a6abf7158809cf4f3c")).unwrap();
    let cipher = SectorCipher::new(Mode::Cbc { data, iv: Iv::Plain64 }, BY_512, 512).unwrap();
    let mut sector = vec![0; 512];
    sector[..32].copy_from_slice(&hex("7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2"));
    cipher.decrypt(0, &mut sector);
    let iv = hex("000102030405060708090a0b0c0d0e0f");
    let first: Vec<_> = sector[..16].iter().zip(iv).map(|(byte, iv)| byte ^ iv).collect();
    assert_eq!(first, hex("6bc1bee22e409f96e93d7e117393172a"));
    assert_eq!(sector[16..32], hex("ae2d8a571e03ac9c9eb76fac45af8e51"));
}

#[test]
fn sectors_are_decrypted_alike_however_they_are_divided() {
    let key: Vec<_> = (1..=64).collect();
    let aes = |at: usize| Aes::new(&key[at..at + 32]).unwrap();
    type MakeMode = fn(&dyn Fn(usize) -> Aes) -> Mode;
    let modes: [MakeMode; 5] = [
        |aes| Mode::Ecb(aes(0)),
        |aes| Mode::Cbc { data: aes(0), iv: Iv::Encrypted(aes(32)) },
        |aes| Mode::Xts { data: aes(0), tweak: aes(32), iv: Iv::Plain64 },
        |aes| Mode::Xts { data: aes(0), tweak: aes(32), iv: Iv::Plain32 },
        |aes| Mode::CbcDiffused { data: aes(0), iv: Iv::Encrypted(aes(0)), sector_key: aes(32) },
    ];
    for mode in modes {
        for sector_bytes in [512, 4096] {
            let numbering = Numbering { unit_bytes: 512, first: u64::from(u32::MAX) - 3 };
            let cipher = SectorCipher::new(mode(&aes), numbering, sector_bytes).unwrap();
            let sealed: Vec<_> = (0..19 * sector_bytes).map(|at| (at % 253) as u8).collect();
            let mut whole = sealed.clone();
            cipher.decrypt(0, &mut whole);
            for nth in 0..19 {
                let range = (nth * sector_bytes) as usize..((nth + 1) * sector_bytes) as usize;
                let mut one = sealed[range.clone()].to_vec();
                cipher.decrypt(nth * sector_bytes, &mut one);
                assert!(one == whole[range]);
            }
        }
    }
}

#[test]
fn sectors_of_other_sizes_and_keys_of_other_lengths_are_refused() {
    for bytes in [0, 256, 520, 1000, 8192] {
        let mode = Mode::Ecb(Aes::new(&[0; 16]).unwrap());
        assert!(SectorCipher::new(mode, BY_512, bytes).is_none(), "{bytes}");
    }
    assert!([0, 15, 17, 64].iter().all(|len| Aes::new(&vec![0; *len]).is_none()));
}
