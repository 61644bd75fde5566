//! The patterns of searches, compiled: once for all jobs with the same order, by the thread that needs them first.
//!
//! Compiled patterns take much memory, so that a node has those of few orders at once.

use std::sync::{Arc, OnceLock, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::jobs::SearchOrder;
use cheetah_error::{Error, Result};
use cheetah_search::{BlockKey, Limits, MATCH_BYTES_MAX, Order, Search, UnknownEncoding, UnknownFinder, WORDS_MAX};
use parking_lot::Mutex;
use zeroize::Zeroize as _;

/// What the patterns of an order may take. The words of this length take about 100 MB, and so may the expressions in each thread.
const LIMITS: Limits = Limits { pattern_bytes_max: 1 << 20, expression_bytes_max: 128 << 20 };
/// The orders of a node at once.
const ORDERS_MAX: usize = 4;
/// The expressions of an order: each is a search of its own.
const EXPRESSIONS_MAX: usize = 64;
/// The length of the text of an expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 16 << 10;

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Refuses, with the reason, an order that is beyond the limits before it is compiled, or of another version.
pub(super) fn check(order: &SearchOrder) -> std::result::Result<(), &'static str> {
    match () {
        () if order.version != VERSION => Err("this node has another version, and could find other hits"),
        () if order.words.len() > WORDS_MAX => Err("a search has at most 100,000 words"),
        // No character has less than a byte in any encoding.
        () if order.words.iter().any(|word| word.chars().count() > MATCH_BYTES_MAX) => Err("a word is too long"),
        () if order.expressions.len() > EXPRESSIONS_MAX => Err("a search at a node has at most 64 expressions"),
        () if order.expressions.iter().any(|text| text.len() > EXPRESSION_BYTES_MAX) => {
            Err("an expression has at most 16 KiB")
        }
        () => Ok(()),
    }
}

/// The patterns of an order. The order is wiped when it is dropped.
pub(super) struct Patterns {
    order: SearchOrder,
    search: OnceLock<Result<Search>>,
}

impl Patterns {
    /// The patterns, compiled.
    ///
    /// # Errors
    ///
    /// If they make no sense, or take too much.
    pub fn search(&self) -> std::result::Result<&Search, &Error> {
        self.search.get_or_init(|| compiled(&self.order)).as_ref()
    }
}

impl Drop for Patterns {
    fn drop(&mut self) {
        self.order.words.zeroize();
        self.order.expressions.zeroize();
        self.order.blocks.zeroize();
    }
}

fn compiled(order: &SearchOrder) -> Result<Search> {
    let encoding = |name: &String| name.parse().map_err(|error: UnknownEncoding| Error::misuse(error.to_string()));
    let finder = |name: &String| name.parse().map_err(|error: UnknownFinder| Error::misuse(error.to_string()));
    let mut order = Order {
        words: order.words.clone(),
        expressions: order.expressions.clone(),
        finders: order.finders.iter().map(finder).collect::<Result<_>>()?,
        blocks: blocks(&order.blocks)?,
        encodings: order.encodings.iter().map(encoding).collect::<Result<_>>()?,
        ignore_case: order.ignore_case,
        context_bytes: order.context_bytes,
    };
    let search = Search::within(&order, LIMITS);
    order.words.zeroize();
    order.expressions.zeroize();
    search
}

/// The keys of blocks, as they are sent.
fn blocks(text: &str) -> Result<Vec<BlockKey>> {
    let bytes = STANDARD.decode(text).ok();
    bytes.and_then(|bytes| BlockKey::from_bytes(&bytes)).ok_or_else(|| Error::misuse("these are no keys of blocks"))
}

/// The patterns of the jobs that a node has.
#[derive(Default)]
pub(super) struct AllPatterns(Mutex<Vec<Weak<Patterns>>>);

