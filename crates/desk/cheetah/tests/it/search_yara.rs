//! YARA rules on files. What tries them is a script here; python/tests/test_search_yara.py has the real one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::python::with_python;
use crate::support::run::Ran;
use crate::support::{Desk, KIB, number, text};

const RULES: &str = "rule Dropper : pe new { strings: $mz = \"This program\" condition: $mz }\n";
const SPLIT: &str = r#"{"ignore_case":false}
{"atoms":["This program"]}
{"names":[["a.yar","Dropper"],["a.yar","Large"]]}
{"end":true}"#;
const CENTRAL: &str = r#"{"ignore_case":false}
{"atoms":["This program"]}
{"central":[["a.yar","Large","condition"]]}
{"names":[["a.yar","Dropper"],["a.yar","Large"]]}
{"end":true}"#;
const BEGUN: &str = r#"{"volume":{"number":0,"offset":4096,"len":24576,"fs":"ext4","description":"one"}}
{"begin":0}"#;
const MATCHES: &str = r#"{"match":{"rule":"Dropper","file":"a.yar","tags":["pe","new"],"string":"$mz","file_offset":100,"offset":8292,"len":12,"content":"546869732070726f6772616d","wide":false,"volume":0,"path":"/gone","deleted":true}}
{"match":{"rule":"Large","file":"a.yar","tags":[],"string":null,"file_offset":null,"offset":null,"len":0,"content":"","wide":false,"volume":0,"path":"/large","deleted":false}}
{"tried":{"tried":2,"without_atoms":5,"skipped":1,"in_pieces":0,"cut":0}}"#;
const DONE: &str = r#"{"done":{"number":0,"problems":[]}}
{"end":true}"#;
const UNTRIED: &str = r#"{"untried":{"volume":0,"path":"/bad","why":"512 of its 900 bytes could not be read"}}"#;

