//! The patterns of searches, compiled: once for all jobs with the same order, by the thread that needs them first.
//!
//! Compiled patterns take much memory, so that a node has those of few orders at once, and only as long as there is
//! [memory](crate::search_memory) for them: of words, the engine counts what it will take before it takes it. Each thread that searches
//! takes more: as many search for an order at once as there is memory for.

use std::sync::{Arc, OnceLock, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::jobs::SearchOrder;
use cheetah_error::{Error, Result};
use cheetah_kit::wiping::Wiping;
use cheetah_search::{
    Atoms, BLOCK_MEMORY, BlockKey, Limits, MATCH_BYTES_MAX, Order, Search, TooMuch, UnknownEncoding, UnknownFinder,
    WORDS_MAX,
};
use parking_lot::Mutex;
use zeroize::Zeroize as _;

use super::JobError;
use super::seats::{Seat, Seats};
use super::units::Stopped;
use crate::search_memory::{Granted, NoMemory, SearchMemory};
use crate::spare::{OUTPUT_BYTES_MAX, SEARCH_BYTES_MAX};

/// What the patterns of an order may take: 100,000 words of 12 letters in four encodings, and as many expressions in each thread.
const LIMITS: Limits =
    Limits { word_memory_bytes_max: 256 << 20, block_bytes_max: 1 << 20, expression_bytes_max: 128 << 20 };
/// The orders of a node at once.
const ORDERS_MAX: usize = 4;
/// The expressions of an order: each is a search of its own.
const EXPRESSIONS_MAX: usize = 64;
/// The length of the text of an expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 16 << 10;

/// The memory without which no search is taken, in bytes: that of a few words.
const SEARCH_BYTES_LEAST: u64 = 1 << 20;

/// What an order may take, in bytes, before its memory is granted: that of a few orders is a part of what a node keeps for itself.
const ORDER_BYTES_FREE: u64 = 256 << 10;
/// What a text of an order takes beside its bytes: its place in a list that grew, and what is allocated beside it.
const TEXT_BYTES: usize = 2 * size_of::<String>() + 32;

const _: () = {
    // A machine that keeps memory for a search has enough for any search, in one thread.
    let words = LIMITS.word_memory_bytes_max + LIMITS.block_bytes_max * BLOCK_MEMORY;
    assert!((words + LIMITS.expression_bytes_max) as u64 <= SEARCH_BYTES_MAX - OUTPUT_BYTES_MAX);
};

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Refuses, with the reason, an order that is beyond the limits before it is compiled, or of another version.
pub(crate) fn check(order: &SearchOrder) -> std::result::Result<(), &'static str> {
    match () {
        () if order.version != VERSION => Err("this node has another version, and could find other hits"),
        () if order.words.len().saturating_add(order.atoms.words.len()) > WORDS_MAX => {
            Err("a search has at most 100,000 words")
        }
        // No character has less than a byte in any encoding.
        () if order.words.iter().chain(&order.atoms.words).any(|word| word.chars().count() > MATCH_BYTES_MAX) => {
            Err("a word is too long")
        }
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
    memory: Arc<SearchMemory>,
    /// The threads that may search for them at once, if there is memory for all.
    threads: usize,
    /// The memory of the order itself, unless its words are compiled: that counts it.
    kept: Mutex<Option<Granted>>,
    /// In a block of its own: a [`Weak`] keeps the one of the patterns after they are dropped.
    search: OnceLock<std::result::Result<Box<Compiled>, NoPatterns>>,
    // After all that is made of the order, which the libraries that made it do not wipe.
    _wiping: Wiping,
}

/// Compiled patterns.
pub(super) struct Compiled {
    search: Search,
    seats: Seats,
    _granted: Granted,
}

/// Why an order has no patterns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPatterns {
    /// They make no sense, or take more than any node has for a search.
    #[error("{0}")]
    Wrong(Error),
    /// They take more than this machine has left.
    #[error(transparent)]
    NoMemory(NoMemory),
}

