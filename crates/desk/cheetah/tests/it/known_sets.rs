//! Sets of known files: stored by one search, and searched for by the next.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::run::Ran;
use crate::support::{Desk, KIB, MIB, cheetah, noise, number, text};

const BLOCK: usize = 4096;

/// A disk with parts of two known files, and the folder of these.
fn evidence(desk: &Desk) -> (String, String) {
    fs::create_dir_all(desk.at("known/deep")).unwrap();
    let (first, second) = (noise(40 * BLOCK as u64 + 77, 11), noise(10 * BLOCK as u64, 13));
    fs::write(desk.at("known/first.jpg"), &first).unwrap();
    fs::write(desk.at("known/deep/second.jpg"), &second).unwrap();
    fs::write(desk.at("known/none.jpg"), noise(8 * KIB, 15)).unwrap();
    let mut content = noise(2 * MIB, 48);
    content[64 * BLOCK..74 * BLOCK].copy_from_slice(&first[..10 * BLOCK]);
    content[200 * BLOCK + 512..210 * BLOCK + 512].copy_from_slice(&second);
    (desk.file("disk.raw", &content), desk.arg("known"))
}

/// Searches the disk, with the result in a folder of this name.
fn search(desk: &Desk, disk: &str, out: &str, more: &[&str]) -> Ran {
    let args = ["search", disk, "--out", &desk.arg(out)];
    cheetah(&[&args[..], more].concat())
}

fn tables(desk: &Desk, out: &str) -> [String; 2] {
    ["known-runs.csv", "known-files.csv"].map(|name| fs::read_to_string(desk.at(out).join(name)).unwrap())
}

/// Must have been refused as a misuse, before a folder for the result was made.
#[track_caller]
fn assert_misused(desk: &Desk, out: &str, ran: Ran) {
    let ran = ran.ended_with(2);
    assert_eq!(text(&ran.json(), "kind"), "misuse", "{}", ran.stderr);
    assert!(!desk.at(out).exists());
}

#[test]
fn a_search_for_a_stored_set_finds_what_the_search_for_its_files_found() {
    let desk = Desk::new();
    let (disk, known) = evidence(&desk);
    let set = desk.arg("known.blocks");
    let answer = search(&desk, &disk, "of-files", &["--known", &known, "--save-known", &set]).ok().json();
    assert_eq!(number(&answer["known"], "runs"), 2, "{answer}");
    assert_eq!(fs::metadata(&set).unwrap().permissions().mode() & 0o777, 0o600);
    // The files are no longer needed.
    fs::remove_dir_all(&known).unwrap();
    let again = search(&desk, &disk, "of-set", &["--blocks", &set]).ok().json();
    assert_eq!(again["known"], answer["known"]);
    assert_eq!(tables(&desk, "of-set"), tables(&desk, "of-files"));
}

#[test]
fn a_set_in_a_folder_of_known_files_or_with_the_name_of_a_file_is_not_written() {
    let desk = Desk::new();
    let (disk, known) = evidence(&desk);
    let save = |set: &str| search(&desk, &disk, "out", &["--known", &known, "--save-known", set]);
    for name in ["known/a.blocks", "known/deep/a.blocks"] {
        assert_misused(&desk, "out", save(&desk.arg(name)));
        assert!(!desk.at(name).exists());
    }
    // Also by a link that leads there.
    std::os::unix::fs::symlink(desk.at("known/deep"), desk.at("link")).unwrap();
    assert_misused(&desk, "out", save(&desk.arg("link/a.blocks")));
    let taken = desk.file("taken", b"something else");
    assert_misused(&desk, "out", save(&taken));
    assert_eq!(fs::read(&taken).unwrap(), b"something else");
    save(&desk.arg("no/such/folder/a.blocks")).ended_with(1);
    assert!(!desk.at("out").exists());
}

#[test]
fn a_set_in_the_folder_of_the_result_is_not_written_and_one_beside_it_is_found_when_the_search_goes_on() {
    let desk = Desk::new();
    let (disk, known) = evidence(&desk);
    let out = desk.dir("out");
    let save = |set: &str| search(&desk, &disk, "out", &["--known", &known, "--save-known", set]);
    let refused = save(&format!("{out}/a.blocks")).ended_with(2);
    assert_eq!(text(&refused.json(), "kind"), "misuse", "{}", refused.stderr);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    let set = desk.arg("a.blocks");
    let first = save(&set).ok().json();
    let stored = fs::read(&set).unwrap();
    assert_eq!(save(&set).ok().json(), first);
    assert_eq!(fs::read(&set).unwrap(), stored);
    // The set stands for its files.
    assert_eq!(search(&desk, &disk, "out", &["--blocks", &set]).ok().json(), first);
}

#[test]
fn a_set_that_is_damaged_or_none_is_refused_before_anything_is_read() {
    let desk = Desk::new();
    let (disk, known) = evidence(&desk);
    let set = desk.arg("known.blocks");
    search(&desk, &disk, "of-files", &["--known", &known, "--save-known", &set]).ok();
    let whole = fs::read(&set).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for (name, content) in [
        ("cut", &whole[..whole.len() - 1]),
        ("changed", &changed[..]),
        ("hashdb.json", &b"{\"block_hash\":\"00\",\"source_offsets\":[]}\n"[..]),
        ("empty", &b""[..]),
    ] {
        let blocks = desk.file(name, content);
        assert_misused(&desk, "out", search(&desk, &disk, "out", &["--blocks", &blocks]));
    }
    fs::create_dir_all(desk.at("known.hdb/lmdb_hash_store")).unwrap();
    assert_misused(&desk, "out", search(&desk, &disk, "out", &["--blocks", &desk.arg("known.hdb")]));
    search(&desk, &disk, "out", &["--blocks", &set, "--known", &known]).ended_with(2);
    search(&desk, &disk, "out", &["--save-known", &desk.arg("other")]).ended_with(2);
    assert!(!desk.at("out").exists());
}
