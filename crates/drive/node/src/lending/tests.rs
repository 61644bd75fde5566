use super::*;

const GIB: u64 = 1 << 30;
const RULES: Rules = Rules { keep_free_bytes: 2 * GIB, lent_bytes_max: 30 * GIB };

fn seen(available_bytes: u64) -> Seen {
    Seen { available_bytes, is_pressed: false }
}

fn part(name: &str, bytes: u64, has_writer: bool) -> HeldPart {
    HeldPart { name: name.into(), promised_bytes: bytes, used_bytes: bytes, has_writer }
}

fn held(parts: &[HeldPart]) -> Held {
    let promised_bytes = parts.iter().map(|part| part.promised_bytes).sum();
    let used_bytes = parts.iter().map(|part| part.used_bytes).sum();
    Held { used_bytes, promised_bytes, parts: parts.to_vec() }
}

/// A node whose exports use all that it lends: the machine has 2 GiB left.
fn full(parts: &[HeldPart]) -> (Lending, Held, Instant) {
    let held = held(parts);
    let now = Instant::now();
    let mut lending = Lending::new(RULES, now, seen(2 * GIB + held.used_bytes));
    assert_eq!(lending.look(now, seen(2 * GIB), &held).leaving.len(), 0);
    (lending, held, now)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_node_lends_all_but_what_the_machine_keeps() {
    let now = Instant::now();
    let mut lending = Lending::new(RULES, now, seen(10 * GIB));
    assert_eq!(lending.look(now, seen(10 * GIB), &held(&[])).lent_bytes, 8 * GIB);
    // Its own use changes nothing.
    assert_eq!(lending.look(now, seen(4 * GIB), &held(&[part("a", 6 * GIB, true)])).lent_bytes, 8 * GIB);
    let mut small = Lending::new(RULES, now, seen(GIB));
    assert_eq!(small.look(now, seen(GIB), &held(&[])).lent_bytes, 0);
    let mut large = Lending::new(RULES, now, seen(100 * GIB));
    assert_eq!(large.look(now, seen(100 * GIB), &held(&[])).lent_bytes, 30 * GIB);
}

#[test]
fn less_is_lent_at_once_and_more_only_after_there_has_been_room_for_a_while() {
    let now = Instant::now();
    let mut lending = Lending::new(RULES, now, seen(10 * GIB));
    assert_eq!(lending.look(now, seen(5 * GIB), &held(&[])).lent_bytes, 3 * GIB);
    for second in 0..4 {
        assert_eq!(lending.look(now + seconds(second), seen(10 * GIB), &held(&[])).lent_bytes, 3 * GIB);
    }
    // It lends the least that was free meanwhile.
    assert_eq!(lending.look(now + seconds(4), seen(9 * GIB), &held(&[])).lent_bytes, 3 * GIB);
    assert_eq!(lending.look(now + seconds(5), seen(10 * GIB), &held(&[])).lent_bytes, 7 * GIB);
    assert_eq!(lending.look(now + seconds(6), seen(10 * GIB), &held(&[])).lent_bytes, 7 * GIB);
    assert_eq!(lending.look(now + seconds(11), seen(10 * GIB), &held(&[])).lent_bytes, 8 * GIB);
}

#[test]
fn the_machine_keeps_more_while_its_processes_wait_for_memory() {
    let now = Instant::now();
    let mut lending = Lending::new(RULES, now, seen(10 * GIB));
    let pressed = Seen { available_bytes: 10 * GIB, is_pressed: true };
    assert_eq!(lending.look(now, pressed, &held(&[])).lent_bytes, 7 * GIB);
    for second in 1..15 {
        assert_eq!(lending.look(now + seconds(second), seen(10 * GIB), &held(&[])).lent_bytes, 7 * GIB, "{second}");
    }
    assert_eq!(lending.look(now + seconds(15), seen(10 * GIB), &held(&[])).lent_bytes, 8 * GIB);
}

#[test]
fn enough_exports_are_marked_those_that_can_move_first() {
    let (mut lending, held, now) = full(&[part("a", 3 * GIB, false), part("b", 2 * GIB, true), part("c", GIB, true)]);
    let marked = |decision: &Decision| decision.leaving.keys().cloned().collect::<Vec<_>>();
    let first = lending.look(now, seen(2 * GIB - GIB / 2), &held);
    assert_eq!((marked(&first), &first.drop), (vec!["c".to_owned()], &None));
    assert_eq!(first.leaving["c"], now + MOVE_TIME);
    let more = lending.look(now + seconds(1), seen(GIB / 2 + GIB / 4), &held);
    assert_eq!(marked(&more), ["b", "c"]);
    assert_eq!((more.leaving["c"], more.leaving["b"]), (now + MOVE_TIME, now + seconds(1) + MOVE_TIME));
    // The machine needs less again.
    lending.look(now + seconds(2), seen(2 * GIB), &held);
    let none = lending.look(now + seconds(8), seen(2 * GIB), &held);
    assert_eq!((none.leaving.len(), none.drop), (0, None));
}

#[test]
fn an_export_that_was_not_moved_in_time_is_dropped_if_the_machine_has_little_memory_left() {
    let (mut lending, held, now) = full(&[part("a", 3 * GIB, true), part("b", 2 * GIB, true)]);
    lending.look(now, seen(GIB), &held);
    assert_eq!(lending.look(now + MOVE_TIME - seconds(1), seen(GIB), &held).drop, None);
    assert_eq!(lending.look(now + MOVE_TIME, seen(GIB), &held).drop, Some("b".into()));
    let (mut lending, held, now) = full(&[part("a", 3 * GIB, true)]);
    // A promise that others do not miss yet: the writer has more time.
    let mut thin = held.clone();
    thin.used_bytes = GIB;
    thin.parts[0].used_bytes = GIB;
    for second in 0..500 {
        let decision = lending.look(now + seconds(second), seen(3 * GIB), &thin);
        assert_eq!((decision.leaving.len(), decision.drop), (1, None));
    }
}

#[test]
fn a_machine_with_almost_no_memory_left_gets_it_at_once_and_no_more_than_it_needs() {
    let (mut lending, held, now) =
        full(&[part("a", 6 * GIB, true), part("b", 2 * GIB, true), part("c", 9 * GIB, false)]);
    let decision = lending.look(now, seen(GIB / 4), &held);
    assert_eq!(decision.drop, Some("b".into()), "the smallest that is enough");
    // What the node still holds is not short of memory any more.
    let rest = Held { parts: vec![held.parts[0].clone(), held.parts[2].clone()], ..Held::default() };
    let rest = Held { used_bytes: 15 * GIB, promised_bytes: 15 * GIB, ..rest };
    let after = lending.look(now, seen(2 * GIB + GIB / 4), &rest);
    assert_eq!((after.leaving.len(), after.drop), (0, None));
}
