//! What strings need.

use cheetah_yara::{Why, split};

use super::atoms;

fn of(string: &str) -> Result<Vec<String>, Why> {
    atoms(&format!("rule tried {{ strings: $a = {string} condition: $a }}"))
}

#[track_caller]
fn needs(string: &str, wanted: &[&str]) {
    assert_eq!(of(string), Ok(wanted.iter().map(|one| (*one).to_owned()).collect()), "{string}");
}

#[test]
fn text_is_searched_in_each_of_its_forms() {
    needs(r#""geheim""#, &["geheim"]);
    needs(r#""geheim" fullword private"#, &["geheim"]);
    needs(r#""a\x00\xffb\\c""#, &[r"a\x00\xffb\\c"]);
    needs(r#""key!" wide"#, &[r"k\x00e\x00y\x00!"]);
    needs(r#""key!" ascii wide"#, &[r"k\x00e\x00y\x00!", "key!"]);
    needs(r#""key!" xor(1)"#, &["jdx "]);
    assert_eq!(of(r#""geheim" xor"#).unwrap().len(), 256);
}

#[test]
fn the_case_of_letters_is_ignored_by_the_search() {
    let found = split(&[r#"rule tried { strings: $a = "GeHeim" nocase condition: $a }"#]);
    let atoms: Vec<_> = found.atoms.iter().map(|atom| (atom.bytes.as_slice(), atom.ignore_case)).collect();
    assert_eq!(atoms, [(&b"geheim"[..], true)]);
}

#[test]
fn base64_is_searched_at_each_of_its_three_places() {
    let found = of(r#""This program cannot" base64"#).unwrap();
    for part in ["VGhpcyBwcm9ncmFtIGNhbm5vd", "RoaXMgcHJvZ3JhbSBjYW5ub3", "UaGlzIHByb2dyYW0gY2Fubm90"] {
        assert!(found.iter().any(|atom| part.contains(atom.as_str())), "{part} {found:?}");
    }
    let alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/";
    assert_eq!(of(&format!("\"This program cannot\" base64(\"{alphabet}\")")), Err(Why::Strings));
}

#[test]
fn hexadecimal_strings_are_searched_by_bytes_that_are_fixed() {
    needs("{ 01 02 03 04 05 }", &[r"\x01\x02\x03\x04\x05"]);
    needs("{ 01 02 ?? 03 04 05 06 }", &[r"\x03\x04\x05\x06"]);
    needs("{ 01 02 03 04 [2-4] 05 }", &[r"\x01\x02\x03\x04"]);
    needs("{ ~00 01 02 03 04 0? }", &[r"\x01\x02\x03\x04"]);
    needs("{ 99 ( 01 02 03 04 | 05 06 07 08 ) }", &[r"\x01\x02\x03\x04", r"\x05\x06\x07\x08"]);
    for string in ["{ 01 02 [1-2] 03 04 }", "{ 99 ( 01 02 03 04 | 05 ) }", "{ 00 00 00 00 00 }"] {
        assert_eq!(of(string), Err(Why::Strings), "{string}");
    }
}

#[test]
fn expressions_are_searched_by_literals_that_they_must_have() {
    needs("/secret[0-9]+/", &["secret"]);
    needs("/[0-9]+(first|second)x?/", &["first", "second"]);
    needs("/(word){2}[a-z]*/", &["word"]);
    needs(r"/\x4d\x5a\x90\xff/", &[r"MZ\x90\xff"]);
    needs("/key!/ wide", &[r"k\x00e\x00y\x00!"]);
    let found = split(&["rule tried { strings: $a = /SeCret/i condition: $a }"]);
    assert!(found.atoms.iter().all(|atom| atom.ignore_case && atom.bytes == b"secret"));
    for string in ["/[a-z]+@[a-z]+/", "/(secret)?x/", "/(secret|.)/", "/(word)*/", "/a.b.c.d/"] {
        assert_eq!(of(string), Err(Why::Strings), "{string}");
    }
}

#[test]
fn an_expression_whose_letters_have_cases_beyond_ascii_has_no_atom() {
    // `s` is also found as U+017F, and `k` as U+212A, the sign of the kelvin.
    for string in ["/(?u)secret/i", "/(?u:secret)[0-9]/ nocase", "/(?x) ( ?u: secret )/i", "/(second|(?u)secret)/i"] {
        assert_eq!(of(string), Err(Why::Strings), "{string}");
    }
    needs("/(?u)secret/", &["secret"]);
    needs("/(?-u)secret/i", &["secret"]);
}