impl Patterns {
    /// The patterns, compiled.
    ///
    /// # Errors
    ///
    /// If they make no sense, or take too much.
    pub fn search(&self) -> std::result::Result<&Compiled, &NoPatterns> {
        self.search.get_or_init(|| self.compiled().map(Box::new)).as_deref()
    }

    /// The patterns, and a place among the threads that search for them, as soon as one is free.
    ///
    /// # Errors
    ///
    /// If there are none, or the search is cancelled meanwhile.
    pub fn begin(&self, is_cancelled: impl Fn() -> bool) -> std::result::Result<(&Search, Seat<'_>), Stopped> {
        let compiled = self.search().map_err(|why| Stopped::Failed(why.to_string()))?;
        Ok((&compiled.search, compiled.seats.take(is_cancelled)?))
    }

    fn compiled(&self) -> std::result::Result<Compiled, NoPatterns> {
        let share = Share::of(&self.order, self.threads);
        let _compiling = self.memory.compiling();
        let kept = if share.has_words { self.kept.lock().take() } else { None };
        let kept_bytes = kept.as_ref().map_or(0, Granted::bytes);
        drop(kept);
        let compiled = self.compiled_within(&share);
        if compiled.is_err() && kept_bytes > 0 {
            *self.kept.lock() = Some(self.memory.grant(kept_bytes));
        }
        compiled
    }

    fn compiled_within(&self, share: &Share) -> std::result::Result<Compiled, NoPatterns> {
        let mut granted = self.memory.grant(share.bytes_max());
        let limits = share.limits(granted.bytes());
        let search = compiled(&self.order, limits).map_err(|error| match error.cause::<TooMuch>() {
            Some(TooMuch) if is_less(limits) => NoPatterns::NoMemory(NoMemory { left_bytes: granted.bytes() }),
            _ => NoPatterns::Wrong(error),
        })?;
        let (shared, thread) = (search.shared_bytes() as u64, search.thread_bytes() as u64);
        let fitting = granted.bytes().saturating_sub(shared).checked_div(thread);
        let fitting = fitting.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let threads = fitting.clamp(1, self.threads.max(1));
        granted.shrink(shared.saturating_add(thread.saturating_mul(threads as u64)));
        Ok(Compiled { search, seats: Seats::new(threads), _granted: granted })
    }
}

/// The kinds of patterns among which the memory of an order is divided.
struct Share {
    /// Words, atoms of rules, and blocks of known files.
    has_words: bool,
    /// What these blocks take, in bytes: words get the rest.
    block_memory_bytes: usize,
    /// Expressions, and well-known kinds of data.
    has_expressions: bool,
    threads: usize,
}

impl Share {
    fn of(order: &SearchOrder, threads: usize) -> Self {
        Self {
            has_words: !order.words.is_empty() || !order.atoms.is_empty() || !order.blocks.is_empty(),
            // Four digits of base64 are three bytes.
            block_memory_bytes: (order.blocks.len() / 4 * 3).min(LIMITS.block_bytes_max) * BLOCK_MEMORY,
            has_expressions: !order.expressions.is_empty() || !order.finders.is_empty(),
            threads: threads.max(1),
        }
    }

    /// The most that the order takes.
    fn bytes_max(&self) -> u64 {
        let words = (LIMITS.word_memory_bytes_max + LIMITS.block_bytes_max * BLOCK_MEMORY) as u64;
        let expressions = (LIMITS.expression_bytes_max as u64).saturating_mul(self.threads as u64);
        let of = |has: bool, bytes: u64| if has { bytes } else { 0 };
        of(self.has_words, words).saturating_add(of(self.has_expressions, expressions))
    }

