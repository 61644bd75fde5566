//! What conditions need.

use cheetah_yara::Why;

use super::{atoms, rule};

#[track_caller]
fn needs(condition: &str, words: &[&str]) {
    let words = words.iter().map(|word| format!("{word} word")).collect();
    assert_eq!(atoms(&rule(condition)), Ok(words), "{condition}");
}

/// Conditions, and the strings of which one must be there.
const NEEDS: &[(&str, &[&str])] = &[
    ("$a", &["first"]),
    ("$a at 0", &["first"]),
    ("$a in (0..100)", &["first"]),
    ("$a or $b", &["first", "second"]),
    ("$a or ($b and $c)", &["first", "third"]),
    ("filesize < 100 and $b", &["second"]),
    ("any of them", &["first", "second", "third"]),
    ("2 of ($a, $b)", &["first"]),
    ("1 of ($a, $b)", &["first", "second"]),
    ("any of ($a*, $b)", &["first", "second"]),
    ("any of ($a, $b) in (0..9)", &["first", "second"]),
    ("any of ($a and filesize > 1, $b)", &["first", "second"]),
    ("#a > 0", &["first"]),
    ("2 <= #a", &["first"]),
    ("#a == 3", &["first"]),
    ("#a in (0..9) >= 1", &["first"]),
    ("for any of ($a, $b) : ($ at 0)", &["first", "second"]),
    ("for any of them : (# > 2)", &["first", "second", "third"]),
    ("for any i in (1..3) : ($a at i)", &["first"]),
    ("with x = 1 : ($a at x)", &["first"]),
    ("false", &[]),
    ("false or $c", &["third"]),
];

#[test]
fn a_condition_needs_the_strings_of_which_one_must_be_there() {
    NEEDS.iter().for_each(|(condition, words)| needs(condition, words));
}

#[test]
fn a_condition_that_may_hold_without_strings_needs_none() {
    for condition in [
        "true",
        "filesize > 100",
        "uint16(0) == 0x5a4d",
        "not $a",
        "$a or filesize > 10",
        "none of them",
        "0 of them",
        "50% of them",
        "filesize of them",
        "#a >= 0",
        "#a < 3",
        "3 > #a",
        "#a == 0",
        "#a != 1",
        "#a == #b",
        "defined @a",
        "for any of them : (filesize > 1)",
        "for none of them : ($)",
        "for all i in (1..filesize) : ($a at i)",
        "for any of ($a, $b) : ($ or true)",
    ] {
        assert_eq!(atoms(&rule(condition)), Err(Why::Condition), "{condition}");
    }
}

#[test]
fn loops_within_loops_without_end_need_none_and_take_little_time() {
    let strings: String = (0..200).map(|number| format!("$s{number} = \"word {number}\" ")).collect();
    let condition = "for any of them : (for any of them : (for any of them : (for any of them : ($))))";
    let source = format!("rule deep {{ strings: {strings} condition: {condition} }}");
    assert_eq!(atoms(&source), Err(Why::Condition));
}
