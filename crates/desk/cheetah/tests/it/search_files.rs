//! Hits with the files in which they lie. What lists files is a script here; python/tests/test_search_files.py has the real one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::python::with_python;
use crate::support::run::Ran;
use crate::support::{Desk, KIB, number, text};

/// A file of three fragments over two volumes' worth of disk, with a word across two of them, one within, and one in free space.
fn image(desk: &Desk) -> String {
    let mut bytes = vec![b'.'; 64 * KIB as usize];
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(8 * 1024 + 100, b"Geheimnis");
    put(12 * 1024 - 4, b"Gehe");
    put(20 * 1024, b"imnis");
    put(40 * 1024, b"Geheimnis");
    put(60 * 1024, b"Geheimnis");
    desk.file("disk.raw", &bytes)
}

const VOLUMES: &str = r#"{"volume":{"number":0,"offset":4096,"len":24576,"fs":"ext4","description":"one"}}
{"volume":{"number":1,"offset":32768,"len":16384,"fs":"ntfs","description":"two"}}"#;
const FIRST: &str = r#"{"begin":0}
{"file":{"path":"/letter","deleted":false,"metadata":false,"resident":false,"mapped":true,"valid":8192}}
{"runs":[[0,8192,4096],[4096,20480,4096]]}
{"name":0}
{"clusters":[4096,24576]}
{"free":[[12288,4096]]}
{"done":{"number":0,"problems":[]}}"#;
const SECOND: &str = r#"{"begin":1}
{"clusters":[32768,16384]}
{"free":[[40960,4096]]}
{"done":{"number":1,"problems":[]}}"#;
const END: &str = r#"{"end":true}"#;

/// A stand-in for Python that has all packages, and runs these lines of a shell in place of the lister.
fn lister(desk: &Desk, lines: &str) -> String {
    let script = format!("#!/bin/sh\n[ \"$2\" = -c ] && exit 0\nread -r order\n{lines}\n");
    let path = desk.file("lister", script.as_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The line of a shell that says these messages.
fn say(desk: &Desk, name: &str, messages: &[&str]) -> String {
    format!("cat '{}'", desk.file(name, format!("{}\n", messages.join("\n")).as_bytes()))
}

fn search(desk: &Desk, lines: &str) -> Ran {
    let raw = image(desk);
    let args =
        ["--json", "search", &raw, "--word", "Geheimnis", "--encoding", "utf-8", "--files", "--out", &desk.arg("hits")];
    with_python(&lister(desk, lines), &args)
}

/// The rows of the table, without context: offset, volume and what follows.
fn rows(desk: &Desk) -> Vec<String> {
    let table = fs::read_to_string(desk.at("hits/hits.csv")).unwrap();
    let mut lines = table.lines();
    let columns = "offset,length,pattern,encoding,text,context,inside,node,instance,volume,path,state,file_offset,others,fragments";
    assert_eq!(lines.next(), Some(columns));
    let cells = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    lines.map(|line| [&cells(line)[..1], &cells(line)[9..]].concat().join(",")).collect()
}

fn answer(ran: &Ran) -> Value {
    serde_json::from_str(ran.out().lines().next().unwrap()).unwrap()
}

#[test]
fn each_hit_has_its_file_and_a_hit_across_fragments_is_found() {
    let desk = Desk::new();
    let ran = search(&desk, &say(&desk, "said", &[VOLUMES, FIRST, SECOND, END])).ok();
    assert_eq!(
        rows(&desk),
        [
            "8292,0,/letter,allocated,100,1,",
            "40960,1,,unallocated,,0,",
            "61440,,,outside,,0,",
            "12284,0,/letter,allocated,4092,1,12284:4 20480:5",
        ]
    );
    let answer = answer(&ran);
    assert_eq!((number(&answer, "hits"), number(&answer["files"], "files")), (4, 1), "{answer}");
    let across = &answer["files"]["across"];
    assert_eq!((number(across, "hits"), number(across, "searched"), number(across, "left_out")), (1, 1, 0));
    assert_eq!(text(&answer["files"]["volumes"][1], "listing"), "whole");
}

#[test]
fn a_lister_that_dies_in_a_volume_is_started_again_for_those_behind_it() {
    for (death, listing, status) in [
        ("kill -KILL $$", "killed", Some(9)),
        ("exit 7", "exited", Some(7)),
        ("echo nonsense; exec sleep 600", "malformed", None),
    ] {
        let desk = Desk::new();
        let begun = say(&desk, "begun", &[VOLUMES, r#"{"begin":0}"#]);
        let rest = say(&desk, "rest", &[VOLUMES, SECOND, END]);
        let lines = format!("case \"$order\" in *'\"first\":0,'*) {begun}; {death};; *) {rest};; esac");
        let ran = search(&desk, &lines).says(3, &["not all files were listed"]);
        let answer = answer(&ran);
        let volumes = &answer["files"]["volumes"];
        assert_eq!(text(&volumes[0], "listing"), listing, "{answer}");
        assert_eq!(volumes[0].get("status").and_then(Value::as_i64), status, "{answer}");
        assert_eq!(text(&volumes[1], "listing"), "whole", "{answer}");
        assert_eq!(rows(&desk)[0], "8292,0,,unknown,,0,");
        assert_eq!(rows(&desk)[1], "40960,1,,unallocated,,0,");
    }
}

#[test]
fn a_lister_that_finds_no_volumes_leaves_the_hits_outside_and_is_said_to_have_ended() {
    let desk = Desk::new();
    let ran = search(&desk, "exit 4").says(3, &["not all files were listed"]);
    assert_eq!(text(&answer(&ran)["files"], "lister"), "exited");
    assert_eq!(rows(&desk)[0], "8292,,,outside,,0,");
}

#[test]
fn volumes_that_may_be_missing_leave_the_list_of_files_partial() {
    let desk = Desk::new();
    let problems = r#"{"problems":["the partition table could not be read"]}"#;
    let lines = say(&desk, "said", &[problems, VOLUMES, FIRST, SECOND, END]);
    let ran = search(&desk, &lines).says(3, &["not all files were listed"]);
    let answer = answer(&ran);
    assert_eq!(answer["files"]["problems"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(text(&answer["files"]["volumes"][0], "listing"), "whole", "{answer}");
    assert_eq!(rows(&desk).len(), 4);
}

#[test]
fn without_the_packages_nothing_is_searched() {
    let desk = Desk::new();
    let raw = image(&desk);
    let args = ["search", &raw, "--word", "Geheimnis", "--files", "--out", &desk.arg("hits")];
    with_python("/nonexistent/python", &args).says(1, &["search --files runs in Python", "CHEETAH_PYTHON"]);
    assert!(!desk.at("hits").exists());
}