    /// The limits of an order that is granted as many bytes: half for each kind, if it has both.
    fn limits(&self, bytes: u64) -> Limits {
        let both = self.has_words && self.has_expressions;
        let share = usize::try_from(if both { bytes / 2 } else { bytes }).unwrap_or(usize::MAX);
        Limits {
            word_memory_bytes_max: LIMITS.word_memory_bytes_max.min(share.saturating_sub(self.block_memory_bytes)),
            block_bytes_max: LIMITS.block_bytes_max.min(share / BLOCK_MEMORY),
            expression_bytes_max: LIMITS.expression_bytes_max.min(share),
        }
    }
}

/// Whether these limits are less than those of any node.
fn is_less(limits: Limits) -> bool {
    limits.word_memory_bytes_max < LIMITS.word_memory_bytes_max
        || limits.block_bytes_max < LIMITS.block_bytes_max
        || limits.expression_bytes_max < LIMITS.expression_bytes_max
}

impl Drop for Patterns {
    fn drop(&mut self) {
        self.order.words.zeroize();
        self.order.expressions.zeroize();
        self.order.blocks.zeroize();
        self.order.atoms.words.zeroize();
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
        atoms: Atoms { words: order.atoms.words.clone(), ignore_case: order.atoms.ignore_case },
        encodings: order.encodings.iter().map(encoding).collect::<Result<_>>()?,
        ignore_case: order.ignore_case,
        context_bytes: order.context_bytes,
    };
    let search = Search::within(&order, limits);
    order.words.zeroize();
    order.expressions.zeroize();
    order.atoms.words.zeroize();
    search
}

/// What an order takes itself, in bytes.
fn order_bytes(order: &SearchOrder) -> u64 {
    let lists = [&order.words, &order.atoms.words, &order.expressions, &order.finders, &order.encodings];
    let texts = lists.into_iter().flatten().map(|text| text.capacity() + TEXT_BYTES);
    (texts.sum::<usize>() + order.blocks.capacity()) as u64
}

/// The keys of blocks, as they are sent.
fn blocks(text: &str) -> Result<Vec<BlockKey>> {
    let bytes = STANDARD.decode(text).ok();
    bytes.and_then(|bytes| BlockKey::from_bytes(&bytes)).ok_or_else(|| Error::misuse("these are no keys of blocks"))
}

/// The patterns of the jobs that a node has.
#[derive(Default)]
pub(super) struct AllPatterns {
    memory: Arc<SearchMemory>,
    threads: usize,
    all: Mutex<Vec<Weak<Patterns>>>,
}

impl AllPatterns {
    /// For as many threads, within this memory.
    pub fn within(memory: Arc<SearchMemory>, threads: usize) -> Self {
        Self { memory, threads, all: Mutex::default() }
    }

    /// The patterns of an order.
    ///
    /// # Errors
    ///
    /// `TooMany` if the node has those of too many others, or compiles one that may return memory; `NoMemory` if hardly any memory is
    /// left, or not even that of the order.
    pub fn of(&self, order: SearchOrder) -> std::result::Result<Arc<Patterns>, JobError> {
        let memory = Arc::clone(&self.memory);
        // Wiped if it is not kept.
        let new = Patterns {
            order,
            memory,
            threads: self.threads,
            kept: Mutex::default(),
            search: OnceLock::new(),
            _wiping: Wiping::begin(),
        };
        let mut all = self.all.lock();
        all.retain(|patterns| patterns.strong_count() > 0);
        if let Some(same) = all.iter().filter_map(Weak::upgrade).find(|same| same.order == new.order) {
            return Ok(same);
        }
        if all.len() >= ORDERS_MAX {
            return Err(JobError::TooMany);
        }
        *new.kept.lock() = Some(self.granted(&new.order)?);
        let new = Arc::new(new);
        all.push(Arc::downgrade(&new));
        Ok(new)
    }

