//! Random numbers of the kernel, good enough for keys.

use std::io;

/// The kernel gives no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no random numbers")]
pub struct NoRandomNumbers(#[source] getrandom::Error);

impl From<NoRandomNumbers> for io::Error {
    fn from(error: NoRandomNumbers) -> Self {
        Self::other(error)
    }
}

type Result<T> = std::result::Result<T, NoRandomNumbers>;

/// Fills `bytes` with random bytes. Use it rather than [`bytes`] for a secret: a value that is returned leaves copies
/// behind.
///
/// # Errors
///
/// If the kernel gives none.
pub fn fill(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(NoRandomNumbers)
}

/// Returns `N` random bytes.
///
/// # Errors
///
/// If the kernel gives none.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// Returns 64 random bits.
///
/// # Errors
///
/// If the kernel gives none.
pub fn bits_64() -> Result<u64> {
    bytes().map(u64::from_ne_bytes)
}

/// Returns 128 random bits.
///
/// # Errors
///
/// If the kernel gives none.
pub fn bits_128() -> Result<u128> {
    bytes().map(u128::from_ne_bytes)
}

/// Returns an id that nothing else has: 128 random bits, as 32 hexadecimal digits.
///
/// # Errors
///
/// If the kernel gives none.
pub fn id() -> Result<String> {
    bits_128().map(|bits| format!("{bits:032x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_have_32_digits() {
        let (first, second) = (id().unwrap(), id().unwrap());
        assert_ne!(first, second);
        assert!(first.len() == 32 && first.bytes().all(|digit| digit.is_ascii_hexdigit()), "{first}");
    }
}
