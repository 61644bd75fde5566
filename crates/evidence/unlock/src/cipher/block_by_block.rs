//! Every mode against the definition of it: one sector after the other, and one block after the other.

use ::aes::cipher::consts::U16;
use ::aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use ::aes::{Aes256, Block};
use camellia::Camellia256;
use kuznyechik::Kuznyechik;
use proptest::prelude::*;
use serpent::Serpent;
use twofish::Twofish;

use super::{
    Aes, Algorithm, CIPHERS_MAX, Cascade, GROUP_SECTORS, Iv, KEY_BYTES, Mode, Numbering, SectorCipher, undo_diffusion,
};

const SECTOR_SIZES: [usize; 4] = [512, 1024, 2048, 4096];
const ALGORITHMS: [Algorithm; 5] =
    [Algorithm::Aes, Algorithm::Camellia, Algorithm::Kuznyechik, Algorithm::Serpent, Algorithm::Twofish];
/// Sectors of a case: more than a group, and no whole number of groups.
const SECTORS_MAX: usize = GROUP_SECTORS + 9;

/// What is done to one block.
type OnBlock = Box<dyn Fn(&mut Block)>;

/// A first value, as a definition names it.
#[derive(Debug, Clone, Copy)]
enum First {
    Plain32,
    Plain64,
    Encrypted,
}

/// A mode, as a definition names it.
#[derive(Debug, Clone)]
enum Defined {
    Ecb,
    Cbc(First),
    Xts(First),
    Diffused(First),
    Cascade(Vec<Algorithm>),
}

/// A mode with its keys of AES: those of the data, of the tweaks or sectors, and of the first values.
#[derive(Debug, Clone)]
struct Case {
    mode: Defined,
    keys: [Vec<u8>; 3],
    /// The keys of a cascade.
    cascade_keys: Vec<u8>,
    numbering: (u64, u64),
    sector_bytes: usize,
}

fn aes(key: &[u8]) -> Aes {
    Aes::new(key).unwrap()
}

fn encrypts(key: &[u8]) -> OnBlock {
    let key = aes(key);
    Box::new(move |block: &mut Block| key.encrypt(std::slice::from_mut(block)))
}

fn decrypts(key: &[u8]) -> OnBlock {
    let key = aes(key);
    Box::new(move |block: &mut Block| key.decrypt(std::slice::from_mut(block)))
}

/// How a cipher encrypts a block, and how it decrypts one.
fn both<C>(key: &[u8]) -> (OnBlock, OnBlock)
where
    C: KeyInit + BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt<BlockSize = U16> + 'static,
{
    let (there, back) = (C::new_from_slice(key).unwrap(), C::new_from_slice(key).unwrap());
    let encrypt: OnBlock = Box::new(move |block: &mut Block| there.encrypt_block(block));
    let decrypt: OnBlock = Box::new(move |block: &mut Block| back.decrypt_block(block));
    (encrypt, decrypt)
}

fn of_algorithm(algorithm: Algorithm, key: &[u8]) -> (OnBlock, OnBlock) {
    match algorithm {
        Algorithm::Aes => both::<Aes256>(key),
        Algorithm::Camellia => both::<Camellia256>(key),
        Algorithm::Kuznyechik => both::<Kuznyechik>(key),
        Algorithm::Serpent => both::<Serpent>(key),
        Algorithm::Twofish => both::<Twofish>(key),
    }
}

fn add(block: &mut Block, value: &Block) {
    block.0.iter_mut().zip(value.0).for_each(|(byte, other)| *byte ^= other);
}

/// Does something to each block of a sector.
fn each(sector: &mut [u8], mut work: impl FnMut(&mut Block)) {
    for bytes in sector.as_chunks_mut::<16>().0 {
        let mut block = Block::from(*bytes);
        work(&mut block);
        *bytes = block.0;
    }
}

