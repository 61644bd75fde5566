//! Sets of characters.

/// A set of ASCII characters: for each byte, whether it is one of them.
pub struct Class([bool; 256]);

impl Class {
    /// The characters between the brackets of such a class of an expression: characters, ranges, and a `-` at the end.
    pub const fn of(class: &str) -> Self {
        let (bytes, mut has, mut at) = (class.as_bytes(), [false; 256], 0);
        while at < bytes.len() {
            let is_range = at + 2 < bytes.len() && bytes[at + 1] == b'-';
            let (mut c, last) = (bytes[at], if is_range { bytes[at + 2] } else { bytes[at] });
            while c <= last {
                has[c as usize] = true;
                c += 1;
            }
            at += if is_range { 3 } else { 1 };
        }
        Self(has)
    }

    /// Whether it has the character that is this byte.
    pub const fn has(&self, byte: u8) -> bool {
        self.0[byte as usize]
    }
}
