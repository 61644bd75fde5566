//! Keys of passphrases, within limits on the time and memory that an image can make this machine spend.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use blake2::Blake2s256;
use cheetah_device::Size;
use cheetah_device::machine_memory::machine_memory;
use pbkdf2::hmac::SimpleHmac;
use pbkdf2::{pbkdf2, pbkdf2_hmac};
use ripemd::Ripemd160;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use streebog::Streebog512;
use whirlpool::Whirlpool;
use zeroize::Zeroize;

use crate::refusal::{Refusal, Result};

/// Iterations for one key: some ten times those that cryptsetup chooses on a fast machine.
const ITERATIONS_MAX: u32 = 100_000_000;
/// Memory for one key, in KiB: the most that the format allows.
const MEMORY_KIB_MAX: u32 = 4 << 20;
/// The passes over that memory, times its size in KiB: some twenty times what cryptsetup chooses.
const PASSES_KIB_MAX: u64 = 64 << 20;
const LANES_MAX: u32 = 64;
/// Memory that is left to the rest of the machine, in bytes.
const MEMORY_LEFT_BYTES: u64 = 64 << 20;

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Blake2s256,
    Ripemd160,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Streebog512,
    Whirlpool,
}

impl Hash {
    /// The function with this name in a header.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "ripemd160" => Self::Ripemd160,
            "sha1" => Self::Sha1,
            "sha224" => Self::Sha224,
            "sha256" => Self::Sha256,
            "sha384" => Self::Sha384,
            "sha512" => Self::Sha512,
            "whirlpool" => Self::Whirlpool,
            _ => return Err(Refusal::Unsupported(format!("the hash function \"{name}\""))),
        })
    }

    /// The bytes of its digests.
    pub const fn digest_bytes(self) -> usize {
        match self {
            Self::Ripemd160 | Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Blake2s256 | Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 | Self::Streebog512 | Self::Whirlpool => 64,
        }
    }

    /// Writes the digest of the parts in order to `out`, or its beginning if `out` is shorter.
    pub fn digest(self, parts: &[&[u8]], out: &mut [u8]) {
        fn of<D: Digest>(parts: &[&[u8]], out: &mut [u8]) {
            let mut hash = D::new();
            parts.iter().for_each(|part| hash.update(part));
            let digest = hash.finalize();
            let len = out.len().min(digest.len());
            out[..len].copy_from_slice(&digest[..len]);
        }
        match self {
            Self::Blake2s256 => of::<Blake2s256>(parts, out),
            Self::Ripemd160 => of::<Ripemd160>(parts, out),
            Self::Sha1 => of::<Sha1>(parts, out),
            Self::Sha224 => of::<Sha224>(parts, out),
            Self::Sha256 => of::<Sha256>(parts, out),
            Self::Sha384 => of::<Sha384>(parts, out),
            Self::Sha512 => of::<Sha512>(parts, out),
            Self::Streebog512 => of::<Streebog512>(parts, out),
            Self::Whirlpool => of::<Whirlpool>(parts, out),
        }
    }

    /// PBKDF2 with HMAC of this function.
    fn pbkdf2(self, password: &[u8], salt: &[u8], iterations: u32, out: &mut [u8]) {
        match self {
            // It keeps its last block, so it has no faster HMAC; a key of any length is one, so this cannot fail.
            Self::Blake2s256 => {
                pbkdf2::<SimpleHmac<Blake2s256>>(password, salt, iterations, out).unwrap_or_default();
            }
            Self::Ripemd160 => pbkdf2_hmac::<Ripemd160>(password, salt, iterations, out),
            Self::Sha1 => pbkdf2_hmac::<Sha1>(password, salt, iterations, out),
            Self::Sha224 => pbkdf2_hmac::<Sha224>(password, salt, iterations, out),
            Self::Sha256 => pbkdf2_hmac::<Sha256>(password, salt, iterations, out),
            Self::Sha384 => pbkdf2_hmac::<Sha384>(password, salt, iterations, out),
            Self::Sha512 => pbkdf2_hmac::<Sha512>(password, salt, iterations, out),
            Self::Streebog512 => pbkdf2_hmac::<Streebog512>(password, salt, iterations, out),
            Self::Whirlpool => pbkdf2_hmac::<Whirlpool>(password, salt, iterations, out),
        }
    }
}

