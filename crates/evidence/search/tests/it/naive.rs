//! A naive search of bytes: each pattern at each offset.

use cheetah_device::ByteRange;
use cheetah_search::{Order, TextEncoding};
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Offset, length, index of the pattern, and encoding.
pub type Place = (u64, u64, usize, String);

/// The hits in `runs` of the bytes, each searched for itself.
pub fn hits(order: &Order, bytes: &[u8], runs: &[ByteRange]) -> Vec<Place> {
    let mut all = Vec::new();
    for run in runs {
        let bytes = &bytes[run.offset as usize..run.end() as usize];
        let mut add = |start: usize, len: usize, pattern, encoding: TextEncoding| {
            all.push((run.offset + start as u64, len as u64, pattern, encoding.name()));
        };
        for (index, word) in order.words.iter().enumerate() {
            words(order, bytes, word, |start, len, encoding| add(start, len, index, encoding));
        }
        for (index, text) in order.expressions.iter().enumerate() {
            expression(bytes, text, |start, len| add(start, len, order.words.len() + index, TextEncoding::Utf8));
        }
    }
    all.sort_by_key(|place| (place.0, place.1, place.2));
    all
}

fn words(order: &Order, bytes: &[u8], word: &str, mut found: impl FnMut(usize, usize, TextEncoding)) {
    let mut forms: Vec<(Vec<u8>, TextEncoding)> = Vec::new();
    for encoding in &order.encodings {
        let spellings = if order.ignore_case { spellings(word) } else { vec![word.to_owned()] };
        for spelling in spellings {
            let Some(form) = spelling.chars().map(|c| encoding.encode(c)).collect::<Option<Vec<_>>>() else { continue };
            let form = form.concat();
            if !forms.iter().any(|(other, _)| *other == form) {
                forms.push((form, *encoding));
            }
        }
    }
    for (form, encoding) in forms {
        for start in 0..bytes.len() {
            if bytes[start..].starts_with(&form) {
                found(start, form.len(), encoding);
            }
        }
    }
}

/// A word with each of its letters in either case.
fn spellings(word: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for c in word.chars() {
        let mut cases = vec![c.to_string(), c.to_lowercase().to_string(), c.to_uppercase().to_string()];
        cases.sort();
        cases.dedup();
        all = all.iter().flat_map(|before| cases.iter().map(move |case| format!("{before}{case}"))).collect();
    }
    all
}

fn expression(bytes: &[u8], text: &str, mut found: impl FnMut(usize, usize)) {
    let config = syntax::Config::new().unicode(false).utf8(false);
    let regex = Regex::builder().syntax(config).build(text).unwrap();
    let mut furthest = 0;
    for start in 0..bytes.len() {
        let here = Input::new(bytes).range(start..).anchored(Anchored::Yes);
        if let Some(matched) = regex.search(&here).filter(|matched| matched.end() > furthest) {
            furthest = matched.end();
            found(start, matched.len());
        }
    }
}
