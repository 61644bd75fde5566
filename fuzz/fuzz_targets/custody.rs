//! A custody log of any bytes: it is checked without a panic, in bounded memory, and nothing that is not signed passes.
//!
//! With an odd first byte the bytes are an edit of a log that is in order, so that what lies behind the signatures is
//! reached too.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use cheetah_acquire::custody::{CustodyLog, Event, Finished, PublicKey, SigningKey, check};
use libfuzzer_sys::fuzz_target;

/// A log that is in order, and who signed it.
static WHOLE: LazyLock<(Vec<u8>, PublicKey)> = LazyLock::new(|| {
    let place = |what: &str| std::env::temp_dir().join(format!("cheetah-fuzz-{}.{what}", std::process::id()));
    let (log, key) = (place("custody"), place("key"));
    let made = whole(&log, &key);
    [log, key].iter().for_each(|path| drop(std::fs::remove_file(path)));
    made.expect("a log in the temporary directory")
});

fn whole(log: &PathBuf, key: &PathBuf) -> Option<(Vec<u8>, PublicKey)> {
    let key = SigningKey::load_or_make(key).ok()?;
    let public = key.public();
    let mut open = CustodyLog::open(log, key).ok()?;
    for at in 0..3 {
        open.append(&Event::Checkpoint { at }).ok()?;
    }
    open.append(&Event::Finished(Box::new(Finished::default()))).ok()?;
    Some((std::fs::read(log).ok()?, public))
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    let (whole, key) = &*WHOLE;
    if choice % 2 == 0 {
        let report = check(data, &[*key]).expect("reading from memory");
        assert!(!report.is_ok() || data == whole);
        return;
    }
    // Edits: two bytes for where, one for what is there instead.
    let mut bytes = whole.clone();
    for edit in data.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[at] = edit[2];
    }
    let report = check(&bytes[..], &[*key]).expect("reading from memory");
    assert!(!report.is_ok() || bytes == *whole);
});
