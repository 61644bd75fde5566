//! Text in UTF-16, as Windows takes and returns it.

/// The text with a zero behind it, for a call.
pub fn terminated(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// The text up to the first zero.
pub fn up_to_zero(units: &[u16]) -> String {
    let end = units.iter().position(|unit| *unit == 0).unwrap_or(units.len());
    String::from_utf16_lossy(&units[..end])
}

/// The texts of a list, each with a zero behind it; an empty one ends the list.
pub fn list(units: &[u16]) -> Vec<String> {
    units.split(|unit| *unit == 0).take_while(|text| !text.is_empty()).map(String::from_utf16_lossy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_end_at_the_first_empty_text() {
        let units: Vec<u16> = "C:\\\0D:\\mnt\\\0\0E:\\\0".encode_utf16().collect();
        assert_eq!(list(&units), [r"C:\", r"D:\mnt\"]);
        assert_eq!(list(&[0, 0]), Vec::<String>::new());
        assert_eq!(list(&[]), Vec::<String>::new());
        // The list was cut off.
        assert_eq!(list(&units[..2]), ["C:"]);
    }

    #[test]
    fn text_ends_at_its_zero_and_needs_none() {
        assert_eq!(up_to_zero(&terminated("caf\u{e9}")), "caf\u{e9}");
        assert_eq!(up_to_zero(&[u16::from(b'x')]), "x");
        // Half of a pair.
        assert_eq!(up_to_zero(&[0xd800, 0]), "\u{fffd}");
    }
}
