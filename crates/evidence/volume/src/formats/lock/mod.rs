//! Describes encrypted volumes without opening them: what encrypts them, and which keys open them.
//!
//! An examiner needs the identifiers to ask for the right key: of a recovery password of BitLocker the identifier of its
//! protector, which directories and accounts store beside it; of LUKS the UUID; of FileVault those of its users. Nothing here is verified, since only a key
//! can: a damaged header may describe a volume wrongly.

mod apple;
mod bitlocker;
mod luks;

pub(super) use apple::{describe_apfs, describe_core_storage};
pub(super) use bitlocker::{BLOCK_BYTES, BLOCK_BYTES_MAX, find as find_bitlocker, is_longer, parse as parse_bitlocker};
pub(super) use luks::{header_bytes, parse as parse_luks};

use std::fmt;

use cheetah_device::visible::OneLine;

use crate::apple::Flaw;

/// Characters of a text in a header that are kept.
const TEXT_CHARS_MAX: usize = 64;
/// Protectors that are listed.
const PROTECTORS_MAX: usize = 32;

/// How a volume is locked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock {
    /// The identifier of the volume.
    pub id: String,
    /// Its name, if it has one.
    pub label: String,
    /// The cipher, empty if it is not known.
    pub cipher: String,
    /// What is unusual about its state; empty if nothing is.
    pub state: &'static str,
    /// Why it is not known what of it is encrypted; empty if it is known.
    pub unknown: String,
    /// What opens it, in the order of the header.
    pub protectors: Vec<Protector>,
}

/// One way to open a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protector {
    /// Its kind, as `recovery password`.
    pub kind: String,
    /// Its identifier, or the number of its slot and the function that derives a key.
    pub id: String,
}

impl Lock {
    /// That of a volume of which it is not known what of it is encrypted.
    pub(super) fn unknown(why: &Flaw) -> Self {
        Self { unknown: why.to_string(), ..Self::default() }
    }

    fn protect(&mut self, kind: impl Into<String>, id: impl Into<String>) {
        if self.protectors.len() < PROTECTORS_MAX {
            self.protectors.push(Protector { kind: kind.into(), id: id.into() });
        }
    }
}

impl fmt::Display for Lock {
    /// As `19540fda-…, "Disk of D.", AES-XTS 128; opened by: password (55faeded-…)`. All text of the header is safe to print.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.id.is_empty() && !self.unknown.is_empty() {
            return write!(f, "what is encrypted in it is not known: {}", OneLine(&self.unknown));
        }
        write!(f, "{}", OneLine(&self.id))?;
        if !self.label.is_empty() {
            write!(f, ", \"{}\"", OneLine(&self.label))?;
        }
        for part in [&*self.cipher, self.state].into_iter().filter(|part| !part.is_empty()) {
            write!(f, ", {}", OneLine(part))?;
        }
        for (index, protector) in self.protectors.iter().enumerate() {
            let before = if index == 0 { "; opened by:" } else { "," };
            write!(f, "{before} {} ({})", OneLine(&protector.kind), OneLine(&protector.id))?;
        }
        if !self.unknown.is_empty() {
            write!(f, "; not all of it is known: {}", OneLine(&self.unknown))?;
        }
        Ok(())
    }
}

/// Returns the beginning of a text in a header.
fn text(characters: impl Iterator<Item = char>) -> String {
    characters.take_while(|character| *character != '\0').take(TEXT_CHARS_MAX).collect::<String>().trim().to_owned()
}

/// Returns a text of bytes that ends with a zero.
fn text_at(bytes: &[u8], at: usize, len: usize) -> String {
    let bytes = bytes.get(at..at + len).unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    text(String::from_utf8_lossy(&bytes[..end]).chars())
}
