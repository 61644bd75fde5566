use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::encoding::TextEncoding;
use crate::expression::{Expression, Parsed};
use crate::found::Found;

/// The hits of a finder in a text, in an encoding.
fn found_in(finder: Finder, bytes: &[u8], encoding: TextEncoding) -> Vec<(usize, usize)> {
    found_by(&tried_everywhere(finder, encoding).led_by(finder.lead()), bytes)
}

/// The expression of a finder, without its lead.
fn tried_everywhere(finder: Finder, encoding: TextEncoding) -> Expression {
    let (expression, check) = finder.rule();
    Parsed::new(expression, false).unwrap().compiled(0, encoding, Some(check)).unwrap().unwrap()
}

fn found_by(compiled: &Expression, bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    let note = |found: Found| {
        all.push((found.start, found.len));
        Ok(())
    };
    compiled.scan(bytes, note).unwrap();
    all
}

#[track_caller]
fn assert_found(finder: Finder, text: &str, expected: &[&str]) {
    let hits = found_in(finder, text.as_bytes(), TextEncoding::Utf8);
    let hits: Vec<_> = hits.into_iter().map(|(start, len)| &text[start..start + len]).collect();
    assert_eq!(hits, expected, "{finder} in {text}");
    // The same text in UTF-16 has the same hits.
    for (encoding, bytes) in
        [(TextEncoding::Utf16Le, u16::to_le_bytes as fn(u16) -> [u8; 2]), (TextEncoding::Utf16Be, u16::to_be_bytes)]
    {
        let wide: Vec<u8> = text.encode_utf16().flat_map(bytes).collect();
        let hits = found_in(finder, &wide, encoding);
        let units: Vec<u16> = text.encode_utf16().collect();
        let hits: Vec<_> = hits
            .into_iter()
            .map(|(start, len)| String::from_utf16(&units[start / 2..(start + len) / 2]).unwrap())
            .collect();
        assert_eq!(hits, expected, "{finder} in {text} in {encoding}");
    }
}

#[test]
fn addresses_of_mail_are_found_in_the_text_around_them() {
    assert_found(Finder::Email, "write to john.doe+x@mail.example.co.uk, or", &["john.doe+x@mail.example.co.uk"]);
    assert_found(Finder::Email, "<a@b.de>;b@c.com.", &["a@b.de", "b@c.com"]);
    assert_found(Finder::Email, "a@example.com.The next", &["a@example.com"]);
    assert_found(Finder::Email, "..a@b.org a..b@c.org ü@b.de", &["a@b.org", "b@c.org"]);
    assert_found(Finder::Email, "a@b a@b.dll @b.de a@b.com1 a@-b.de", &[]);
}

#[test]
fn urls_end_before_the_punctuation_of_the_sentence() {
    assert_found(Finder::Url, "(see HTTPS://a.de/x_(y)?q=1#f).", &["HTTPS://a.de/x_(y)?q=1#f"]);
    assert_found(Finder::Url, "file:///etc/passwd, ftp://u:p@h:21/", &["file:///etc/passwd", "ftp://u:p@h:21/"]);
    assert_found(Finder::Url, "xhttp://a.de http://. http:/a.de", &[]);
}

#[test]
fn domains_have_a_known_top_level() {
    assert_found(Finder::Domain, "at www.example.com and x.y.museum.", &["www.example.com", "x.y.museum"]);
    assert_found(Finder::Domain, "kernel32.dll a.b.c 1.5 -a.de _b.de a-.de", &[]);
}

#[test]
fn addresses_of_ip_are_whole_and_valid() {
    assert_found(Finder::Ipv4, "from 10.0.0.7, 255.255.255.255.", &["10.0.0.7", "255.255.255.255"]);
    assert_found(Finder::Ipv4, "256.1.1.1 1.2.3 v1.2.3.4 1.3.6.1.4.1 01.2.3.4", &[]);
    assert_found(Finder::Ipv6, "[2001:db8::1]:80 fe80::1: up", &["2001:db8::1", "fe80::1"]);
    assert_found(Finder::Ipv6, "::ffff:10.0.0.7 1:2:3:4:5:6:7:8", &["::ffff:10.0.0.7", "1:2:3:4:5:6:7:8"]);
    assert_found(Finder::Ipv6, "12:34:56 a::b std::dec 1:2:3:4:5:6:7:8:9", &[]);
}

