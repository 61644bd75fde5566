//! Searching real images, made by others: the hits are what grep finds in their bytes, and all of it.

use std::collections::BTreeSet;

use crate::support::run::grep;
use crate::support::{Desk, cheetah, hits_of, need, tool};

/// Words of the file systems, and of the files on them.
const WORDS: [&str; 8] = ["File", "INDX", "BOOTMGR", "syslog", "myhostname", ".txt", "$MFTMirr", "Windows"];
/// Known top levels of domains.
const TOP_LEVELS: [&str; 11] = ["com", "org", "net", "edu", "gov", "mil", "info", "biz", "de", "uk", "us"];

/// Texts, each with its offset and its encoding.
type Found = BTreeSet<(u64, String, String)>;

/// Searches a source for what the arguments say, in two encodings.
fn searched(desk: &Desk, source: &str, what: &[&str]) -> Found {
    let out = desk.arg("hits");
    cheetah(&[&["search", source, "--encoding", "utf-8,utf-16le", "--out", &out], what].concat()).ok();
    let table = hits_of(&desk.at("hits"));
    let cells = table.lines().skip(1).map(|row| row.split(',').collect::<Vec<_>>());
    let found: Found = cells.map(|row| (row[0].parse().unwrap(), row[3].to_owned(), row[4].to_owned())).collect();
    assert_eq!(table.lines().count(), 1 + found.len(), "each hit is in the table once");
    found
}

/// What grep finds of a pattern in a file. `how` says what kind of pattern it is.
fn texts(how: &str, (pattern, encoding): (&str, &str), file: &str) -> Found {
    let text = |(offset, mut bytes): (u64, Vec<u8>)| {
        // The zeros of UTF-16.
        bytes.retain(|byte| *byte != 0);
        (offset, encoding.to_owned(), String::from_utf8(bytes).unwrap())
    };
    grep(how, pattern, file).into_iter().map(text).collect()
}

/// Text in UTF-16LE, as an expression over bytes.
fn wide(text: &str) -> String {
    text.bytes().map(|byte| format!("\\x{byte:02x}\\x00")).collect()
}

/// Fails if one of both found what the other did not, or nothing in one of the encodings.
#[track_caller]
fn assert_same(ours: &Found, others: &Found) {
    let only_ours: Vec<_> = ours.difference(others).collect();
    let only_others: Vec<_> = others.difference(ours).collect();
    assert!(only_ours.is_empty() && only_others.is_empty(), "ours: {only_ours:?}; grep's: {only_others:?}");
    for encoding in ["utf-8", "utf-16le"] {
        assert!(ours.iter().any(|(_, of, _)| of == encoding), "nothing in {encoding}");
    }
}

/// Searches a source for words, and compares the hits with what grep finds in its bytes.
fn has_the_words_that_grep_finds(desk: &Desk, source: &str, raw: &str) {
    let ours = searched(desk, source, &WORDS.map(|word| ["--word", word]).concat());
    let mut others = Found::new();
    for word in WORDS {
        others.extend(texts("-aboF", (word, "utf-8"), raw));
        others.extend(texts("-aboP", (&wide(word), "utf-16le"), raw));
    }
    assert_same(&ours, &others);
}

#[test]
fn words_in_a_real_ntfs_volume_are_those_of_grep_in_both_encodings() {
    let Some(packed) = need::evidence("ntfs.bin.gz") else { return };
    if !need::programs(&["grep", "gzip"]) {
        return;
    }
    let desk = Desk::new();
    let raw = desk.file("ntfs.raw", &tool("gzip", &["-dc", packed.to_str().unwrap()]).ok().stdout);
    has_the_words_that_grep_finds(&desk, &raw, &raw);
}

#[test]
fn words_in_a_real_virtual_disk_are_those_of_grep_in_its_bytes_in_both_encodings() {
    let Some(disk) = need::evidence("windows_volume.qcow2") else { return };
    if !need::programs(&["grep", "qemu-img", "qemu-nbd"]) {
        return;
    }
    let (desk, disk) = (Desk::new(), disk.to_str().unwrap());
    let raw = desk.arg("windows.raw");
    tool("qemu-img", &["convert", "-O", "raw", disk, &raw]).ok();
    has_the_words_that_grep_finds(&desk, disk, &raw);
}

#[test]
fn addresses_in_a_real_image_are_those_of_grep_in_both_encodings() {
    let Some(e01) = need::evidence("nps-2010-emails.E01") else { return };
    if !need::programs(&["grep"]) {
        return;
    }
    let (desk, e01) = (Desk::new(), e01.to_str().unwrap());
    let raw = desk.arg("emails.raw");
    cheetah(&["acquire", e01, &raw]).ok();
    let ours = searched(&desk, e01, &["--find", "email"]);
    // These expressions also match what is no address: one that begins or ends with a dot, or has two in a row, and one that is too
    // long. They miss other top levels. The image has nothing of that, so that both find the same.
    let narrow = format!(r"[a-z0-9._%+-]+@[a-z0-9.-]+\.({})\b", TOP_LEVELS.join("|"));
    let top_levels = TOP_LEVELS.map(wide).join("|");
    let units = format!(r"(?i)(?:[a-z0-9._%+-]\x00)+@\x00(?:[a-z0-9.-]\x00)+\.\x00(?:{top_levels})(?![a-z0-9_]\x00)");
    let mut others = texts("-aboiE", (&narrow, "utf-8"), &raw);
    others.extend(texts("-aboP", (&units, "utf-16le"), &raw));
    assert!(others.iter().any(|(_, _, text)| text == "plain_text@textedit.com"), "{others:?}");
    assert_same(&ours, &others);
}
