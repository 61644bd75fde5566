//! The tables that are printed.

use std::fmt::Write;

use crate::ways::{NAMES, Way};

/// A list of words, measured.
pub struct Row {
    /// What it is.
    pub what: String,
    /// The number of hits, which all ways have found.
    pub hits: usize,
    /// The ways that could find them.
    pub ways: Vec<Way>,
}

/// The tables in Markdown: rates, with the slowest and the fastest round; and times to prepare the words.
pub fn shown(rows: &[Row]) -> String {
    let mut text = String::new();
    add(&mut text, "MiB/s", rows, |way| {
        let mut rates = way.rates.clone();
        rates.sort_unstable_by(f64::total_cmp);
        match rates[..] {
            [] => "–".to_owned(),
            [least, .., most] => format!("{:.0} [{least:.0}–{most:.0}]", rates[rates.len() / 2]),
            [only] => format!("{only:.0}"),
        }
    });
    text.push('\n');
    add(&mut text, "prepared in ms", rows, |way| format!("{:.1}", way.prepared.as_secs_f64() * 1e3));
    text
}

fn add(text: &mut String, what: &str, rows: &[Row], cell: impl Fn(&Way) -> String) {
    // Writing to a text does not fail.
    let _ = writeln!(text, "| {what} | {} | hits |", NAMES.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(NAMES.len() + 2));
    for row in rows {
        let cells = NAMES.map(|name| row.ways.iter().find(|way| way.name == name).map_or("–".to_owned(), &cell));
        let _ = writeln!(text, "| {} | {} | {} |", row.what, cells.join(" | "), row.hits);
    }
}
