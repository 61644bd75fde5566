//! Custody logs: checking one neither panics nor exceeds its memory limits, and unsigned records never pass.
//!
//! An odd first byte makes the input an edit of a valid log, so that the fuzzer gets past the signatures.

use std::path::Path;
use std::sync::LazyLock;

use cheetah_custody::{Custodian, CustodyEvent, CustodyLog, PublicKey, SigningKey, check};

/// An intact log, and the key that signed it.
static WHOLE: LazyLock<(Vec<u8>, PublicKey)> = LazyLock::new(|| {
    let place = |what: &str| std::env::temp_dir().join(format!("cheetah-fuzz-{}.{what}", std::process::id()));
    let (log, key) = (place("custody"), place("key"));
    let made = whole(&log, &key);
    [log, key].iter().for_each(|path| drop(std::fs::remove_file(path)));
    made.expect("a log in the temporary directory")
});

fn whole(log: &Path, key: &Path) -> Option<(Vec<u8>, PublicKey)> {
    let key = SigningKey::load_or_make(key).ok()?;
    let public = key.public();
    let mut open = CustodyLog::open(log, key, &Custodian::default()).ok()?;
    for at in 0..3 {
        open.append(&CustodyEvent::Checkpoint { at, journal: None }).ok()?;
    }
    open.append(&CustodyEvent::Finished(Box::default())).ok()?;
    Some((std::fs::read(log).ok()?, public))
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let (whole, key) = &*WHOLE;
    if choice % 2 == 0 {
        let report = check(data, &[*key]).expect("reading from memory");
        assert!(!report.is_ok() || data == whole);
        return;
    }
    // An edit: two bytes of offset, and the new byte.
    let mut bytes = whole.clone();
    for edit in data.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[at] = edit[2];
    }
    let report = check(&bytes[..], &[*key]).expect("reading from memory");
    assert!(!report.is_ok() || bytes == *whole);
}
