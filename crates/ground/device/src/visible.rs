//! Text for a terminal. Evidence, peers and file names can contain control characters, which would move the cursor,
//! erase lines or change colours; these are shown as escapes.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

/// Displays a value with its control characters escaped (`\x1b`, `\u{202e}`), except for newlines and tabs.
///
/// Everything the program prints goes through this, so no caller has to remember it.
#[derive(Debug, Clone, Copy)]
pub struct Visible<T>(pub T);

/// Displays a value on one line: as [`Visible`], with newlines and tabs escaped as well. For foreign text within a line
/// of output.
#[derive(Debug, Clone, Copy)]
pub struct OneLine<T>(pub T);

impl<T: Display> Display for Visible<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper { to: f, plain: &['\n', '\t'] }, "{}", self.0)
    }
}

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper { to: f, plain: &[] }, "{}", self.0)
    }
}

/// Returns JSON text with the control characters in its strings escaped as JSON does (`\u202e`). serde escapes only
/// those of ASCII's first 32.
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match is_control(c) {
            // All of these have four digits.
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Whether a character changes how the text around it is shown: a control character, a line separator, or one of
/// Unicode's bidirectional controls.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

struct Escaper<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
    /// Control characters that are not escaped.
    plain: &'static [char],
}

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut written = 0;
        let escaped = |(_, c): &(usize, char)| is_control(*c) && !self.plain.contains(c);
        for (at, c) in text.char_indices().filter(escaped) {
            self.to.write_str(&text[written..at])?;
            match c {
                '\n' => self.to.write_str("\\n")?,
                '\r' => self.to.write_str("\\r")?,
                '\t' => self.to.write_str("\\t")?,
                c if c.is_ascii() => write!(self.to, "\\x{:02x}", u32::from(c))?,
                c => write!(self.to, "\\u{{{:x}}}", u32::from(c))?,
            }
            written = at + c.len_utf8();
        }
        self.to.write_str(&text[written..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_text_is_not() {
        let text = "caf\u{e9}\tE\x1b[2J\u{9b}31m\x07\x7f\r\u{202e}back\nnext\\";
        assert_eq!(Visible(text).to_string(), "caf\u{e9}\tE\\x1b[2J\\u{9b}31m\\x07\\x7f\\r\\u{202e}back\nnext\\");
        assert_eq!(OneLine("a\n\tb").to_string(), "a\\n\\tb");
        assert_eq!(json("[\"caf\u{e9}\u{9b}\u{202e}\x7f\"]"), "[\"caf\u{e9}\\u009b\\u202e\\u007f\"]");
        assert_eq!(Visible(format_args!("{}{:>4}", "x", 7)).to_string(), "x   7");
    }
}
