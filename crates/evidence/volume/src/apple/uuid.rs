//! Identifiers as Apple writes them.

use std::fmt;

/// Characters of an identifier.
const TEXT_BYTES: usize = 36;

/// An identifier, whose first byte is written first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The identifier in the bytes from `at` on; `None` if there are fewer than 16.
    pub(super) fn at(bytes: &[u8], at: usize) -> Option<Self> {
        bytes.get(at..)?.first_chunk().copied().map(Self)
    }

    /// The identifier with this text; `None` for another text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut digits = text.chars().filter(|character| *character != '-').map(|digit| digit.to_digit(16));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            let (high, low) = (digits.next()??, digits.next()??);
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
        (text.len() == TEXT_BYTES).then_some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02X}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_parsed_and_shown_alike() {
        let text = "3273A055-3B8B-47E8-B970-DF35EECDA81B";
        let uuid = Uuid::parse(text).unwrap();
        assert_eq!((uuid.0[0], uuid.0[15]), (0x32, 0x1b));
        assert_eq!(uuid.to_string(), text);
        for other in [
            "",
            "3273A055",
            "internal error",
            "3273A055-3B8B-47E8-B970-DF35EECDA81",
            "g273A055-3B8B-47E8-B970-DF35EECDA81B",
        ] {
            assert_eq!(Uuid::parse(other), None, "{other}");
        }
    }
}
