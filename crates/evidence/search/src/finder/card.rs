//! Numbers of payment cards.

use crate::expression::{Candidate, Class, Lead, Sign};

/// Digits, alone or in groups.
pub const NUMBER: &str = r"[0-9](?:[ -]?[0-9]){11,18}";

/// Where one is looked for: also after B.
pub static LEAD: Lead = Lead {
    sign: Sign::Run { class: Class::of("0-9 -"), len: 12 },
    not_after: Class::of("AC-Za-z0-9._-"),
    first: Class::of("0-9"),
};

/// The number of digits in a group.
const GROUP_DIGITS: std::ops::RangeInclusive<usize> = 3..=7;

/// A card's number: the longest part of the digits that is one.
pub fn number(candidate: &Candidate<'_>) -> Option<usize> {
    // On the first track of a magnetic stripe, B precedes the number; on the second, D may follow.
    match candidate.before {
        Some(b'B') => {}
        Some(byte) if byte.is_ascii_alphanumeric() || b".-_".contains(&byte) => return None,
        _ => {}
    }
    let ends = candidate.text.iter().enumerate().filter(|(_, byte)| byte.is_ascii_digit()).map(|(at, _)| at + 1);
    let ends: Vec<_> = ends.collect();
    ends.into_iter().rev().find(|len| {
        let is_apart = candidate.follower(*len).is_none_or(|byte| byte == b'D' || !byte.is_ascii_alphanumeric());
        is_apart && candidate.text.get(..*len).is_some_and(is_card)
    })
}

fn is_card(text: &[u8]) -> bool {
    let digits: Vec<u8> = text.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0').collect();
    let is_one_digit = digits.iter().all(|digit| digits.first() == Some(digit));
    is_grouped(text) && !is_one_digit && lengths(&digits).contains(&digits.len()) && luhn(&digits)
}

/// Whether the digits have no separators, or always the same one between groups.
fn is_grouped(text: &[u8]) -> bool {
    let mut separators = text.iter().filter(|byte| !byte.is_ascii_digit());
    let Some(separator) = separators.next() else { return true };
    separators.all(|other| other == separator)
        && text.split(|byte| byte == separator).all(|group| GROUP_DIGITS.contains(&group.len()))
}

/// The lengths of the numbers that begin like this: those of the large issuers.
fn lengths(digits: &[u8]) -> std::ops::RangeInclusive<usize> {
    let start = |count: usize| digits.iter().take(count).fold(0u32, |number, digit| number * 10 + u32::from(*digit));
    match (start(1), start(2), start(3), start(4)) {
        // Visa; those of 13 digits were issued until the nineties.
        (4, ..) if digits.len() == 13 => 13..=13,
        (4, ..) if digits.len() == 19 => 19..=19,
        (4, ..) => 16..=16,
        // Mastercard.
        (_, 51..=55, ..) | (_, _, _, 2221..=2720) => 16..=16,
        // American Express.
        (_, 34 | 37, ..) => 15..=15,
        // Diners Club.
        (_, 36 | 38 | 39, ..) | (_, _, 300..=305, _) => 14..=14,
        // Discover, JCB, UnionPay.
        (_, 62 | 65, ..) | (_, _, 644..=649, _) | (_, _, _, 6011 | 3528..=3589) => 16..=19,
        // Maestro.
        (_, _, _, 5018 | 5020 | 5038 | 5893 | 6304 | 6759 | 6761..=6763) => 12..=19,
        _ => 0..=0,
    }
}

/// Whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B).
fn luhn(digits: &[u8]) -> bool {
    let weighted = digits.iter().rev().enumerate().map(|(place, digit)| match (place % 2, digit * 2) {
        (0, _) => u32::from(*digit),
        (_, double) if double > 9 => u32::from(double) - 9,
        (_, double) => u32::from(double),
    });
    weighted.sum::<u32>() % 10 == 0
}
