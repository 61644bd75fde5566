//! Single searches.

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Error as DeviceError};
use cheetah_search::{Atoms, Hit, Order, PatternKind, RunOptions, Search};

use crate::support::{Disk, searched, words};

const OPTIONS: RunOptions = RunOptions { part_bytes: 512, workers: 2, absent: Vec::new(), within: None };

#[test]
fn a_device_that_is_gone_ends_the_search_and_keeps_what_was_found_before() {
    let mut bytes = vec![0; 8192];
    bytes[1020..1026].copy_from_slice(b"secret");
    bytes[6000..6006].copy_from_slice(b"secret");
    let found = searched(&words(&["secret"]), Disk { gone_from: 4096, ..Disk::whole(bytes) }, &OPTIONS);
    assert_eq!(found.hits.iter().map(|hit| hit.offset).collect::<Vec<_>>(), [1020]);
    let ended = found.ended.unwrap_err();
    assert!(matches!(ended.device_error(), Some(DeviceError::Lost { .. })), "{ended}");
    let searched: Vec<_> = found.outcome.coverage().in_state(State::Read).collect();
    assert_eq!(searched, [ByteRange::new(0, 4096)]);
    assert_eq!(found.outcome.coverage().bytes(State::Unread), 4096);
}

#[test]
fn a_word_with_the_same_bytes_in_several_encodings_is_one_hit() {
    let encodings = ["utf-8", "cp1252", "latin1", "utf-16le"].map(|name| name.parse().unwrap()).to_vec();
    let order = Order { encodings, ..words(&["secret", "é"]) };
    let found = searched(&order, Disk::whole(b"secret \xe9 \xc3\xa9 s\0e\0c\0r\0e\0t\0".to_vec()), &OPTIONS);
    let hits: Vec<_> = found.hits.iter().map(|hit| (hit.offset, hit.encoding.name())).collect();
    let expected = [(0, "utf-8"), (7, "windows-1252"), (9, "utf-8"), (12, "utf-16le")];
    assert_eq!(hits, expected.map(|(offset, name)| (offset, name.to_owned())));
}

#[test]
fn a_word_that_an_encoding_cannot_write_is_said_to_be_searched_in_the_others_only() {
    let encodings = ["cp1252", "koi8-r"].map(|name| name.parse().unwrap()).to_vec();
    let search = Search::new(&Order { encodings, ..words(&["пароль", "ア"]) }).unwrap();
    let names = |index: usize| search.patterns()[index].encodings.iter().map(|one| one.name()).collect::<Vec<_>>();
    assert_eq!((names(0), names(1)), (vec!["koi8-r".to_owned()], vec![]));
}

#[test]
fn expressions_are_found_in_utf_16_unless_they_have_assertions() {
    let encodings = ["utf-8", "utf-16le"].map(|name| name.parse().unwrap()).to_vec();
    let expressions = vec!["[a-c]{2}1?".to_owned(), "\\bab\\b".to_owned()];
    let order = Order { expressions, encodings, ..Order::default() };
    let search = Search::new(&order).unwrap();
    assert_eq!(search.patterns().iter().map(|pattern| pattern.has_assertions).collect::<Vec<_>>(), [false, true]);
    let found = searched(&order, Disk::whole(b"ab c\0b\x001\0".to_vec()), &OPTIONS);
    let hits: Vec<_> = found.hits.iter().map(|hit| (hit.offset, hit.text())).collect();
    assert_eq!(hits, [(0, "ab".to_owned()), (0, "ab".to_owned()), (3, "cb1".to_owned())]);
}

#[test]
fn zeros_are_searched_if_a_pattern_matches_them() {
    let order = Order { expressions: vec!["\\x00{600}a".into(), "(?m)^\\x00".into()], ..words(&["x"]) };
    let mut bytes = vec![0; 4096];
    bytes[2000] = b'a';
    let found = searched(&order, Disk::whole(bytes), &OPTIONS);
    assert_eq!(found.hits.iter().map(|hit| (hit.offset, hit.len())).collect::<Vec<_>>(), [(0, 1), (1400, 601)]);
}

#[test]
fn patterns_that_match_everywhere_are_refused() {
    let order = Order { expressions: vec!["(?s).".into()], ..words(&["x"]) };
    let options = RunOptions { part_bytes: 4 << 20, ..OPTIONS };
    let found = searched(&order, Disk::whole(vec![b'a'; 3 << 20]), &options);
    assert!(found.ended.unwrap_err().is_misuse());
    assert_eq!(found.outcome.coverage().bytes(State::Read), 0);
}

#[test]
fn an_empty_device_is_searched() {
    let found = searched(&words(&["x"]), Disk::whole(Vec::new()), &OPTIONS);
    assert!(found.hits.is_empty() && found.ended.is_ok() && found.outcome.coverage().is_whole());
}

#[test]
fn atoms_of_rules_are_found_beside_words_in_a_case_of_their_own_and_without_context() {
    let atoms = |ignore_case| Atoms { words: vec!["MZ\u{81}".to_owned()], ignore_case };
    let order = |ignore_case| Order { atoms: atoms(ignore_case), context_bytes: 4, ..words(&["secret"]) };
    let bytes = b"a secret, a SECRET, MZ\x81 and mz\x81".to_vec();
    let found = |ignore_case| searched(&order(ignore_case), Disk::whole(bytes.clone()), &OPTIONS);
    let places = |hits: &[Hit]| hits.iter().map(|hit| (hit.offset, hit.pattern)).collect::<Vec<_>>();
    assert_eq!(places(&found(false).hits), [(2, 0), (20, 1)]);
    let hits = found(true).hits;
    assert_eq!(places(&hits), [(2, 0), (20, 1), (28, 1)]);
    assert_eq!((&hits[0].after[..], hits[1].before.len(), hits[1].after.len()), (&b", a "[..], 0, 0));
    let search = Search::new(&order(true)).unwrap().with_rules(["Dropper".to_owned()]);
    let kinds: Vec<_> = search.patterns().iter().map(|pattern| pattern.kind).collect();
    assert_eq!(kinds, [PatternKind::Word, PatternKind::Atom, PatternKind::Rule]);
    assert!(!search.is_for_nothing() && Search::for_nothing().with_rules(["Large".to_owned()]).is_for_nothing());
}

#[test]
fn an_order_for_nothing_is_refused() {
    for order in [words(&[]), words(&[""]), Order { encodings: Vec::new(), ..words(&["x"]) }] {
        assert!(Search::new(&order).err().is_some_and(|error| error.is_misuse()));
    }
}
