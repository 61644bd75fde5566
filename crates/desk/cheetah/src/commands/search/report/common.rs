//! What the sections of the page have in common.

use maud::{Markup, html};
use time::OffsetDateTime;
use time::macros::format_description;

/// A time, to the second.
pub fn moment(time: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    // Fails only for years of more than four digits.
    time.format(format).unwrap_or_default()
}

/// A number with narrow blanks between groups of digits.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

/// The title of a section.
pub fn section(number: u8, id: &str, title: &str) -> Markup {
    html! { h2 id=(id) { span class="section-number" { (number) } (title) } }
}

/// Numbers, each with what it counts.
pub fn numbers(title: &str, rows: &[(&str, u64)]) -> Markup {
    html! {
        h3 { (title) }
        dl class="lines" {
            @for (what, number) in rows { div { dt { (what) } dd { (count(*number)) } } }
        }
    }
}