/// XTS as IEEE 1619 defines it, from an encrypted tweak on.
fn xts(decrypt: &OnBlock, mut tweak: Block, sector: &mut [u8]) {
    each(sector, |block| {
        add(block, &tweak);
        decrypt(block);
        add(block, &tweak);
        let mut carry = 0_u8;
        for byte in &mut tweak.0 {
            (*byte, carry) = (*byte << 1 | carry, *byte >> 7);
        }
        tweak.0[0] ^= if carry == 1 { 0x87 } else { 0 };
    });
}

/// CBC as SP 800-38A defines it.
fn cbc(decrypt: &OnBlock, mut previous: Block, sector: &mut [u8]) {
    each(sector, |block| {
        let encrypted = *block;
        decrypt(block);
        add(block, &previous);
        previous = encrypted;
    });
}

fn numbered(number: u64) -> Block {
    let mut block = Block::default();
    block.0[..8].copy_from_slice(&number.to_le_bytes());
    block
}

impl Case {
    fn iv(&self, first: First) -> Iv {
        match first {
            First::Plain32 => Iv::Plain32,
            First::Plain64 => Iv::Plain64,
            First::Encrypted => Iv::Encrypted(aes(&self.keys[2])),
        }
    }

    fn first(&self, first: First, number: u64) -> Block {
        let mut block = numbered(number);
        match first {
            First::Plain32 => block = numbered(number % (1 << 32)),
            First::Plain64 => {}
            First::Encrypted => encrypts(&self.keys[2])(&mut block),
        }
        block
    }

    fn cipher(&self) -> SectorCipher {
        let (data, second) = (aes(&self.keys[0]), aes(&self.keys[1]));
        let mode = match &self.mode {
            Defined::Ecb => Mode::Ecb(data),
            Defined::Cbc(first) => Mode::Cbc { data, iv: self.iv(*first) },
            Defined::Xts(first) => Mode::Xts { data, tweak: second, iv: self.iv(*first) },
            Defined::Diffused(first) => Mode::CbcDiffused { data, iv: self.iv(*first), sector_key: second },
            Defined::Cascade(algorithms) => Mode::Cascade(Cascade::new(algorithms, &self.cascade_keys).unwrap()),
        };
        let (unit_bytes, first) = self.numbering;
        SectorCipher::new(mode, Numbering { unit_bytes, first }, self.sector_bytes as u64).unwrap()
    }

    /// Decrypts one sector that begins `offset` bytes after the start of the volume.
    fn sector(&self, offset: u64, sector: &mut [u8]) {
        let (unit_bytes, first) = self.numbering;
        let number = (offset / unit_bytes).wrapping_add(first);
        match &self.mode {
            Defined::Ecb => each(sector, decrypts(&self.keys[0])),
            Defined::Cbc(first) => cbc(&decrypts(&self.keys[0]), self.first(*first, number), sector),
            Defined::Xts(first) => {
                let mut tweak = self.first(*first, number);
                encrypts(&self.keys[1])(&mut tweak);
                xts(&decrypts(&self.keys[0]), tweak, sector);
            }
            Defined::Diffused(first) => {
                cbc(&decrypts(&self.keys[0]), self.first(*first, number), sector);
                undo_diffusion(sector);
                self.add_sector_key(number, sector);
            }
            Defined::Cascade(algorithms) => self.undo_cascade(algorithms, number, sector),
        }
    }

    fn add_sector_key(&self, number: u64, sector: &mut [u8]) {
        let mut halves = [numbered(number); 2];
        halves[1].0[15] = 0x80;
        halves.iter_mut().for_each(|half| encrypts(&self.keys[1])(half));
        let mut nth = 0;
        each(sector, |block| {
            add(block, &halves[nth % 2]);
            nth += 1;
        });
    }

    fn undo_cascade(&self, algorithms: &[Algorithm], number: u64, sector: &mut [u8]) {
        let key = |nth: usize| &self.cascade_keys[nth * KEY_BYTES..(nth + 1) * KEY_BYTES];
        for (nth, algorithm) in algorithms.iter().enumerate().rev() {
            let (_, decrypt) = of_algorithm(*algorithm, key(nth));
            let (encrypt, _) = of_algorithm(*algorithm, key(algorithms.len() + nth));
            let mut tweak = numbered(number);
            encrypt(&mut tweak);
            xts(&decrypt, tweak, sector);
        }
    }
}