#[test]
fn telephone_numbers_are_international_or_north_american() {
    assert_found(Finder::Telephone, "call +49 (0)30 901820 or (202) 555-0143", &["+49 (0)30 901820", "(202) 555-0143"]);
    assert_found(Finder::Telephone, "202-555-0143 +1.202.555.0143", &["202-555-0143", "+1.202.555.0143"]);
    assert_found(Finder::Telephone, "2026-11-27 1202-555-01432 +12 +1234567890123456", &[]);
}

#[test]
fn numbers_of_cards_have_an_issuer_its_length_and_their_check_digit() {
    assert_found(Finder::Card, "4111 1111 1111 1111 12/29", &["4111 1111 1111 1111"]);
    assert_found(
        Finder::Card,
        "%B4111111111111111^DOE ;5500005555555559=29",
        &["4111111111111111", "5500005555555559"],
    );
    assert_found(Finder::Card, "3782-822463-10005, 30569309025904", &["3782-822463-10005", "30569309025904"]);
    assert_found(Finder::Card, "4111111111111112 0000000000000000 0.4111111111111111", &[]);
    assert_found(Finder::Card, "a4111111111111111 41111111111111110 4111-1111 1111-1111", &[]);
}

#[test]
fn numbers_of_bank_accounts_have_the_length_of_their_country_and_their_check_digits() {
    assert_found(Finder::Iban, "IBAN DE89 3704 0044 0532 0130 00 Bank", &["DE89 3704 0044 0532 0130 00"]);
    assert_found(
        Finder::Iban,
        "GB82WEST12345698765432, NO9386011117947",
        &["GB82WEST12345698765432", "NO9386011117947"],
    );
    assert_found(Finder::Iban, "DE88370400440532013000 XX82WEST12345698765432 DE893704004405320130001", &[]);
}

#[test]
fn addresses_of_bitcoin_have_their_checksum() {
    for address in [
        "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
        "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy",
        "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
    ] {
        assert_found(Finder::Bitcoin, &format!("pay {address}."), &[address]);
    }
    assert_found(Finder::Bitcoin, "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb", &[]);
    assert_found(Finder::Bitcoin, "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5", &[]);
}

#[test]
fn each_kind_is_known_by_its_name() {
    assert!(Finder::ALL.iter().all(|finder| finder.name().parse() == Ok(*finder)));
    assert_eq!("mail".parse::<Finder>(), Err(UnknownFinder("mail".into())));
}

#[test]
fn headers_of_files_are_found_in_the_bytes_around_them() {
    let program = [b"MZ".as_slice(), &[0; 58], &[0x80, 0, 0, 0], &[7; 64], b"PE\0\0"].concat();
    let elsewhere = [b"MZ".as_slice(), &[0; 58], &[0x90, 0, 0, 0], &[7; 64], b"PE\0\0"].concat();
    let hive = [b"regf".as_slice(), &[3; 16], &[1, 0, 0, 0, 5, 0, 0, 0]].concat();
    let film = [b"\x1a\x45\xdf\xa3".as_slice(), &[1; 12], b"\x42\x82\x84webm"].concat();
    let found: [(FileKind, &[u8], usize); 12] = [
        (FileKind::Jpeg, b"\xff\xd8\xff\xe0\0\x10JFIF", 4),
        (FileKind::Png, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16),
        (FileKind::Pdf, b"%PDF-1.7\n", 8),
        (FileKind::Zip, b"PK\x03\x04\x14\0\x08\x08\x08\0", 8),
        (FileKind::Gzip, b"\x1f\x8b\x08\x08abcd\0\x03x", 10),
        (FileKind::Sqlite, b"SQLite format 3\0", 16),
        (FileKind::Mp4, b"\0\0\0\x20ftypisom", 12),
        (FileKind::Riff, b"RIFF\x10\0\0\0WAVEfmt ", 12),
        (FileKind::Matroska, &film, film.len()),
        (FileKind::Pe, &program, 2),
        (FileKind::Registry, &hive, hive.len()),
        (FileKind::Lnk, b"L\0\0\0\x01\x14\x02\0\0\0\0\0\xc0\0\0\0\0\0\0F", 20),
    ];
    for (kind, header, len) in found {
        for before in [&b""[..], b"a", b"some text before "] {
            let bytes = [before, header, &[9; 40]].concat();
            let hits = found_in(Finder::Header(kind), &bytes, TextEncoding::Utf8);
            assert_eq!(hits, [(before.len(), len)], "{kind:?}");
        }
    }
    let other: [(FileKind, &[u8]); 4] = [
        (FileKind::Pe, &elsewhere),
        (FileKind::Gzip, b"\x1f\x8b\x08\x80abcd\0\x03"),
        (FileKind::Jpeg, b"\xff\xd8\xff\0"),
        (FileKind::Png, b"\x89PNG\n\x1a\n\0\0\0\rIHDR"),
    ];
    for (kind, bytes) in other {
        assert_eq!(found_in(Finder::Header(kind), bytes, TextEncoding::Utf8), [], "{kind:?}");
    }
}

