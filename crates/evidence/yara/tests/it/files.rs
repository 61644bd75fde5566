//! Files with several rules.

use cheetah_yara::{ATOMS_MAX, Central, Why, needs_whole_files, split};

fn central(file: usize, rule: Option<&str>, why: Why) -> Central {
    Central { file, rule: rule.map(str::to_owned), why }
}

#[test]
fn rules_without_atoms_are_named_with_their_file_and_the_reason() {
    let first = r#"
        rule searched { strings: $a = "first word" condition: $a }
        rule size { condition: filesize > 10 }
        rule short { strings: $a = "ab" condition: $a }
    "#;
    let found = split(&[first, "rule broken {", "include \"other.yar\" rule every { condition: true }"]);
    assert_eq!(found.atoms.len(), 1);
    assert_eq!(
        found.central,
        [
            central(0, Some("size"), Why::Condition),
            central(0, Some("short"), Why::Strings),
            central(1, None, Why::NotParsed),
            central(2, None, Why::NotParsed),
        ]
    );
}

#[test]
fn a_rule_needs_what_the_rules_need_that_it_refers_to() {
    let source = r#"
        private rule word { strings: $a = "first word" condition: $a }
        private rule size { condition: filesize > 10 }
        rule both { condition: word and size }
        rule one { condition: size }
    "#;
    let found = split(&[source]);
    assert_eq!(found.atoms.iter().map(|atom| atom.bytes.as_slice()).collect::<Vec<_>>(), [b"first word"]);
    assert_eq!(found.central, [central(0, Some("one"), Why::Condition)]);
}

#[test]
fn a_private_rule_is_no_result_and_has_no_atoms_of_its_own() {
    let found = split(&[r#"private rule word { strings: $a = "first word" condition: $a }"#]);
    assert!(found.atoms.is_empty() && found.central.is_empty());
}

#[test]
fn a_variable_hides_a_rule_of_its_name() {
    let source = r#"
        rule word { strings: $a = "first word" condition: $a }
        rule hidden { condition: for any word in (1, 2) : (word) }
    "#;
    assert_eq!(split(&[source]).central, [central(0, Some("hidden"), Why::Condition)]);
}

#[test]
fn rules_beyond_the_limit_of_atoms_are_named() {
    let rules = ATOMS_MAX / 256 + 1;
    let rule = |number: usize| format!("rule r{number} {{ strings: $a = \"number {number}\" xor condition: $a }}\n");
    let source: String = (0..rules).map(rule).collect();
    let found = split(&[source.as_str()]);
    assert!(found.atoms.len() <= ATOMS_MAX);
    assert!(found.central.iter().all(|central| central.why == Why::TooMany) && !found.central.is_empty());
}

#[test]
fn no_text_makes_it_panic() {
    for text in ["", "rule", "\0", "rule a { condition: ", "\u{feff}rule a { condition: true }", "import \"pe\""] {
        split(&[text]);
    }
}

#[test]
fn rules_need_whole_files_unless_a_single_short_match_decides() {
    let rule = |string: &str, condition: &str| format!("rule one {{ strings: $a = {string} condition: {condition} }}");
    let needs = |string, condition| needs_whole_files(&[rule(string, condition).as_str()]);
    for string in [
        "\"first word\" wide nocase",
        "\"first word\" fullword",
        "{ 4d 5a [2-9] ( 00 | 01 02 ) ?? }",
        "/first [a-z]{1,9}/",
    ] {
        assert!(!needs(string, "$a") && !needs(string, "any of them") && !needs(string, "$a or any of ($a, $a)"));
    }
    let conditions = [
        "$a and filesize < 9",
        "not $a",
        "$a at 0",
        "#a > 3",
        "all of them",
        "any of them in (0..9)",
        "true",
        "$a and $a",
    ];
    assert!(conditions.into_iter().all(|condition| needs("\"first word\"", condition)));
    for string in ["{ 4d 5a [2-] 00 01 }", "/first.*/", "/^first word/", "/(first|word){9000,}/"] {
        assert!(needs(string, "$a"), "{string}");
    }
    let (short, large) = (rule("\"first word\"", "$a"), "rule large { condition: filesize > 10 }");
    assert!(needs_whole_files(&[short.as_str(), large]) && needs_whole_files(&["rule broken {"]));
    assert!(!needs_whole_files(&[short.as_str(), short.as_str()]));
}
