//! The journal of a search: reading one does not panic, and what is valid of it reads as the same again.

use std::sync::LazyLock;

use cheetah_search::{Order, Search};
use cheetah_source::offline::{journal_of, read_journal};

/// The records of a search of 64 KiB, one a line.
const RECORDS: &str = r#"{"start":{"version":1,"program":"0","source":"disk.raw","size_bytes":65536,"samples":[null],"begun_s":1,"asked":{"words":"","expressions":"","kinds":[],"known":"","encodings":["utf-8"],"ignore_case":false,"context_bytes":2,"also":[]}}}
{"hits":[[100,0,0,2,6,"YSBzZWNyZXQh"]]}
{"searched":{"offset":0,"len":4096,"parts":[{"len":4000,"state":"+","node":0},{"len":96,"state":"-","why":"bad sector"}],"nodes":[["lab7","00"]],"hits":1}}
{"searched":{"offset":4000,"len":8192,"parts":[{"len":96,"state":"="},{"len":8096,"state":"?","why":"it is not there"}],"hits":0}}
{"inner_hits":[[512,"GZIP-7",[7,0,0,2,6,"YSBzZWNyZXQh"]]]}
{"inside":{"places":1,"work_bytes":99,"counts":[1,9,1,1,0,0,0,0],"hits":1,"truncated":[[512,20,"size"]]}}
{"carved":{"headers":1,"progress":[0,0,0,0],"counts":[1,9,0,0,0,0],"files":[[100,9,"gzip","0000000000000000000000000000000000000000000000000000000000000000"]]}}"#;

/// What is searched for.
static SEARCH: LazyLock<Search> = LazyLock::new(|| {
    let encodings = vec!["utf-8".parse().unwrap()];
    let order = Order { words: vec!["secret".into()], encodings, context_bytes: 2, ..Order::default() };
    Search::new(&order).unwrap()
});

/// Runs one input: a journal; records, whose checks are made right; or valid records with edits.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let journal = |records: &[u8]| journal_of(records.split(|byte| *byte == b'\n'));
    match choice % 4 {
        0 => check(data),
        1 => check(&journal(&[RECORDS.lines().next().unwrap().as_bytes(), b"\n", data].concat())),
        2 => check(&journal(&super::edited(RECORDS.as_bytes(), data))),
        _ => {
            let whole = journal(RECORDS.as_bytes());
            let read = read_journal(&whole, &SEARCH).unwrap();
            assert_eq!(read.end, whole.len() as u64);
            let cut = data.first().map_or(0, |at| usize::from(*at) * whole.len() / 256);
            // What a crash leaves of the last group is cut off.
            check(&whole[..cut]);
            check(&super::edited(&whole, data));
        }
    }
}

fn check(bytes: &[u8]) {
    let Some(read) = read_journal(bytes, &SEARCH) else { return };
    assert!(read.has_groups);
    let valid = &bytes[..usize::try_from(read.end).unwrap()];
    assert!(valid.last() == Some(&b'\n'));
    assert_eq!(read_journal(valid, &SEARCH), Some(read));
}