fn first() -> impl Strategy<Value = First> {
    prop::sample::select(vec![First::Plain32, First::Plain64, First::Encrypted])
}

fn mode() -> impl Strategy<Value = Defined> {
    let cascade = prop::collection::vec(prop::sample::select(ALGORITHMS.to_vec()), 1..=CIPHERS_MAX);
    prop_oneof![
        Just(Defined::Ecb),
        first().prop_map(Defined::Cbc),
        first().prop_map(Defined::Xts),
        first().prop_map(Defined::Diffused),
        cascade.prop_map(Defined::Cascade),
    ]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![16_usize, 24, 32]).prop_flat_map(|len: usize| prop::collection::vec(any::<u8>(), len))
}

fn cases() -> impl Strategy<Value = Case> {
    let first_number = prop_oneof![Just(0_u64), Just(u64::from(u32::MAX) - 3), Just(u64::MAX - 3), any::<u64>()];
    let cascade_keys = prop::collection::vec(any::<u8>(), 2 * CIPHERS_MAX * KEY_BYTES);
    let numbers =
        (prop::sample::select(SECTOR_SIZES.to_vec()), prop::sample::select(vec![1_u64, 512, 4096]), first_number);
    (mode(), [key(), key(), key()], cascade_keys, numbers).prop_map(|(mode, keys, cascade_keys, numbers)| {
        let (sector_bytes, unit_bytes, first) = numbers;
        Case { mode, keys, cascade_keys, numbering: (unit_bytes, first), sector_bytes }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn sectors_together_are_the_sectors_that_the_definition_gives(
        case in cases(), before in 0_u64..1 << 40, sectors in 1..=SECTORS_MAX, seed in any::<u8>(),
    ) {
        let offset = before * case.sector_bytes as u64;
        let sealed: Vec<u8> = (0..sectors * case.sector_bytes).map(|at| (at * 31 % 253) as u8 ^ seed).collect();
        let mut expected = sealed.clone();
        for (nth, sector) in expected.chunks_exact_mut(case.sector_bytes).enumerate() {
            case.sector(offset + (nth * case.sector_bytes) as u64, sector);
        }
        let mut content = sealed;
        case.cipher().decrypt(offset, &mut content);
        prop_assert!(content == expected, "{:?} of {} sectors of {}", case.mode, sectors, case.sector_bytes);
    }

    #[test]
    fn headers_of_a_cascade_are_unit_0(
        algorithms in prop::collection::vec(prop::sample::select(ALGORITHMS.to_vec()), 1..=CIPHERS_MAX),
        cascade_keys in prop::collection::vec(any::<u8>(), 2 * CIPHERS_MAX * KEY_BYTES), seed in any::<u8>(),
    ) {
        let keys = [vec![0; 16], vec![0; 16], vec![0; 16]];
        let mode = Defined::Cascade(algorithms.clone());
        let case = Case { mode, keys, cascade_keys, numbering: (512, 0), sector_bytes: 512 };
        let cascade = Cascade::new(&algorithms, &case.cascade_keys).unwrap();
        // The header of VeraCrypt, the shortest one, and the longest one.
        prop_assert!(is_unit_0::<448>(&case, &cascade, seed) && is_unit_0::<16>(&case, &cascade, seed));
        prop_assert!(is_unit_0::<4096>(&case, &cascade, seed));
    }
}

fn is_unit_0<const BYTES: usize>(case: &Case, cascade: &Cascade, seed: u8) -> bool {
    let mut expected: [u8; BYTES] = std::array::from_fn(|at| (at % 251) as u8 ^ seed);
    let mut header = expected;
    case.sector(0, &mut expected);
    cascade.decrypt_header(&mut header);
    header == expected
}
