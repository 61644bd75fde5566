use proptest::prelude::*;

use super::*;

const HEADER_START: &[u8] = b"LUKS\xba\xbe\0\x02";

fn parsed(content: &[u8]) -> Vec<(Vec<u8>, bool)> {
    Keys::parse(content).unwrap().iter().map(|key| (key.bytes.to_vec(), key.is_file)).collect()
}

fn of_line(text: &str) -> (Vec<u8>, bool) {
    (text.into(), false)
}

fn of_file(content: &[u8]) -> (Vec<u8>, bool) {
    (content.into(), true)
}

fn line(text: &str) -> Key {
    Key { bytes: LockedBytes::copy_of(text.as_bytes()).unwrap(), is_file: false }
}

#[test]
fn each_line_of_a_text_is_a_key_and_so_is_the_file() {
    assert_eq!(parsed(b"one\r\n\ntwo\n"), [of_line("one"), of_line("two"), of_file(b"one\r\n\ntwo\n")]);
    assert_eq!(parsed(b"one\n"), [of_line("one"), of_file(b"one\n")]);
    assert_eq!(parsed(b"one"), [of_line("one")]);
    assert_eq!(*Keys::parse(b"a b \n").unwrap().keys[0].bytes, *b"a b ");
}

#[test]
fn a_binary_file_is_one_key() {
    assert_eq!(parsed(b"a\nb\0"), [of_file(b"a\nb\0")]);
    assert_eq!(parsed(b"\xff\n"), [of_file(b"\xff\n")]);
}

#[test]
fn missing_and_long_files_and_too_many_keys_are_a_misuse() {
    assert_eq!(parsed(b""), []);
    assert!(Keys::parse("one\n".repeat(KEYS_MAX).as_bytes()).unwrap_err().is_misuse());
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none");
    assert!(Keys::read(&[missing]).unwrap_err().is_misuse());
    let long = folder.path().join("long");
    std::fs::write(&long, vec![b'a'; (8 << 20) + 1]).unwrap();
    assert!(Keys::read(&[long]).unwrap_err().is_misuse());
}

#[test]
fn a_long_key_file_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let content: Vec<_> = (0..20_000).map(|at| (at % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let keys = Keys::read(&[path]).unwrap();
    assert_eq!(keys.keys.len(), 1);
    assert!(*keys.keys[0].bytes == *content && keys.keys[0].is_file);
}

#[test]
fn a_file_that_begins_as_a_volume_of_luks_is_a_header_and_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("header");
    let content = [HEADER_START, &[7; 20_000]].concat();
    std::fs::write(&path, &content).unwrap();
    let keys = Keys::read(&[&path]).unwrap();
    assert_eq!((keys.keys.len(), keys.headers.len()), (0, 1));
    assert_eq!(keys.headers[0].piece().range.len, content.len() as u64);
    // A whole volume is no header.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(65 << 20).unwrap();
    assert!(Keys::read(&[path]).unwrap_err().is_misuse());
}

#[test]
fn recovery_passwords_and_hexadecimal_keys_are_recognised_by_form() {
    let password = "284867-596541-514998-422114-660297-261613-215424-199408";
    let key = line(password).recovery_password().unwrap();
    assert_eq!(key[..2], 25897_u16.to_le_bytes());
    // One digit changed, a group too few, a group too many, a group too great.
    for other in [
        "284868-596541-514998-422114-660297-261613-215424-199408",
        "284867-596541-514998-422114-660297-261613-215424",
        "284867-596541-514998-422114-660297-261613-215424-199408-199408",
        "284867-596541-514998-422114-660297-261613-215424-999999",
        "+28486-596541-514998-422114-660297-261613-215424-199408",
    ] {
        assert!(line(other).recovery_password().is_none(), "{other}");
    }
    assert_eq!(*line("00fF10a9").hexadecimal().unwrap().unwrap(), [0, 255, 16, 0xa9]);
    assert!(["0", "0g", "", "é0"].iter().all(|text| line(text).hexadecimal().unwrap().is_none()));
}

#[test]
fn nothing_of_a_key_is_shown() {
    let shown = format!("{:?}", Keys::parse(b"correct horse").unwrap());
    assert!(!shown.contains("horse") && !shown.contains("99"), "{shown}");
}

proptest! {
    #[test]
    fn any_file_is_read_without_a_panic(content in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(keys) = Keys::parse(&content) {
            for key in keys.iter() {
                let _ = (key.hexadecimal(), key.recovery_password());
            }
        }
    }
}