impl AllPatterns {
    /// The patterns of an order; `None` if the node has those of too many others.
    pub fn of(&self, order: SearchOrder) -> Option<Arc<Patterns>> {
        // Wiped if it is not kept.
        let new = Patterns { order, search: OnceLock::new() };
        let mut all = self.0.lock();
        all.retain(|patterns| patterns.strong_count() > 0);
        if let Some(same) = all.iter().filter_map(Weak::upgrade).find(|same| same.order == new.order) {
            return Some(same);
        }
        (all.len() < ORDERS_MAX).then(|| {
            let new = Arc::new(new);
            all.push(Arc::downgrade(&new));
            new
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An order for words.
    pub fn words(words: &[&str]) -> SearchOrder {
        SearchOrder {
            version: VERSION.into(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            encodings: vec!["utf-8".into()],
            ..SearchOrder::default()
        }
    }

    fn patterns(order: SearchOrder) -> Arc<Patterns> {
        AllPatterns::default().of(order).unwrap()
    }

    #[test]
    fn an_order_beyond_the_limits_is_refused_before_it_is_compiled() {
        let many = |text: &str, count| vec![text.to_owned(); count];
        assert_eq!(check(&words(&["secret"])), Ok(()));
        for order in [
            SearchOrder { version: "0.0.0".into(), ..words(&["secret"]) },
            SearchOrder { words: many("secret", WORDS_MAX + 1), ..words(&[]) },
            words(&[&"x".repeat(MATCH_BYTES_MAX + 1)]),
            SearchOrder { expressions: many("x", EXPRESSIONS_MAX + 1), ..words(&[]) },
            SearchOrder { expressions: many(&"x".repeat(EXPRESSION_BYTES_MAX + 1), 1), ..words(&[]) },
        ] {
            check(&order).unwrap_err();
        }
    }

    #[test]
    fn patterns_that_take_too_much_memory_or_make_no_sense_are_refused_when_they_are_compiled() {
        let is_taken = |order| {
            assert_eq!(check(&order), Ok(()));
            patterns(order).search().is_ok()
        };
        let expressions = |texts: &[&str]| SearchOrder {
            expressions: texts.iter().map(|text| (*text).into()).collect(),
            ..words(&[])
        };
        let many =
            |count| SearchOrder { words: (0..count).map(|number| format!("{number:011}")).collect(), ..words(&[]) };
        assert_eq!((is_taken(many(90_000)), is_taken(many(WORDS_MAX))), (true, false));
        // The letters have two cases of three bytes each, so that a few of these words have as many forms.
        let greek = |count| SearchOrder {
            words: (0..count).map(|number| format!("ἀἁἂἃἄἅἆἇ{number}")).collect(),
            ignore_case: true,
            ..words(&[])
        };
        assert_eq!((is_taken(greek(1000)), is_taken(greek(9000))), (true, false));
        let large: Vec<String> = (0..40).map(|number| format!("{number}(?u:\\w{{20}})")).collect();
        let large: Vec<&str> = large.iter().map(String::as_str).collect();
        assert_eq!((is_taken(expressions(&large[..10])), is_taken(expressions(&large))), (true, false));
        for bad in ["(?u:\\w{2000})", "a+", "a{9000}", "(", "a{0,3}"] {
            assert!(!is_taken(expressions(&[bad])), "{bad}");
        }
        assert!(!is_taken(words(&[])));
        assert!(!is_taken(SearchOrder { encodings: vec!["cp9999".into()], ..words(&["x"]) }));
        assert!(!is_taken(SearchOrder { finders: vec!["mail".into()], ..words(&["x"]) }));
        let keys = |count: u64| (0..count).flat_map(|key| [key, !key, key].map(u64::to_le_bytes)).flatten().collect();
        let blocks = |count| SearchOrder { blocks: STANDARD.encode::<Vec<u8>>(keys(count)), ..words(&[]) };
        assert_eq!([1, 40_000, 50_000].map(|count| is_taken(blocks(count))), [true, true, false]);
        assert!(!is_taken(SearchOrder { blocks: "QUJD".into(), ..words(&[]) }));
        assert!(is_taken(SearchOrder { context_bytes: usize::MAX, ..words(&["x"]) }));
    }

    #[test]
    fn jobs_with_the_same_order_share_its_patterns_and_a_node_has_few_orders_at_once() {
        let all = AllPatterns::default();
        let kept: Vec<_> = (0..ORDERS_MAX).map(|number| all.of(words(&[&number.to_string()])).unwrap()).collect();
        assert!(Arc::ptr_eq(&all.of(words(&["0"])).unwrap(), &kept[0]));
        assert!(all.of(words(&["another"])).is_none());
        drop(kept);
        all.of(words(&["another"])).unwrap();
    }
}
