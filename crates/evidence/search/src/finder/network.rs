//! Addresses of IP.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::expression::{Candidate, Class, Lead, Sign};

/// Four numbers; a fifth shows that it is something else, such as an object identifier.
pub const IPV4: &str = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?:\.[0-9])?";

/// Where one is looked for: at the dot after its first number.
pub static IPV4_LEAD: Lead = Lead {
    sign: Sign::Mark { text: ".", class: Class::of("0-9"), before_max: 3 },
    not_after: Class::of("A-Za-z0-9_."),
    first: Class::of("0-9"),
};

/// Groups of hexadecimal digits, and an IPv4 address at their end.
pub const IPV6: &str = r"[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,8}(?:(?:\.[0-9]{1,3}){3})?";

/// Where one is looked for: at the colon after its first group, which may be empty.
pub static IPV6_LEAD: Lead = Lead {
    sign: Sign::Mark { text: ":", class: Class::of("0-9A-Fa-f"), before_max: 4 },
    not_after: Class::of("A-Za-z0-9:._"),
    first: Class::of("0-9A-Fa-f:"),
};

/// The fewest digits of an IPv6 address: fewer are found in source code everywhere, as in `a::b`.
const IPV6_DIGITS_MIN: usize = 4;

/// An IPv4 address.
pub fn ipv4(candidate: &Candidate<'_>) -> Option<usize> {
    let ends = |byte: Option<u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric() && byte != b'_');
    let text = std::str::from_utf8(candidate.text).ok()?;
    let is_alone = ends(candidate.before) && candidate.before != Some(b'.') && ends(candidate.after);
    (is_alone && text.parse::<Ipv4Addr>().is_ok()).then_some(text.len())
}

/// An IPv6 address, without the colon of the sentence around it.
pub fn ipv6(candidate: &Candidate<'_>) -> Option<usize> {
    if candidate.continues_a_word() || candidate.before.is_some_and(|byte| b":._".contains(&byte)) {
        return None;
    }
    let whole = std::str::from_utf8(candidate.text).ok()?;
    let text = whole.strip_suffix(':').filter(|text| !text.ends_with(':')).unwrap_or(whole);
    let is_cut = candidate.follower(text.len()).is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    (!is_cut && digits >= IPV6_DIGITS_MIN && text.parse::<Ipv6Addr>().is_ok()).then_some(text.len())
}