/// A function that makes a key of a passphrase, and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kdf {
    Pbkdf2 { hash: Hash, iterations: u32 },
    Argon2 { is_hybrid: bool, passes: u32, memory_kib: u32, lanes: u32 },
}

/// What may still be spent on one key for one volume, or for all volumes of a container.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    iterations: u64,
    passes_kib: u64,
}

impl Budget {
    /// Four times the most that one function may cost: a header has several slots.
    pub fn of_one_key() -> Self {
        Self { iterations: 4 * u64::from(ITERATIONS_MAX), passes_kib: 4 * PASSES_KIB_MAX }
    }

    /// A budget of this number of iterations.
    #[cfg(test)]
    pub fn of_iterations(iterations: u64) -> Self {
        Self { iterations, passes_kib: 0 }
    }

    /// Takes the cost of a function.
    ///
    /// # Errors
    ///
    /// If it is too high, by itself or with those before it.
    pub fn spend(&mut self, kdf: &Kdf) -> Result<()> {
        kdf.check()?;
        let left = match *kdf {
            Kdf::Pbkdf2 { iterations, .. } => spend(&mut self.iterations, u64::from(iterations)),
            Kdf::Argon2 { .. } => spend(&mut self.passes_kib, kdf.passes_kib()),
        };
        let why = || Refusal::TooCostly("its slots together ask for more time than any volume may".to_owned());
        left.then_some(()).ok_or_else(why)
    }
}

fn spend(left: &mut u64, cost: u64) -> bool {
    let after = left.checked_sub(cost);
    *left = after.unwrap_or(*left);
    after.is_some()
}

impl Kdf {
    fn passes_kib(&self) -> u64 {
        match *self {
            Self::Argon2 { passes, memory_kib, .. } => u64::from(passes) * u64::from(memory_kib),
            Self::Pbkdf2 { .. } => 0,
        }
    }

