//! The patterns of searches, compiled: once for all jobs with the same order, by the thread that needs them first.
//!
//! Compiled patterns take much memory, so that a node has those of few orders at once. The words of all of them share a limit, of
//! which the engine counts what it will take before it takes it. One order is compiled at a time, as that takes the most.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::jobs::SearchOrder;
use cheetah_error::{Error, Result};
use cheetah_search::{BlockKey, Limits, MATCH_BYTES_MAX, Order, Search, UnknownEncoding, UnknownFinder, WORDS_MAX};
use parking_lot::Mutex;
use zeroize::Zeroize as _;

/// The memory for the words of all orders, in bytes: 100,000 words of 12 letters in four encodings take at most half of it.
const WORD_MEMORY_BYTES_MAX: usize = 512 << 20;
/// The keys of the blocks of an order, in bytes.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// The memory for the expressions of an order in each thread, in bytes.
const EXPRESSION_MEMORY_BYTES_MAX: usize = 128 << 20;
/// The orders of a node at once.
const ORDERS_MAX: usize = 4;
/// The expressions of an order: each is a search of its own.
const EXPRESSIONS_MAX: usize = 64;
/// The length of the text of an expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 16 << 10;

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Refuses, with the reason, an order that is beyond the limits before it is compiled, or of another version.
pub(crate) fn check(order: &SearchOrder) -> std::result::Result<(), &'static str> {
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
    memory: Arc<WordMemory>,
}

/// The memory for the words of all orders.
struct WordMemory {
    bytes_max: usize,
    taken_bytes: AtomicUsize,
    /// Held while an order is compiled.
    compiling: Mutex<()>,
}

impl WordMemory {
    const fn of(bytes_max: usize) -> Self {
        Self { bytes_max, taken_bytes: AtomicUsize::new(0), compiling: Mutex::new(()) }
    }

    /// Compiles an order within what is left, and takes as much.
    fn compile(&self, order: &SearchOrder) -> Result<Search> {
        let _alone = self.compiling.lock();
        // Others only give back meanwhile.
        let left_bytes = self.bytes_max.saturating_sub(self.taken_bytes.load(Ordering::Acquire));
        let limits = Limits {
            word_memory_bytes_max: left_bytes,
            block_bytes_max: BLOCK_BYTES_MAX,
            expression_bytes_max: EXPRESSION_MEMORY_BYTES_MAX,
        };
        let search = compiled(order, limits)?;
        self.taken_bytes.fetch_add(search.word_memory_bytes(), Ordering::AcqRel);
        Ok(search)
    }

    /// Gives back what an order took.
    fn give_back(&self, bytes: usize) {
        self.taken_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Patterns {
    /// The patterns, compiled.
    ///
    /// # Errors
    ///
    /// If they make no sense, or take too much.
    pub fn search(&self) -> std::result::Result<&Search, &Error> {
        self.search.get_or_init(|| self.memory.compile(&self.order)).as_ref()
    }
}

impl Drop for Patterns {
    fn drop(&mut self) {
        self.order.words.zeroize();
        self.order.expressions.zeroize();
        self.order.blocks.zeroize();
        if let Some(Ok(search)) = self.search.take() {
            let bytes = search.word_memory_bytes();
            drop(search);
            self.memory.give_back(bytes);
        }
    }
}

/// The patterns of an order, compiled within limits.
pub(crate) fn compiled(order: &SearchOrder, limits: Limits) -> Result<Search> {
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
    let search = Search::within(&order, limits);
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
pub(super) struct AllPatterns {
    orders: Mutex<Vec<Weak<Patterns>>>,
    memory: Arc<WordMemory>,
}

impl Default for AllPatterns {
    fn default() -> Self {
        Self::within(WORD_MEMORY_BYTES_MAX)
    }
}

impl AllPatterns {
    /// None yet, whose words may take this much memory.
    fn within(word_memory_bytes_max: usize) -> Self {
        Self { orders: Mutex::default(), memory: Arc::new(WordMemory::of(word_memory_bytes_max)) }
    }

    /// The patterns of an order; `None` if the node has those of too many others.
    pub fn of(&self, order: SearchOrder) -> Option<Arc<Patterns>> {
        // Wiped if it is not kept.
        let new = Patterns { order, search: OnceLock::new(), memory: self.memory.clone() };
        let mut all = self.orders.lock();
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

    const ALL_ENCODINGS: [&str; 4] = ["utf-8", "utf-16le", "utf-16be", "windows-1252"];

    /// An order for words of this length in all encodings.
    fn many(count: usize, len: usize) -> SearchOrder {
        SearchOrder {
            words: (0..count).map(|number| format!("{number:0len$}")).collect(),
            encodings: ALL_ENCODINGS.map(str::to_owned).to_vec(),
            ..words(&[])
        }
    }

    #[test]
    fn the_most_words_in_all_encodings_are_taken() {
        let all = AllPatterns::default();
        let order = all.of(many(WORDS_MAX, 12)).unwrap();
        assert_eq!(order.search().unwrap().patterns().len(), WORDS_MAX);
        assert!(all.memory.taken_bytes.load(Ordering::Acquire) <= WORD_MEMORY_BYTES_MAX / 2);
        drop(order);
        assert_eq!(all.memory.taken_bytes.load(Ordering::Acquire), 0);
    }

    #[test]
    fn words_that_take_too_much_memory_are_refused() {
        let all = AllPatterns::within(32 << 20);
        let is_taken = |order| all.of(order).unwrap().search().is_ok();
        assert_eq!([many(1000, 12), many(20_000, 12)].map(is_taken), [true, false]);
        // Long ones.
        assert_eq!([many(10, 1000), many(2000, 1000)].map(is_taken), [true, false]);
        // The letters have two cases of three bytes each, so that a few of these words have as many forms.
        let greek = |count| SearchOrder {
            words: (0..count).map(|number| format!("{number}ἀἁἂἃἄἅἆἇ")).collect(),
            ignore_case: true,
            ..words(&[])
        };
        assert_eq!([greek(100), greek(20_000)].map(is_taken), [true, false]);
        // Each ends with all shorter ones: the matches of an automaton are the square of them.
        let alike = |count| SearchOrder { words: (1..=count).map(|len| "a".repeat(len)).collect(), ..words(&[]) };
        assert_eq!([alike(30), alike(1000)].map(is_taken), [true, false]);
    }

    #[test]
    fn the_words_of_all_orders_share_the_memory_and_give_it_back() {
        let all = AllPatterns::within(10 << 20);
        let first = all.of(many(3000, 12)).unwrap();
        first.search().unwrap();
        let second = all.of(many(3001, 12)).unwrap();
        assert!(second.search().is_err());
        drop((first, second));
        all.of(many(3001, 12)).unwrap().search().unwrap();
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