    /// The memory of an order itself.
    fn granted(&self, order: &SearchOrder) -> std::result::Result<Granted, JobError> {
        let was_compiling = self.memory.is_compiling();
        let kept_bytes = order_bytes(order).saturating_sub(ORDER_BYTES_FREE);
        let granted = self.memory.check(SEARCH_BYTES_LEAST).and_then(|()| self.memory.grant_all(kept_bytes));
        granted.map_err(|why| match was_compiling || self.memory.is_compiling() {
            true => JobError::TooMany,
            false => why.into(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use cheetah_control::jobs::OrderAtoms;

    use super::*;
    use crate::search_memory::tests as search_memory;

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

    /// An order for an atom of rules.
    fn atoms(atom: &str) -> SearchOrder {
        SearchOrder { atoms: OrderAtoms { words: vec![atom.to_owned()], ignore_case: true }, ..words(&[]) }
    }

    #[test]
    fn an_order_beyond_the_limits_is_refused_before_it_is_compiled() {
        let many = |text: &str, count| vec![text.to_owned(); count];
        assert_eq!(check(&words(&["secret"])), Ok(()));
        for order in [
            SearchOrder { version: "0.0.0".into(), ..words(&["secret"]) },
            SearchOrder { words: many("secret", WORDS_MAX + 1), ..words(&[]) },
            SearchOrder { words: many("secret", WORDS_MAX), ..atoms("MZ") },
            atoms(&"x".repeat(MATCH_BYTES_MAX + 1)),
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
        assert!(is_taken(atoms("MZ")));
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
        let order = patterns(many(WORDS_MAX, 12));
        assert_eq!(order.search().map(|compiled| compiled.search.patterns().len()), Ok(WORDS_MAX));
    }

    #[test]
    fn words_that_take_too_much_memory_are_refused() {
        let is_taken = |order| threads(order, 32).is_ok();
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
        let all = AllPatterns::within(search_memory::of(10 * MIB), 1);
        let first = all.of(many(3000, 12)).unwrap();
        first.search().map(|_| ()).unwrap();
        let second = all.of(many(3001, 12)).unwrap();
        assert!(matches!(second.search().map(|_| ()), Err(NoPatterns::NoMemory(_))));
        drop((first, second));
        all.of(many(3001, 12)).unwrap().search().map(|_| ()).unwrap();
    }

    #[test]
    fn jobs_with_the_same_order_share_its_patterns_and_a_node_has_few_orders_at_once() {
        let all = AllPatterns::default();
        let kept: Vec<_> = (0..ORDERS_MAX).map(|number| all.of(words(&[&number.to_string()])).unwrap()).collect();
        assert!(Arc::ptr_eq(&all.of(words(&["0"])).unwrap(), &kept[0]));
        assert_eq!(all.of(words(&["another"])).err(), Some(JobError::TooMany));
        drop(kept);
        all.of(words(&["another"])).unwrap();
    }

    const MIB: u64 = 1 << 20;

    /// The number of threads that search at once for an order, of eight, if as much memory is left; or why none does.
    fn threads(order: SearchOrder, left_mib: u64) -> std::result::Result<usize, NoPatterns> {
        let patterns = AllPatterns::within(search_memory::of(left_mib * MIB), 8).of(order).unwrap();
        patterns.search().map(|compiled| compiled.seats.count()).map_err(Clone::clone)
    }

    #[test]
    fn a_search_that_takes_more_memory_than_is_left_is_refused_and_fewer_threads_search_if_all_take_too_much() {
        let no_memory = |left_mib| Err(NoPatterns::NoMemory(NoMemory { left_bytes: left_mib * MIB }));
        let many = || SearchOrder { words: (0..20_000).map(|number| format!("{number:011}")).collect(), ..words(&[]) };
        // Words of 220,000 bytes.
        assert_eq!((threads(many(), 10), threads(many(), 30)), (no_memory(10), Ok(8)));
        let expression = |text: &str| SearchOrder { expressions: vec![text.into()], ..words(&[]) };
        assert_eq!((threads(expression("a{3}b"), 2), threads(expression("a{3}b"), 64)), (no_memory(2), Ok(8)));
        // Each thread takes 4 MiB.
        assert_eq!(threads(expression("a{3}b"), 10), Ok(2));
        // Half of the memory for each.
        let both = SearchOrder { expressions: vec!["a{3}b".into()], ..words(&["secret"]) };
        assert_eq!((threads(both.clone(), 6), threads(both, 64)), (no_memory(6), Ok(8)));
        // What no node takes is no matter of memory.
        let wrong = |order| matches!(threads(order, 4096), Err(NoPatterns::Wrong(_)));
        assert!(wrong(expression("a+")) && wrong(expression("(?u:\\w{2000})")));
        assert!(matches!(threads(expression("a+"), 2), Err(NoPatterns::Wrong(_))));
    }

    #[test]
    fn words_and_blocks_together_take_no_more_than_the_order_is_granted() {
        let order = |keys: usize| SearchOrder { blocks: STANDARD.encode(vec![0u8; 24 * keys]), ..words(&["secret"]) };
        let granted = 10 << 20;
        let limits = Share::of(&order(1000), 1).limits(granted);
        assert_eq!(limits.word_memory_bytes_max as u64 + 24 * 1000 * BLOCK_MEMORY as u64, granted);
        // With all that an order may have, nothing is less than at any node.
        for keys in [0, 1000, 100_000] {
            let share = Share::of(&order(keys), 1);
            assert!(!is_less(share.limits(share.bytes_max())), "{keys}");
        }
    }

    #[test]
    fn an_order_takes_its_memory_as_long_as_it_is_kept_and_is_refused_if_there_is_not_as_much() {
        let memory = search_memory::of(8 * MIB);
        let all = AllPatterns::within(Arc::clone(&memory), 1);
        let first = all.of(many(20_000, 100)).unwrap();
        let left = memory.reserved_bytes();
        assert!((4 * MIB..6 * MIB).contains(&left), "{left}");
        assert!(matches!(all.of(many(40_000, 100)).err(), Some(JobError::NoMemory(_))));
        assert_eq!(memory.reserved_bytes(), left);
        // Its words take more than there is. It is still there.
        assert!(first.search().is_err());
        assert_eq!(memory.reserved_bytes(), left);
        drop(first);
        assert_eq!(memory.reserved_bytes(), 8 * MIB);
    }

    #[test]
    fn an_order_waits_for_the_memory_that_is_granted_while_another_is_compiled() {
        let memory = search_memory::of(12 * MIB);
        let all = AllPatterns::within(Arc::clone(&memory), 1);
        let compiling = memory.compiling();
        let granted = memory.grant(u64::MAX);
        assert_eq!(all.of(words(&["secret"])).err(), Some(JobError::TooMany));
        drop(compiling);
        let refused = JobError::NoMemory(NoMemory { left_bytes: 0 });
        assert_eq!(all.of(words(&["secret"])).err(), Some(refused));
        drop(granted);
        all.of(words(&["secret"])).unwrap();
    }

    #[test]
    fn a_search_returns_its_memory_when_it_is_forgotten_and_none_is_taken_while_there_is_hardly_any() {
        let memory = search_memory::of(12 * MIB);
        let all = AllPatterns::within(Arc::clone(&memory), 2);
        let expression = SearchOrder { expressions: vec!["a{3}b".into()], ..words(&[]) };
        let first = all.of(expression.clone()).unwrap();
        first.search().map(|_| ()).unwrap();
        let left = memory.reserved_bytes();
        assert!((MIB..5 * MIB).contains(&left), "{left}");
        let rest = memory.grant(u64::MAX);
        let refused = JobError::NoMemory(NoMemory { left_bytes: 0 });
        assert_eq!(all.of(words(&["secret"])).err(), Some(refused));
        // A job of a search that the node has already takes no more.
        assert!(Arc::ptr_eq(&all.of(expression).unwrap(), &first));
        drop((first, rest));
        assert_eq!(memory.reserved_bytes(), 12 * MIB);
    }
}