/// A stand-in for Python that divides rules with these messages, and tries them with others. It keeps what it was told to try.
fn python(desk: &Desk, split: &str, tried: &[&str]) -> String {
    let file = |name: &str, text: String| desk.file(name, text.as_bytes());
    let (split, tried) = (file("split", format!("{split}\n")), file("tried", format!("{}\n", tried.join("\n"))));
    let told = desk.arg("told");
    let lines = format!(
        "case \"$order\" in *'\"split\":'*) cat '{split}';; *) printf '%s' \"$order\" > '{told}'; cat '{tried}';; esac"
    );
    let path = file("python", format!("#!/bin/sh\n[ \"$2\" = -c ] && exit 0\nread -r order\n{lines}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A source with an atom at 8292, and the rules.
fn image(desk: &Desk) -> [String; 2] {
    let mut bytes = vec![b'.'; 64 * KIB as usize];
    bytes[8292..8304].copy_from_slice(b"This program");
    [desk.file("disk.raw", &bytes), desk.file("a.yar", RULES.as_bytes())]
}

fn search(desk: &Desk, python: &str, more: &[&str]) -> Ran {
    let [raw, rules] = image(desk);
    with_python(python, &[&["--json", "search", &raw, "--yara", &rules][..], more].concat())
}

fn values(ran: &Ran) -> Vec<Value> {
    ran.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn told(desk: &Desk) -> Value {
    serde_json::from_str(&fs::read_to_string(desk.at("told")).unwrap()).unwrap()
}

#[test]
fn matches_are_rows_and_what_tries_the_rules_is_told_where_atoms_are() {
    let desk = Desk::new();
    let python = python(&desk, SPLIT, &[BEGUN, MATCHES, DONE]);
    let ran = search(&desk, &python, &["--out", &desk.arg("hits")]).ok();
    let table = fs::read_to_string(desk.at("hits/hits.csv")).unwrap();
    assert_eq!(
        table.lines().collect::<Vec<_>>(),
        [
            "offset,length,rule,rules,tags,string,encoding,text,volume,path,state,file_offset",
            "8292,12,Dropper,a.yar,pe new,$mz,utf-8,This program,0,/gone,deleted,100",
            ",0,Large,a.yar,,,utf-8,,0,/large,allocated,",
        ]
    );
    let answer = &values(&ran)[0];
    assert_eq!((number(answer, "hits"), number(&answer["rules"], "files")), (2, 2), "{answer}");
    assert_eq!((answer["complete"].as_bool(), number(answer, "searched_bytes")), (Some(true), 64 * KIB), "{answer}");
    let searched = &told(&desk)["rules"]["searched"];
    assert_eq!((&searched["blocks"], &searched["gaps"]), (&serde_json::json!([16]), &serde_json::json!([])));
    let page = fs::read_to_string(desk.at("hits/report.html")).unwrap();
    assert!(page.contains("2 hits of rules in all 7 files") && page.contains("/gone"));
    assert!(desk.at("hits/hits.parquet").exists());
    let [raw, rules] = image(&desk);
    let again = with_python(&python, &["search", &raw, "--yara", &rules, "--out", &desk.arg("hits")]).ok();
    let said = again.out().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("the rules were tried before on all 7 files: 2 hits"), "{said}");
    assert_eq!(fs::read_to_string(desk.at("hits/hits.csv")).unwrap(), table);
}

#[test]
fn other_rules_with_the_same_atoms_are_another_search() {
    let desk = Desk::new();
    let python = python(&desk, SPLIT, &[BEGUN, MATCHES, DONE]);
    search(&desk, &python, &["--out", &desk.arg("hits")]).ok();
    let other = desk.file("b.yar", RULES.as_bytes());
    let raw = desk.arg("disk.raw");
    let args = ["search", &raw, "--yara", &other, "--out", &desk.arg("hits")];
    with_python(&python, &args).says(2, &["what else is done with the hits"]);
}

#[test]
fn a_rule_without_atoms_is_named_and_every_file_is_read() {
    let desk = Desk::new();
    let python = python(&desk, CENTRAL, &[BEGUN, MATCHES, DONE]);
    let ran = search(&desk, &python, &[]).ok();
    let values = values(&ran);
    let kinds: Vec<_> = values.iter().map(|value| value["event"].as_str()).collect();
    assert_eq!(kinds, [Some("match"), Some("match"), None]);
    assert_eq!((text(&values[0], "rule"), number(&values[0], "offset")), ("Dropper", 8292));
    assert!(values[1]["offset"].is_null() && values[1]["string"].is_null());
    let rules = &values[2]["rules"];
    assert_eq!((rules["searched"].as_bool(), text(&rules["central"][0], "rule")), (Some(false), "Large"), "{rules}");
    assert_eq!(values[2]["complete"].as_bool(), Some(true));
    assert!(told(&desk)["rules"]["searched"].is_null());
}

#[test]
fn no_hits_are_not_said_of_all_files_if_one_could_not_be_read_or_what_tries_the_rules_died() {
    let tried = r#"{"tried":{"tried":3,"without_atoms":0,"skipped":0,"in_pieces":0,"cut":0}}"#;
    for messages in [&[BEGUN, UNTRIED, tried, DONE][..], &[BEGUN, tried][..]] {
        let desk = Desk::new();
        let python = python(&desk, SPLIT, messages);
        let ran = search(&desk, &python, &["--out", &desk.arg("hits")]).says(3, &["not tried on all of every file"]);
        let answer = &values(&ran)[0];
        assert_eq!((answer["complete"].as_bool(), answer["finished"].as_bool()), (Some(false), Some(true)), "{answer}");
        let page = fs::read_to_string(desk.at("hits/report.html")).unwrap();
        assert!(page.contains("No hits of rules in the ") && page.contains(" files on which they were tried"));
    }
}

#[test]
fn the_same_command_goes_on_with_the_rules_and_searches_no_byte_again() {
    let desk = Desk::new();
    let dies = python(&desk, SPLIT, &[BEGUN]);
    search(&desk, &dies, &["--out", &desk.arg("hits")]).says(3, &["not tried on all of every file"]);
    let lives = python(&desk, SPLIT, &[BEGUN, MATCHES, DONE]);
    let ran = search(&desk, &lives, &["--out", &desk.arg("hits")]).ok();
    assert_eq!(number(&values(&ran)[0], "hits"), 2);
    assert_eq!(told(&desk)["rules"]["searched"]["blocks"], serde_json::json!([16]));
    let journal = fs::read_to_string(desk.at("hits/search.journal")).unwrap();
    assert!(journal.contains("finished"));
}

#[test]
fn rules_are_tried_alone() {
    let desk = Desk::new();
    let [raw, rules] = image(&desk);
    for more in [&["--word", "x"][..], &["--files"][..], &["--find", "email"][..], &["--ignore-case"][..]] {
        let ran = with_python("/nonexistent/python", &[&["search", &raw, "--yara", &rules][..], more].concat());
        ran.says(2, &["--yara"]);
    }
}

#[test]
fn rules_that_do_not_compile_end_the_command_before_anything_is_written() {
    let desk = Desk::new();
    let refused = "{\"refused\":\"a.yar: these YARA rules do not compile\"}\n{\"end\":true}";
    let python = python(&desk, refused, &[]);
    search(&desk, &python, &["--out", &desk.arg("hits")]).says(2, &["these YARA rules do not compile"]);
    assert!(!desk.at("hits").exists());
}

#[test]
fn files_without_a_rule_end_the_command_before_anything_is_written() {
    let desk = Desk::new();
    let python = python(&desk, "{\"ignore_case\":false}\n{\"end\":true}", &[]);
    search(&desk, &python, &["--out", &desk.arg("hits")]).says(2, &["there is no rule in it"]);
    assert!(!desk.at("hits").exists());
}

#[test]
fn a_volume_whose_files_cannot_be_listed_leaves_the_rules_untried() {
    let desk = Desk::new();
    let locked = r#"{"volume":{"number":1,"offset":32768,"len":4096,"fs":"","description":"two","problems":["it holds BitLocker"]}}"#;
    let (volume, begin) = BEGUN.split_once('\n').unwrap();
    let python = python(&desk, SPLIT, &[volume, locked, begin, MATCHES, DONE]);
    let ran = search(&desk, &python, &[]).says(3, &["not tried on all of every file"]);
    let answer = &values(&ran)[2];
    assert_eq!(
        (answer["complete"].as_bool(), text(&answer["rules"]["volumes"][1], "listing")),
        (Some(false), "partly")
    );
}

#[test]
fn a_match_of_a_rule_that_there_is_not_ends_the_command() {
    let desk = Desk::new();
    let other = MATCHES.replace("\"Dropper\"", "\"Other\"");
    let python = python(&desk, SPLIT, &[BEGUN, &other, DONE]);
    search(&desk, &python, &[]).says(1, &["said what is not understood"]);
}
