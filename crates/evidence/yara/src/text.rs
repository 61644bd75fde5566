//! The atoms of text strings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use yara_x_parser::ast::{PatternModifier, PatternModifiers};

use crate::need::{Need, either, literal};

/// What occurs where a text with these modifiers is found.
pub fn need(text: &[u8], modifiers: &PatternModifiers<'_>) -> Need {
    let ignore_case = modifiers.nocase().is_some();
    let (mut is_plain, mut is_wide) = (modifiers.ascii().is_some(), modifiers.wide().is_some());
    is_plain |= !is_wide;
    let (base64, base64wide) = (modifiers.base64(), modifiers.base64wide());
    if [base64, base64wide].into_iter().flatten().any(has_alphabet) {
        return None;
    }
    if base64.is_some() || base64wide.is_some() {
        // More forms than are searched do no harm.
        (is_plain, is_wide) = (true, true);
    }
    let mut forms = Vec::new();
    if is_plain {
        forms.push(text.to_vec());
    }
    if is_wide {
        forms.push(widened(text));
    }
    if let Some(PatternModifier::Xor { start, end, .. }) = modifiers.xor() {
        forms = (*start..=*end).flat_map(|key| with_key(text, &forms, is_wide, key)).collect();
    }
    let mut encoded: Vec<Vec<u8>> = Vec::new();
    for part in forms.iter().flat_map(|form| base64_parts(form)) {
        if base64wide.is_some() {
            encoded.push(widened(&part));
        }
        if base64.is_some() {
            encoded.push(part);
        }
    }
    either(forms.iter().chain(&encoded).map(|form| literal(form, ignore_case)))
}

fn has_alphabet(modifier: &PatternModifier<'_>) -> bool {
    match modifier {
        PatternModifier::Base64 { alphabet, .. } | PatternModifier::Base64Wide { alphabet, .. } => alphabet.is_some(),
        _ => false,
    }
}

/// Text as UTF-16, as YARA does it: with a zero after each byte.
pub fn widened(text: &[u8]) -> Vec<u8> {
    text.iter().flat_map(|byte| [*byte, 0]).collect()
}

/// The forms under a key: of wide text, that in which the zeros are changed, and that in which they are not.
fn with_key(text: &[u8], forms: &[Vec<u8>], is_wide: bool, key: u8) -> Vec<Vec<u8>> {
    let changed = |bytes: &[u8]| bytes.iter().map(|byte| byte ^ key).collect::<Vec<_>>();
    let narrow = is_wide.then(|| widened(&changed(text)));
    forms.iter().map(|form| changed(form)).chain(narrow).collect()
}

/// The characters of Base64 that the text alone decides, for each of the three places at which it may stand in what is encoded.
fn base64_parts(text: &[u8]) -> Vec<Vec<u8>> {
    let part = |before: usize| {
        let all = [&vec![0; before][..], text].concat();
        let encoded = STANDARD_NO_PAD.encode(&all);
        let decided = (before * 8).div_ceil(6)..all.len() * 8 / 6;
        encoded.as_bytes().get(decided).unwrap_or_default().to_vec()
    };
    (0..3).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_a_text_is_found_wherever_it_stands() {
        let parts = base64_parts(b"This program cannot");
        for before in 0..9 {
            let all = [&b"xyzxyzxyz"[..before], b"This program cannot", b" be run"].concat();
            let encoded = base64::engine::general_purpose::STANDARD.encode(all);
            assert!(parts.iter().any(|part| encoded.contains(str::from_utf8(part).unwrap())), "{before}");
        }
        assert!(base64_parts(b"").iter().all(Vec::is_empty));
    }

    #[test]
    fn wide_text_under_a_key_is_found_with_its_zeros_changed_or_not() {
        let forms = with_key(b"ab", &[b"ab".to_vec(), widened(b"ab")], true, 1);
        assert_eq!(forms, [b"`c".to_vec(), b"`\x01c\x01".to_vec(), b"`\0c\0".to_vec()]);
    }
}
