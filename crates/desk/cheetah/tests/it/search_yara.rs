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
pub const BEGUN: &str = r#"{"volume":{"number":0,"offset":4096,"len":24576,"fs":"ext4","description":"one"}}
{"begin":0}"#;
const MATCHES: &str = r#"{"match":{"rule":"Dropper","file":"a.yar","tags":["pe","new"],"string":"$mz","file_offset":100,"offset":8292,"len":12,"content":"546869732070726f6772616d","wide":false,"volume":0,"path":"/gone","deleted":true}}
{"match":{"rule":"Large","file":"a.yar","tags":[],"string":null,"file_offset":null,"offset":null,"len":0,"content":"","wide":false,"volume":0,"path":"/large","deleted":false}}
{"tried":{"tried":2,"without_atoms":5,"skipped":1,"in_pieces":0,"cut":0}}"#;
pub const DONE: &str = r#"{"done":{"number":0,"problems":[]}}
{"end":true}"#;
const COLUMNS: &str = "offset,length,pattern,encoding,text,context,inside,node,instance,volume,path,state,file_offset,others,fragments,rules,tags,string";
const UNTRIED: &str = r#"{"untried":{"volume":0,"path":"/bad","why":"512 of its 900 bytes could not be read"}}"#;

/// A stand-in for Python that divides rules with these messages, and tries them with others. It keeps what it was told to try.
pub fn python(desk: &Desk, split: &str, tried: &[&str]) -> String {
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

/// The same, which also lists files with other messages.
fn listing_python(desk: &Desk, listed: &str) -> String {
    let file = |name: &str, text: &str| desk.file(name, format!("{text}\n").as_bytes());
    let (split, listed) = (file("split", SPLIT), file("listed", listed));
    let tried = file("tried", &[BEGUN, MATCHES, DONE].join("\n"));
    let lines = format!(
        "case \"$order\" in *'\"split\":'*) cat '{split}';; *'\"rules\":'*) cat '{tried}';; *) cat '{listed}';; esac"
    );
    let path = file("python", &format!("#!/bin/sh\n[ \"$2\" = -c ] && exit 0\nread -r order\n{lines}"));
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

/// What it was told to try.
pub fn told(desk: &Desk) -> Value {
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
            COLUMNS,
            "8292,12,Dropper,utf-8,This program,This program,,,,0,/gone,deleted,100,,,a.yar,pe new,$mz",
            ",0,Large,utf-8,,,,,,0,/large,allocated,,,,a.yar,,",
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
fn what_does_nothing_for_rules_alone_is_refused_and_taken_beside_a_word() {
    let desk = Desk::new();
    let [raw, rules] = image(&desk);
    for (more, option) in [(&["--inside", "all"][..], "--inside"), (&["--ignore-case"][..], "--ignore-case")] {
        let ran = with_python("/nonexistent/python", &[&["search", &raw, "--yara", &rules][..], more].concat());
        ran.says(2, &[option]);
        let python = python(&desk, SPLIT, &[BEGUN, MATCHES, DONE]);
        search(&desk, &python, &[&["--word", "this"][..], more].concat()).ok();
    }
}

/// The rows of a table, without its columns.
fn rows(table: &str) -> Vec<&str> {
    table.lines().skip(1).collect()
}

#[test]
fn words_and_kinds_of_data_are_found_in_the_same_pass_and_atoms_are_no_hits() {
    let desk = Desk::new();
    let python = python(&desk, SPLIT, &[BEGUN, MATCHES, DONE]);
    let more = ["--word", "program", "--ignore-case", "--context", "0", "--out", &desk.arg("hits")];
    let ran = search(&desk, &python, &more).ok();
    let table = fs::read_to_string(desk.at("hits/hits.csv")).unwrap();
    let found = rows(&table);
    assert_eq!(found[0], "8297,7,program,utf-8,program,program,,,,,,,,,,,,");
    assert!(found.len() == 3 && found[1].starts_with("8292,12,Dropper,") && found[2].starts_with(",0,Large,"));
    let answer = &values(&ran)[0];
    let kinds: Vec<_> = answer["patterns"].as_array().unwrap().iter().map(|one| text(one, "kind")).collect();
    assert_eq!((kinds, number(answer, "hits")), (vec!["word", "rule", "rule"], 3), "{answer}");
    assert_eq!(told(&desk)["rules"]["searched"]["blocks"], serde_json::json!([16]));
    for (file, lines) in [("find", 1), ("yara", 1)] {
        let features = fs::read_to_string(desk.at(&format!("hits/features/{file}.txt"))).unwrap();
        assert_eq!(features.lines().filter(|line| !line.starts_with('#')).count(), lines, "{file}");
    }
    let page = fs::read_to_string(desk.at("hits/report.html")).unwrap();
    assert!(page.contains("2 hits of rules in all 7 files") && page.contains("1 hit in all 64KiB"));
    assert!(desk.at("hits/coverage.map").exists() && desk.at("hits/hits.parquet").exists());
}

#[test]
fn the_rows_of_a_search_for_words_and_rules_are_those_of_both_alone() {
    let desk = Desk::new();
    let python = python(&desk, SPLIT, &[BEGUN, MATCHES, DONE]);
    let [raw, rules] = image(&desk);
    let table = |name: &str, more: &[&str]| {
        let out = desk.arg(name);
        with_python(&python, &[&["search", &raw, "--out", &out][..], more].concat()).ok();
        fs::read_to_string(desk.at(&format!("{name}/hits.csv"))).unwrap()
    };
    let words = table("words", &["--word", "program"]);
    let alone = table("alone", &["--yara", &rules]);
    let both = table("both", &["--word", "program", "--yara", &rules]);
    let expected: Vec<_> = rows(&words).into_iter().map(|row| format!("{row},,,,,,,,,")).collect();
    assert_eq!((rows(&both).len(), rows(&words).len()), (3, 1));
    assert_eq!(rows(&both)[..1], expected);
    assert_eq!(rows(&both)[1..], rows(&alone));
}

#[test]
fn with_the_files_listed_words_and_rules_name_volume_path_and_state() {
    const LISTED: &str = r#"{"volume":{"number":0,"offset":4096,"len":24576,"fs":"ext4","description":"one"}}
{"begin":0}
{"file":{"path":"/letter","deleted":false,"metadata":false,"resident":false,"mapped":true,"valid":4096}}
{"runs":[[0,8192,4096]]}
{"clusters":[4096,24576]}
{"free":[[12288,4096]]}
{"done":{"number":0,"problems":[]}}
{"end":true}"#;
    let desk = Desk::new();
    let python = listing_python(&desk, LISTED);
    let more = ["--word", "program", "--files", "--context", "0", "--out", &desk.arg("hits")];
    let answer = values(&search(&desk, &python, &more).ok()).remove(0);
    let table = fs::read_to_string(desk.at("hits/hits.csv")).unwrap();
    assert_eq!(table.lines().next(), Some(COLUMNS));
    assert_eq!(rows(&table)[0], "8297,7,program,utf-8,program,program,,,,0,/letter,allocated,105,0,,,,");
    assert!(rows(&table)[1].ends_with(",0,/gone,deleted,100,,,a.yar,pe new,$mz"), "{table}");
    assert_eq!((number(&answer["files"], "files"), number(&answer["rules"], "files")), (1, 2), "{answer}");
}

#[test]
fn a_rule_without_atoms_leaves_the_search_for_words_as_it_is() {
    let desk = Desk::new();
    let python = python(&desk, CENTRAL, &[BEGUN, MATCHES, DONE]);
    let ran = search(&desk, &python, &["--word", "program"]).ok();
    let values = values(&ran);
    let kinds: Vec<_> = values.iter().map(|value| value["event"].as_str()).collect();
    assert_eq!(kinds, [Some("hit"), Some("match"), Some("match"), None]);
    let answer = &values[3];
    assert_eq!((number(answer, "searched_bytes"), answer["complete"].as_bool()), (64 * KIB, Some(true)), "{answer}");
    assert!(told(&desk)["rules"]["searched"].is_null());
}

#[test]
fn known_files_and_compressed_data_are_searched_beside_rules() {
    let desk = Desk::new();
    let python = python(&desk, SPLIT, &[BEGUN, MATCHES, DONE]);
    let known: Vec<u8> = (0..2 * 4096u32).flat_map(|word| (word * word).to_le_bytes()).collect();
    let known = desk.file("known", &known);
    let more = ["--known", &known, "--word", "program", "--inside", "all", "--out", &desk.arg("hits")];
    let answer = values(&search(&desk, &python, &more).ok()).remove(0);
    assert_eq!((number(&answer["known"], "files"), number(&answer["inside"], "hits")), (1, 0), "{answer}");
    assert_eq!((number(&answer, "hits"), answer["complete"].as_bool()), (3, Some(true)), "{answer}");
    assert!(desk.at("hits/known-runs.csv").exists());
}

#[test]
fn no_hits_are_not_said_of_all_if_the_words_were_searched_and_a_file_could_not_be_tried() {
    let desk = Desk::new();
    let tried = r#"{"tried":{"tried":3,"without_atoms":0,"skipped":0,"in_pieces":0,"cut":0}}"#;
    let python = python(&desk, SPLIT, &[BEGUN, UNTRIED, tried, DONE]);
    let more = ["--word", "absent", "--out", &desk.arg("hits")];
    let ran = search(&desk, &python, &more).says(3, &["not tried on all of every file"]);
    let answer = &values(&ran)[0];
    assert_eq!((answer["complete"].as_bool(), number(answer, "searched_bytes")), (Some(false), 64 * KIB), "{answer}");
    let page = fs::read_to_string(desk.at("hits/report.html")).unwrap();
    assert!(
        !page.contains("in all 64KiB")
            && !fs::read_to_string(desk.at("hits/search.journal")).unwrap().contains("finished")
    );
}

#[test]
fn the_same_words_and_rules_go_on_and_other_words_are_another_search() {
    let desk = Desk::new();
    let out = desk.arg("hits");
    let dies = python(&desk, SPLIT, &[BEGUN]);
    search(&desk, &dies, &["--word", "program", "--out", &out]).says(3, &["not tried on all of every file"]);
    let lives = python(&desk, SPLIT, &[BEGUN, MATCHES, DONE]);
    let ran = search(&desk, &lives, &["--word", "program", "--out", &out]).ok();
    assert_eq!(number(&values(&ran)[0], "hits"), 3);
    search(&desk, &lives, &["--word", "others", "--out", &out]).says(2, &["the words"]);
    let [raw, rules] = image(&desk);
    let again = ["search", &raw, "--yara", &rules, "--word", "program", "--out", &out];
    let said = with_python(&lives, &again).ok().out().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("all 64KiB were searched before, and the rules tried on all 7 files: 3 hits"), "{said}");
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
