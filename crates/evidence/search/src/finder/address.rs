//! E-mail addresses and URLs.

use super::domains::domain_len;
use crate::expression::{Candidate, Class, Lead, Sign};

/// A local part, @ and a domain.
pub const EMAIL: &str = r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}";

/// Where one is looked for.
pub static EMAIL_LEAD: Lead = Lead {
    sign: Sign::Mark { text: "@", class: Class::of("A-Za-z0-9._%+-"), before_max: 64 },
    not_after: Class::of("A-Za-z0-9_%+-"),
    first: Class::of("A-Za-z0-9_%+-"),
};

/// A scheme and the characters that a URL may have.
pub const URL: &str =
    r"(?i:https?|ftps?|sftp|ssh|smb|file|ldaps?|rtsp|wss?)://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]{1,2000}";

/// Where one is looked for: the longest schemes have five letters.
pub static URL_LEAD: Lead = Lead {
    sign: Sign::Mark { text: "://", class: Class::of("A-Za-z"), before_max: 5 },
    not_after: Class::of("A-Za-z0-9"),
    first: Class::of("A-Za-z"),
};

/// An e-mail address.
pub fn email(candidate: &Candidate<'_>) -> Option<usize> {
    let at = candidate.text.iter().position(|byte| *byte == b'@')?;
    let local = candidate.text.get(..at)?;
    let continues = candidate.continues_a_word() || candidate.before.is_some_and(|byte| b"_%+-".contains(&byte));
    let is_dotted = local.starts_with(b".") || local.ends_with(b".") || local.windows(2).any(|pair| pair == b"..");
    if continues || is_dotted {
        return None;
    }
    Some(at + 1 + domain_len(candidate, at + 1)?)
}

/// A URL, without the punctuation of the sentence around it.
pub fn url(candidate: &Candidate<'_>) -> Option<usize> {
    if candidate.continues_a_word() {
        return None;
    }
    let text = candidate.text;
    let host = text.windows(3).position(|three| three == b"://")? + 3;
    let mut len = text.len();
    while let Some(last) = text.get(..len).and_then(<[u8]>::last) {
        let is_unpaired = |open: u8, close: u8| {
            let count = |byte: u8| text.iter().take(len).filter(|other| **other == byte).count();
            *last == close && count(close) > count(open)
        };
        if !b".,;:!?'".contains(last) && !is_unpaired(b'(', b')') && !is_unpaired(b'[', b']') {
            break;
        }
        len -= 1;
    }
    let first = text.get(host)?;
    (len > host && (first.is_ascii_alphanumeric() || b"[/".contains(first))).then_some(len)
}
