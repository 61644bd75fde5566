//! The ways in which a header can be encrypted. The header does not say which, so each is tried.

use crate::cipher::Algorithm::{self, Aes, Camellia, Kuznyechik, Serpent, Twofish};
use crate::derive::{Hash, Kdf};

/// Iterations for each step of a personal iterations multiplier (PIM), and those before the first step.
const PIM_STEP: u32 = 1000;
const PIM_BASE: u32 = 15_000;
/// The largest PIM, as in VeraCrypt.
const PIM_MAX: u32 = 2_147_468;

/// Ciphers and cascades, each in the order in which it encrypts.
pub const ENCRYPTIONS: [&[Algorithm]; 15] = [
    &[Aes],
    &[Serpent],
    &[Twofish],
    &[Camellia],
    &[Kuznyechik],
    &[Twofish, Aes],
    &[Serpent, Twofish, Aes],
    &[Aes, Serpent],
    &[Aes, Twofish, Serpent],
    &[Serpent, Twofish],
    &[Kuznyechik, Camellia],
    &[Twofish, Kuznyechik],
    &[Serpent, Camellia],
    &[Aes, Kuznyechik],
    &[Camellia, Serpent, Kuznyechik],
];

/// The program that made a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    TrueCrypt,
    VeraCrypt,
}

impl Program {
    /// How a decrypted header begins.
    pub const fn magic(self) -> &'static [u8] {
        match self {
            Self::TrueCrypt => b"TRUE",
            Self::VeraCrypt => b"VERA",
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::TrueCrypt => "TrueCrypt",
            Self::VeraCrypt => "VeraCrypt",
        }
    }
}

/// A way from the password to the key of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Derivation {
    pub program: Program,
    pub hash: &'static str,
    pub kdf: Kdf,
}

/// All of them, with a PIM if there is one: those that take little time, or are common, first.
pub fn derivations(pim: Option<u32>) -> Vec<Derivation> {
    let of = |program, hash, function, iterations| Derivation {
        program,
        hash,
        kdf: Kdf::Pbkdf2 { hash: function, iterations },
    };
    let with_pim = |usual: u32| match pim {
        Some(pim) => PIM_BASE + PIM_STEP * pim.min(PIM_MAX),
        None => usual,
    };
    let mut all = vec![
        of(Program::VeraCrypt, "SHA-512", Hash::Sha512, with_pim(500_000)),
        of(Program::VeraCrypt, "SHA-256", Hash::Sha256, with_pim(500_000)),
        of(Program::VeraCrypt, "BLAKE2s-256", Hash::Blake2s256, with_pim(500_000)),
        of(Program::VeraCrypt, "Whirlpool", Hash::Whirlpool, with_pim(500_000)),
        of(Program::VeraCrypt, "Streebog", Hash::Streebog512, with_pim(500_000)),
        of(Program::VeraCrypt, "RIPEMD-160", Hash::Ripemd160, with_pim(655_331)),
    ];
    if pim.is_none() {
        let old = [
            ("RIPEMD-160", Hash::Ripemd160, 2000),
            ("SHA-512", Hash::Sha512, 1000),
            ("Whirlpool", Hash::Whirlpool, 1000),
        ];
        all.splice(0..0, old.map(|(name, hash, iterations)| of(Program::TrueCrypt, name, hash, iterations)));
    }
    all
}

/// A cipher or cascade as VeraCrypt names it: what encrypts last, first.
pub fn name(encryption: &[Algorithm]) -> String {
    encryption.iter().rev().map(|algorithm| algorithm.name()).collect::<Vec<_>>().join("-")
}