#[test]
fn every_finder_has_a_name_of_its_own_and_an_expression() {
    let all: Vec<_> = Finder::ALL.into_iter().chain(FileKind::ALL.map(Finder::Header)).collect();
    for finder in &all {
        assert_eq!(finder.name().parse(), Ok(*finder));
        let (expression, check) = finder.rule();
        Parsed::new(expression, false).unwrap().compiled(0, TextEncoding::Utf8, Some(check)).unwrap().unwrap();
    }
    assert_eq!("jpg".parse::<FileKind>(), Err(UnknownFileKind("jpg".to_owned())));
}

/// Parts of text of all kinds: some are found, others nearly are.
const PARTS: [&str; 28] = [
    "anna.koch@example.com",
    "..x@a-b.co.uk",
    "@",
    "https://www.example.org/kasse?beleg=(7).",
    "://",
    "Ftp",
    "192.168.17.4",
    "1.3.6.1.4.1",
    "2001:db8:85a3:8d3:1319:8a2e:370:7348",
    "fe80::1:",
    "::ffff:10.0.0.7",
    "+49 (0)30 901820",
    "(202) 555-0143",
    "202-555-0143",
    "+12/3.4-5",
    "+",
    "4111 1111 1111 1111",
    "B378282246310005",
    "DE89 3704 0044 0532 0130 00",
    "GB82WEST12345698765432",
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
    "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
    "bc1",
    "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy",
    "     ",
    "-",
    "\u{0}",
    "\u{e4}",
];

/// Text of such parts, of which some are cut, and of characters that stand in them or beside them.
fn text() -> impl Strategy<Value = String> {
    let part = (select(PARTS.to_vec()), 0usize..50, 0usize..50)
        .prop_map(|(part, from, len)| part.chars().skip(from % part.len()).take(len.max(1)).collect::<String>());
    let whole = select(PARTS.to_vec()).prop_map(str::to_owned);
    let beside = "[0-9a-fA-FB1zZ .:/@_%+()-]{1,4}";
    let digits = "[0-9][0-9 -]{6,40}";
    let pieces = prop_oneof![4 => whole, 2 => part, 3 => beside, 1 => digits];
    prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
}

/// An expression that is tried everywhere, and the same with its lead.
struct Both {
    finder: Finder,
    encoding: TextEncoding,
    everywhere: Expression,
    led: Expression,
}

/// Those of all kinds in all ways to write ASCII, compiled once.
static BOTH: LazyLock<Vec<Both>> = LazyLock::new(|| {
    let encodings = [TextEncoding::Utf8, TextEncoding::Utf16Le, TextEncoding::Utf16Be];
    let both = |finder: Finder, encoding| {
        let led = tried_everywhere(finder, encoding).led_by(finder.lead());
        Both { finder, encoding, everywhere: tried_everywhere(finder, encoding), led }
    };
    let texts = Finder::ALL.into_iter().filter(|finder| finder.is_text());
    texts.flat_map(|finder| encodings.map(|encoding| both(finder, encoding))).collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_finder_that_follows_its_lead_finds_what_it_finds_without_one(text in text(), padding in 0usize..3) {
        let wide = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        for bytes in [text.clone().into_bytes(), wide(u16::to_le_bytes), wide(u16::to_be_bytes)] {
            // Characters of UTF-16 begin at even and at odd places, and those of one order of bytes look like the other one.
            let bytes = [b"x".repeat(padding), bytes.clone(), b"-".to_vec(), bytes].concat();
            for Both { finder, encoding, everywhere, led } in BOTH.iter() {
                prop_assert_eq!(found_by(led, &bytes), found_by(everywhere, &bytes), "{} in {}", finder, encoding);
            }
        }
    }
}
