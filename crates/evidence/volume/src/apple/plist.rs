//! Property lists in XML, as Core Storage writes them: an element may refer to one before it by its number.
//!
//! A reference to a dictionary or an array is read as an empty text: lists that share parts could be as deep as they are long.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The longest list, in bytes. They take some thousand.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Characters of a text that is shown.
const NAME_CHARS_MAX: usize = 64;
/// How deep values may lie in one another.
const DEPTH_MAX: usize = 16;

/// A value. Clones share it: a short text may refer to a long one again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Dictionary(Arc<[(String, Value)]>),
    Array(Arc<[Value]>),
    Text(Arc<str>),
    Number(u64),
    Data(Arc<[u8]>),
    Flag(bool),
}

impl Value {
    /// Parses a list; `None` if it is damaged.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text.get(..TEXT_BYTES_MAX.min(text.len()))?).ok()?;
        let mut reader = Reader { rest: text, known: HashMap::new() };
        let tag = reader.tag()?;
        reader.value(&tag, 0)
    }

    /// The value of a key of a dictionary.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Dictionary(entries) = self else { return None };
        entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// The values of an array; none of another value.
    pub fn items(&self) -> &[Self] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The beginning of a text of a dictionary, to be shown; empty if there is none.
    pub fn name(&self, key: &str) -> String {
        let text = self.get(key).and_then(Self::text).unwrap_or_default();
        text.chars().take(NAME_CHARS_MAX).collect()
    }

    pub fn number(&self) -> Option<u64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    pub fn data(&self) -> Option<&[u8]> {
        if let Self::Data(data) = self { Some(data) } else { None }
    }
}

/// The start or the end of an element.
struct Tag<'a> {
    /// With a slash before it at the end of an element.
    name: &'a str,
    attributes: &'a str,
    /// Whether the element ends where it starts.
    is_empty: bool,
}

impl<'a> Tag<'a> {
    /// The value of an attribute.
    fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.split_ascii_whitespace().find_map(|one| {
            let (known, value) = one.split_once('=')?;
            (known == name).then_some(value.trim_matches(['"', '\'']))
        })
    }

    fn ends(&self, name: &str) -> bool {
        self.name.strip_prefix('/') == Some(name)
    }
}

struct Reader<'a> {
    rest: &'a str,
    /// The texts, numbers and the like that have numbers.
    known: HashMap<&'a str, Value>,
}

impl<'a> Reader<'a> {
    /// The next tag. What is between tags counts only in [`content`](Self::content).
    fn tag(&mut self) -> Option<Tag<'a>> {
        loop {
            let after = &self.rest[self.rest.find('<')? + 1..];
            if let Some(comment) = after.strip_prefix("!--") {
                self.rest = &comment[comment.find("-->")? + 3..];
                continue;
            }
            let (inside, rest) = after.split_once('>')?;
            self.rest = rest;
            // What the document is.
            if inside.starts_with(['?', '!']) {
                continue;
            }
            let (inside, is_empty) = inside.strip_suffix('/').map_or((inside, false), |inside| (inside, true));
            let (name, attributes) = inside.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((inside, ""));
            return Some(Tag { name, attributes, is_empty });
        }
    }

    /// The start of the next element in another one; `None` in it at its end.
    fn tag_in(&mut self, outer: &Tag<'a>) -> Option<Option<Tag<'a>>> {
        if outer.is_empty {
            return Some(None);
        }
        let tag = self.tag()?;
        Some((!tag.ends(outer.name)).then_some(tag))
    }

    /// The text of an element without others in it.
    fn content(&mut self, tag: &Tag<'a>) -> Option<&'a str> {
        if tag.is_empty {
            return Some("");
        }
        let (text, _) = self.rest.split_once('<')?;
        self.tag()?.ends(tag.name).then_some(text)
    }

    fn value(&mut self, tag: &Tag<'a>, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        let value = match tag.name {
            "plist" => {
                let inner = self.tag()?;
                return self.value(&inner, depth + 1);
            }
            "dict" => self.dictionary(tag, depth)?,
            "array" => self.array(tag, depth)?,
            "string" | "date" | "real" => Value::Text(unescaped(self.content(tag)?).into()),
            "integer" => number(self.content(tag)?.trim()),
            "data" => {
                let text: String = self.content(tag)?.split_ascii_whitespace().collect();
                Value::Data(STANDARD.decode(text).ok()?.into())
            }
            "true" | "false" => {
                self.content(tag)?;
                Value::Flag(tag.name == "true")
            }
            "reference" => {
                self.content(tag)?;
                let known = tag.attribute("IDREF").and_then(|number| self.known.get(number));
                return Some(known.cloned().unwrap_or_else(|| Value::Text("".into())));
            }
            _ => return None,
        };
        if let Some(number) = tag.attribute("ID")
            && !matches!(value, Value::Dictionary(_) | Value::Array(_))
        {
            self.known.insert(number, value.clone());
        }
        Some(value)
    }

    fn dictionary(&mut self, tag: &Tag<'a>, depth: usize) -> Option<Value> {
        let mut entries = Vec::new();
        while let Some(key) = self.tag_in(tag)? {
            let name = (key.name == "key").then(|| self.content(&key))??;
            let of = self.tag()?;
            entries.push((unescaped(name), self.value(&of, depth + 1)?));
        }
        Some(Value::Dictionary(entries.into()))
    }

    fn array(&mut self, tag: &Tag<'a>, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        while let Some(item) = self.tag_in(tag)? {
            items.push(self.value(&item, depth + 1)?);
        }
        Some(Value::Array(items.into()))
    }
}

