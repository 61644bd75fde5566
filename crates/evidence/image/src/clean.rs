//! Makes text of images, disks and servers safe to show and store.

/// The maximum length of a foreign field, in characters.
const FIELD_CHARS_MAX: usize = 256;

/// The first 256 characters, not counting control characters and those that make text run backwards (Unicode's
/// bidirectional controls), which are dropped.
pub fn clean(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| !c.is_control() && !turns(*c)).take(FIELD_CHARS_MAX).collect()
}