    fn check(&self) -> Result<()> {
        match *self {
            Self::Pbkdf2 { iterations, .. } if iterations > ITERATIONS_MAX => Err(Refusal::TooCostly(format!(
                "it asks for {iterations} iterations of a hash for each key, and no more than {ITERATIONS_MAX} are spent"
            ))),
            Self::Argon2 { memory_kib, lanes, .. }
                if memory_kib > MEMORY_KIB_MAX || lanes > LANES_MAX || self.passes_kib() > PASSES_KIB_MAX =>
            {
                let (asked, most) = (Size(u64::from(memory_kib) << 10), Size(u64::from(MEMORY_KIB_MAX) << 10));
                Err(Refusal::TooCostly(format!(
                    "it asks for {self} for each key ({asked} of memory); at most {most} are used, and {PASSES_KIB_MAX} KiB in all passes"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Fills `out` with the key of `password`. Blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// If it costs too much, or this machine has too little memory for it, or its parameters are invalid.
    pub fn derive(&self, password: &[u8], salt: &[u8], out: &mut [u8]) -> Result<()> {
        self.check()?;
        match *self {
            Self::Pbkdf2 { iterations: 0, .. } => Err(Refusal::Damaged("a key has no iterations")),
            Self::Pbkdf2 { hash, iterations } => {
                hash.pbkdf2(password, salt, iterations, out);
                Ok(())
            }
            Self::Argon2 { is_hybrid, passes, memory_kib, lanes } => {
                let wanted = u64::from(memory_kib) << 10;
                let available = machine_memory().map_or(u64::MAX, |memory| memory.available_bytes);
                if wanted.saturating_add(MEMORY_LEFT_BYTES) > available {
                    return Err(Refusal::TooCostly(format!(
                        "a key needs {} of memory to be tried, and this machine has {} left",
                        Size(wanted),
                        Size(available)
                    )));
                }
                let invalid = |_| Refusal::Damaged("the parameters of Argon2 are invalid");
                let params = Params::new(memory_kib, passes, lanes, Some(out.len())).map_err(invalid)?;
                let algorithm = if is_hybrid { Algorithm::Argon2id } else { Algorithm::Argon2i };
                let mut memory = WorkMemory::new(params.block_count())?;
                let argon2 = Argon2::new(algorithm, Version::V0x13, params);
                argon2.hash_password_into_with_memory(password, salt, out, &mut memory.0[..]).map_err(invalid)
            }
        }
    }
}

/// The memory that Argon2 works in. The key follows from what is in it at the end, so it is wiped. It is too large to be locked.
struct WorkMemory(Vec<Block>);

impl WorkMemory {
    fn new(blocks: usize) -> Result<Self> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(blocks).map_err(|_| Refusal::NoMemory("Argon2".to_owned()))?;
        memory.resize(blocks, Block::new());
        Ok(Self(memory))
    }
}

impl Drop for WorkMemory {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Zeroize::zeroize);
    }
}

impl std::fmt::Display for Kdf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pbkdf2 { iterations, .. } => write!(f, "PBKDF2 with {iterations} iterations"),
            Self::Argon2 { is_hybrid, passes, lanes, .. } => {
                let name = if *is_hybrid { "Argon2id" } else { "Argon2i" };
                write!(f, "{name} with {passes} passes over {lanes} lanes")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_of_rfc_6070_is_derived() {
        let mut key = [0; 20];
        Kdf::Pbkdf2 { hash: Hash::Sha1, iterations: 4096 }.derive(b"password", b"salt", &mut key).unwrap();
        assert_eq!(key[..4], [0x4b, 0x00, 0x79, 0x01]);
    }

    #[test]
    fn what_costs_too_much_is_refused_before_it_is_begun() {
        let refused = |kdf: Kdf| matches!(kdf.derive(b"", b"12345678", &mut [0; 32]), Err(Refusal::TooCostly(_)));
        let argon2 = |passes, memory_kib, lanes| Kdf::Argon2 { is_hybrid: true, passes, memory_kib, lanes };
        assert!(refused(Kdf::Pbkdf2 { hash: Hash::Sha256, iterations: ITERATIONS_MAX + 1 }));
        assert!(refused(argon2(1, MEMORY_KIB_MAX + 1, 1)));
        assert!(refused(argon2(u32::MAX, 1 << 10, 1)));
        assert!(refused(argon2(1, 1 << 10, LANES_MAX + 1)));
        assert!(refused(argon2(1, u32::MAX, 1)));
    }

    #[test]
    fn parameters_that_are_invalid_are_damage() {
        for kdf in [
            Kdf::Pbkdf2 { hash: Hash::Sha1, iterations: 0 },
            Kdf::Argon2 { is_hybrid: false, passes: 0, memory_kib: 1 << 10, lanes: 1 },
            Kdf::Argon2 { is_hybrid: false, passes: 1, memory_kib: 1, lanes: 4 },
        ] {
            assert!(matches!(kdf.derive(b"", b"12345678", &mut [0; 32]), Err(Refusal::Damaged(_))), "{kdf}");
        }
    }

    #[test]
    fn many_slots_together_have_a_limit() {
        let mut budget = Budget::of_one_key();
        let kdf = Kdf::Pbkdf2 { hash: Hash::Sha256, iterations: ITERATIONS_MAX };
        let spent = (0..32).take_while(|_| budget.spend(&kdf).is_ok()).count();
        assert_eq!(spent, 4);
    }
}
