//! The few elements of a store's answers that are used. No I/O.

/// Returns the texts of the elements with this name, in order. Elements with attributes are left out: those that are used
/// have none.
pub fn elements<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once(&begin)?;
        let (content, behind) = behind.split_once(&end)?;
        rest = behind;
        Some(content)
    })
}

/// Returns the unescaped text of the first element with this name.
pub fn element(text: &str, name: &str) -> Option<String> {
    elements(text, name).next().map(unescaped)
}

/// Replaces references to characters. Others stay as they are.
fn unescaped(text: &str) -> String {
    let mut pieces = text.split('&');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let character = |name: &str| match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => {
                let number = name.strip_prefix('#')?;
                let number = match number.strip_prefix('x') {
                    Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
                    None => number.parse(),
                };
                char::from_u32(number.ok()?)
            }
        };
        match piece.split_once(';').and_then(|(name, rest)| Some((character(name)?, rest))) {
            Some((character, rest)) => {
                whole.push(character);
                whole.push_str(rest);
            }
            None => {
                whole.push('&');
                whole.push_str(piece);
            }
        }
    }
    whole
}

/// Returns a text that can stand in an element.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_in_order_and_unescaped() {
        let text = "<L xmlns=\"x\"><Id>a&amp;b</Id><P><N>1</N><E>&quot;e&#34;&#x21;</E></P><P><N>2</N></P></L>";
        assert_eq!(element(text, "Id").as_deref(), Some("a&b"));
        let parts: Vec<_> = elements(text, "P").map(|part| (element(part, "N"), element(part, "E"))).collect();
        assert_eq!(parts, [(Some("1".into()), Some("\"e\"!".into())), (Some("2".into()), None)]);
        assert_eq!(element(text, "Absent"), None);
        assert_eq!(element("<a>", "a"), None);
        assert_eq!(element("<a>x & y&zz;&#xd800;</a>", "a").as_deref(), Some("x & y&zz;&#xd800;"));
        assert_eq!(element(&format!("<a>{}</a>", escaped("<\"&\">")), "a").as_deref(), Some("<\"&\">"));
    }
}
