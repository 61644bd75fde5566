//! The syntax of LVM2's metadata: sections of named values, in text.
//!
//! ```text
//! vg0 {
//!     extent_size = 8192      # comment
//!     status = ["READ", "WRITE"]
//! }
//! ```

/// The maximum depth of sections: metadata has four.
const DEPTH_MAX: usize = 8;
/// The maximum number of names and values. Limits the memory.
const VALUES_MAX: usize = 1 << 18;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    /// Without its quotes, escapes as they are. Names and identifiers have none.
    Text(&'a [u8]),
    List(Vec<Self>),
    Section(Section<'a>),
    /// A number that is negative or no integer, or a word.
    Other,
}

/// Named values, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Section<'a>(Vec<(&'a [u8], Value<'a>)>);

impl<'a> Section<'a> {
    fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.0.iter().find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value)
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn text(&self, name: &str) -> Option<&'a [u8]> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn list(&self, name: &str) -> &[Value<'a>] {
        match self.get(name) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }

    /// Whether a list has this text.
    pub fn lists(&self, name: &str, text: &str) -> bool {
        self.list(name).iter().any(|value| matches!(value, Value::Text(one) if *one == text.as_bytes()))
    }

    /// Its sections, with their names.
    pub fn sections(&self) -> impl Iterator<Item = (&'a [u8], &Self)> {
        self.0.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((*name, section)),
            _ => None,
        })
    }

    pub fn section(&self, name: &str) -> Option<&Self> {
        match self.get(name)? {
            Value::Section(section) => Some(section),
            _ => None,
        }
    }
}

/// Parses metadata, which ends at its first zero.
pub(super) fn parse(text: &[u8]) -> Result<Section<'_>, &'static str> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let mut parser = Parser { rest: &text[..end], values_left: VALUES_MAX };
    let section = parser.section(0)?;
    match parser.peek() {
        None => Ok(section),
        Some(_) => Err("its metadata closes a section that it did not open"),
    }
}

struct Parser<'a> {
    rest: &'a [u8],
    values_left: usize,
}

impl<'a> Parser<'a> {
    /// The next byte that is neither space nor comment.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let first = *self.rest.first()?;
            if first == b'#' {
                self.take_while(|byte| byte != b'\n');
            } else if first.is_ascii_whitespace() {
                self.take_while(|byte| byte.is_ascii_whitespace());
            } else {
                return Some(first);
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    fn take_while(&mut self, is_part: impl Fn(u8) -> bool) -> &'a [u8] {
        let len = self.rest.iter().position(|byte| !is_part(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    fn count(&mut self) -> Result<(), &'static str> {
        self.values_left = self.values_left.checked_sub(1).ok_or("its metadata has more values than any group")?;
        Ok(())
    }

    /// The values up to the end of a section, or of the text.
    fn section(&mut self, depth: usize) -> Result<Section<'a>, &'static str> {
        let mut section = Section::default();
        while let Some(first) = self.peek() {
            if first == b'}' {
                break;
            }
            self.count()?;
            let name = self.word()?;
            let value = if self.take(b'{') {
                if depth >= DEPTH_MAX {
                    return Err("its metadata has sections in sections without end");
                }
                let inner = Value::Section(self.section(depth + 1)?);
                self.expect(b'}')?;
                inner
            } else {
                self.expect(b'=')?;
                self.value()?
            };
            section.0.push((name, value));
        }
        Ok(section)
    }

    fn expect(&mut self, byte: u8) -> Result<(), &'static str> {
        if self.take(byte) { Ok(()) } else { Err("its metadata has a defect of syntax") }
    }

    fn word(&mut self) -> Result<&'a [u8], &'static str> {
        let is_part = |byte: u8| byte.is_ascii_graphic() && !b"{}[]=,\"'#".contains(&byte);
        match self.take_while(is_part) {
            [] => Err("its metadata has a defect of syntax"),
            word => Ok(word),
        }
    }

    fn value(&mut self) -> Result<Value<'a>, &'static str> {
        if !self.take(b'[') {
            return self.scalar();
        }
        let mut list = Vec::new();
        while !self.take(b']') {
            self.count()?;
            list.push(self.scalar()?);
            if !self.take(b',') && self.peek() != Some(b']') {
                return Err("its metadata has a defect of syntax");
            }
        }
        Ok(Value::List(list))
    }

    fn scalar(&mut self) -> Result<Value<'a>, &'static str> {
        if self.take(b'"') {
            return self.quoted().map(Value::Text);
        }
        self.peek();
        let number = std::str::from_utf8(self.word()?).ok().and_then(|word| word.parse().ok());
        Ok(number.map_or(Value::Other, Value::Number))
    }

    fn quoted(&mut self) -> Result<&'a [u8], &'static str> {
        let mut is_escaped = false;
        let end = self.rest.iter().position(|byte| {
            let ends = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            ends
        });
        let end = end.ok_or("its metadata has a text without an end")?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_with_comments_escapes_and_lists_over_lines() {
        let text =
            b"# a\nd = \"say \\\"}\\\"\"\nv {\n n = 8192 # KiB\n e = []\n l = [\n\"pv0\", 0,\n\"pv1\", 5\n]\n f = -1.5\n}\n\0x";
        let section = parse(text).unwrap();
        assert_eq!(section.text("d"), Some(&b"say \\\"}\\\""[..]));
        let inner = section.section("v").unwrap();
        assert_eq!(inner.number("n"), Some(8192));
        assert_eq!(inner.list("e"), []);
        let list = [Value::Text(b"pv0"), Value::Number(0), Value::Text(b"pv1"), Value::Number(5)];
        assert_eq!(inner.list("l"), list);
        assert!(inner.lists("l", "pv1") && !inner.lists("l", "pv2") && !inner.lists("n", "pv1"));
        assert_eq!((inner.number("f"), inner.text("n"), inner.sections().count()), (None, None, 0));
    }

    #[test]
    fn defects_of_syntax_are_refused() {
        let deep = [b"a {".repeat(DEPTH_MAX + 1), b"}".repeat(DEPTH_MAX + 1)].concat();
        let many = b"a=1\n".repeat(VALUES_MAX + 1);
        for bad in [b"}" as &[u8], b"a {", b"a", b"a = ", b"a = [1", b"a = [1 2]", b"a = \"x", b"= 1", &deep, &many] {
            assert!(parse(bad).is_err(), "{:?}", bad.get(..20).unwrap_or(bad));
        }
        assert_eq!(parse(b"\0rest"), Ok(Section::default()));
    }
}
