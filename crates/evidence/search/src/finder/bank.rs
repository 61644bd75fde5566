//! International bank account numbers (ISO 13616).

use crate::expression::{Candidate, Class, Lead, Sign};

/// A country, two check digits and the account, with or without blanks.
pub const IBAN: &str = r"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,29}";

/// Where one is looked for.
pub static IBAN_LEAD: Lead = Lead {
    sign: Sign::Run { class: Class::of("A-Z0-9 "), len: 15 },
    not_after: Class::of("A-Za-z0-9"),
    first: Class::of("A-Z"),
};

/// The length of the numbers of each country.
const COUNTRIES: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 \
ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 \
LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 \
SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30";

/// A bank account number.
pub fn iban(candidate: &Candidate<'_>) -> Option<usize> {
    if candidate.continues_a_word() {
        return None;
    }
    let country = std::str::from_utf8(candidate.text.get(..2)?).ok()?;
    let count: usize = COUNTRIES.split(' ').find_map(|entry| entry.strip_prefix(country))?.parse().ok()?;
    let mut places = candidate.text.iter().enumerate().filter(|(_, byte)| **byte != b' ');
    let len = places.nth(count - 1)?.0 + 1;
    let is_cut = candidate.follower(len).is_some_and(|byte| byte.is_ascii_alphanumeric());
    let characters: Vec<u8> = candidate.text.iter().take(len).filter(|byte| **byte != b' ').copied().collect();
    (!is_cut && remainder(&characters) == 1).then_some(len)
}

/// The remainder by 97 of the number in which letters count from 10, with the first four characters at the end.
fn remainder(characters: &[u8]) -> u32 {
    let (start, account) = characters.split_at(characters.len().min(4));
    account.iter().chain(start).fold(0, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte.saturating_sub(b'A')) + 10) % 97,
    })
}
