use proptest::prelude::*;

use super::*;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

#[test]
fn patterns_are_parsed_in_every_notation() {
    let read = |text: &str| text.parse::<Pattern>().map(|pattern| pattern.offsets());
    assert_eq!(read("single"), Ok(vec![us(0)]));
    assert_eq!(read("pair:0"), Ok(vec![us(0), us(0)]));
    assert_eq!(read("pair:1.5ms"), Ok(vec![us(0), us(1500)]));
    assert_eq!(read("train:3@242us"), Ok(vec![us(0), us(242), us(484)]));
    assert_eq!(read("gaps:10us,0,1ms"), Ok(vec![us(0), us(10), us(10), us(1010)]));
    assert_eq!(read("at:5µs,5us,1s"), Ok(vec![us(5), us(5), us(1_000_000)]));
    assert_eq!(read("pair:250ns"), Ok(vec![us(0), Duration::from_nanos(250)]));
}

#[test]
fn an_invalid_pattern_is_refused_with_a_reason() {
    let refused = |text: &str| text.parse::<Pattern>().expect_err(text);
    for text in ["", "singles", "train:5"] {
        assert!(matches!(refused(text), PatternError::Unknown(_)), "{text}");
    }
    for text in [
        "pair:",
        "pair:10",
        "pair:us",
        "pair:1.us",
        "pair:.5us",
        "pair:0.5ns",
        "pair:-1us",
        "pair:1e3us",
        "pair:99999999999999999999s",
        "pair:3601s",
    ] {
        assert!(matches!(refused(text), PatternError::Duration(_)), "{text}");
    }
    for text in ["train:0@1us", "train:10001@1us", "train:-1@1us"] {
        assert!(matches!(refused(text), PatternError::Packets), "{text}");
    }
    for text in ["train:10000@1s", "gaps:3000s,3000s"] {
        assert!(matches!(refused(text), PatternError::Span), "{text}");
    }
    assert!(matches!(refused("at:2us,1us"), PatternError::Order));
    let many = format!("gaps:{}", vec!["1us"; PACKETS_MAX].join(","));
    assert_eq!(many.parse::<Pattern>(), Err(PatternError::Packets));
}

#[test]
fn a_rate_makes_a_gap() {
    let train = Pattern::at_rate(50, 1514, 50e6).unwrap();
    assert_eq!(train, Pattern::Train { packets: 50, gap: Duration::from_nanos(242_240) });
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(Pattern::at_rate(2, 1514, rate), Err(PatternError::Rate(_))), "{rate}");
    }
    assert_eq!(Pattern::at_rate(2, 1514, 1e-300), Err(PatternError::Span));
    assert_eq!(Pattern::at_rate(0, 1514, 1e6), Err(PatternError::Packets));
}

fn any_time() -> impl Strategy<Value = Duration> {
    prop_oneof![0..2000_u64, 0..5_000_000_000_u64, (0..3000_u64).prop_map(|ms| ms * 1_000_000)]
        .prop_map(Duration::from_nanos)
}

fn any_pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        Just(Pattern::Single),
        any_time().prop_map(Pattern::Pair),
        (1..=PACKETS_MAX, 0..300_000_000_u64)
            .prop_map(|(packets, ns)| Pattern::Train { packets, gap: Duration::from_nanos(ns) }),
        prop::collection::vec(any_time(), 1..20).prop_map(Pattern::Gaps),
        prop::collection::vec(any_time(), 1..20).prop_map(|mut times| {
            times.sort_unstable();
            Pattern::At(times)
        }),
    ]
}

proptest! {
    #[test]
    fn a_printed_pattern_parses_to_itself(pattern in any_pattern()) {
        prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
    }

    #[test]
    fn packets_are_due_in_order_and_their_number_is_as_reported(pattern in any_pattern(), start in any::<u32>()) {
        let offsets = pattern.offsets();
        prop_assert_eq!(offsets.len(), pattern.packets());
        prop_assert_eq!(offsets.last().copied(), Some(pattern.span()));
        let due = due(Nanos(u64::from(start)), &offsets);
        prop_assert!(due.is_sorted());
        for (due, offset) in due.iter().zip(&offsets) {
            prop_assert_eq!(due.since(Nanos(u64::from(start))), *offset);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(single|pair:|train:|gaps:|at:)?[0-9.,@numsµ-]{0,40}") {
        if let Ok(pattern) = text.parse::<Pattern>() {
            prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
    }
}