/// A number, in hexadecimal digits after `0x`; what is none stays a text.
fn number(text: &str) -> Value {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_or_else(|_| Value::Text(text.into()), Value::Number)
}

fn unescaped(text: &str) -> String {
    let replaced = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    replaced.iter().fold(text.to_owned(), |text, (name, character)| text.replace(name, character))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: &str = r#"<dict ID="0"><key>Users</key><array ID="1"><dict ID="2"><key>Name</key><string ID="3">A &amp; B</string>
        <key>Sealed</key><data ID="4">AwAA
        AQ==</data><key>Kind</key><integer size="32" ID="5">0x10000001</integer><key>Hint</key><reference IDREF="3"/></dict></array>
        <key>Time</key><integer>1323243315</integer><key>None</key><string></string><key>On</key><true/><key>Again</key>
        <reference IDREF="1"/></dict>"#;

    #[test]
    fn values_and_references_to_them_are_read() {
        let list = Value::parse(LIST.as_bytes()).unwrap();
        let users = list.get("Users").unwrap();
        let [user] = users.items() else { panic!("{users:?}") };
        let text = |key| user.get(key).and_then(Value::text);
        assert_eq!((text("Name"), text("Hint")), (Some("A & B"), Some("A & B")));
        assert_eq!((user.name("Name"), user.name("Sealed")), ("A & B".to_owned(), String::new()));
        assert_eq!(user.get("Sealed").unwrap().data(), Some(&[3, 0, 0, 1][..]));
        assert_eq!(user.get("Kind").unwrap().number(), Some(0x1000_0001));
        assert_eq!(list.get("Time").unwrap().number(), Some(1_323_243_315));
        assert_eq!(list.get("None").unwrap().text(), Some(""));
        assert_eq!(list.get("On"), Some(&Value::Flag(true)));
        assert_eq!(list.get("Again").unwrap().text(), Some(""));
    }

    #[test]
    fn a_document_has_its_list_behind_what_it_is() {
        let text = "<?xml version=\"1.0\"?>\n<!DOCTYPE plist PUBLIC \"-//A//B\" \"c\">\n<!-- a > b --><plist version=\"1.0\">\
                    <array><false></false></array></plist>";
        assert_eq!(Value::parse(text.as_bytes()).unwrap().items(), [Value::Flag(false)]);
    }

    #[test]
    fn damaged_and_deep_lists_are_refused() {
        let deep = "<array>".repeat(100_000);
        for text in ["", "<dict>", "<dict><key>a</dict>", "<data>?</data>", "<b/>", &deep] {
            assert_eq!(Value::parse(text.as_bytes()), None, "{}", &text[..text.len().min(40)]);
        }
    }

    #[test]
    fn a_long_text_that_is_referred_to_is_shared() {
        let refers = "<reference IDREF=\"1\"/>".repeat(1000);
        let text = format!("<array><string ID=\"1\">{}</string>{refers}</array>", "a".repeat(1000));
        let list = Value::parse(text.as_bytes()).unwrap();
        let [Value::Text(first), .., Value::Text(last)] = list.items() else { panic!("{list:?}") };
        assert!(Arc::ptr_eq(first, last));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(edits in prop::collection::vec((0usize..500, any::<u8>()), 0..20)) {
            let mut text = LIST.as_bytes().to_vec();
            for (at, byte) in edits {
                let at = at % text.len();
                text[at] = byte;
            }
            let _ = Value::parse(&text);
        }
    }
}
