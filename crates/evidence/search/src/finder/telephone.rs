//! Telephone numbers.

use crate::expression::{Candidate, Class, Lead, Sign};

/// An international number, or a North American one with its separators.
pub const NUMBER: &str = r"\+[1-9][0-9]{0,2}[ ./-]?(?:\([0-9]{1,5}\)[ ./-]?)?[0-9](?:[ ./-]?[0-9]){4,13}|(?:\([0-9]{3}\) ?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}";

/// Where one is looked for: the shortest North American number has twelve characters, and the shortest international one six behind the
/// `+`.
pub static LEAD: Lead = Lead {
    sign: Sign::RunOrText {
        class: Class::of("0-9() .-"),
        len: 12,
        text: "+",
        then: Class::of("0-9() ./-"),
        then_len: 6,
    },
    not_after: Class::of("A-Za-z0-9+.-"),
    first: Class::of("0-9+("),
};

/// The number of digits of an international number (ITU-T E.164).
const DIGITS: std::ops::RangeInclusive<usize> = 7..=15;

/// A telephone number.
pub fn number(candidate: &Candidate<'_>) -> Option<usize> {
    let is_apart = |byte: Option<u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
    let continues = candidate.before.is_some_and(|byte| b"+-.".contains(&byte));
    let digits = candidate.text.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_number = is_apart(candidate.before) && !continues && is_apart(candidate.after) && DIGITS.contains(&digits);
    is_number.then_some(candidate.text.len())
}
