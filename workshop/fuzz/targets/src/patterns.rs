//! Orders of searches as a hostile client sends them to a node: each is refused, or compiled within its limits, and finds what it says.

use cheetah_control::jobs::SearchOrder;
use cheetah_node::offline::{VERSION, search_of};
use cheetah_search::{BLOCK_MEMORY, Limits};

/// What an order may take here: the targets have little memory together.
const LIMITS: Limits =
    Limits { word_memory_bytes_max: 20 << 20, block_bytes_max: 64 << 10, expression_bytes_max: 16 << 20 };
/// Longer expressions, or ones that repeat more, may take more before they are refused.
const EXPRESSION_BYTES_MAX: usize = 32;
/// The bytes that are searched.
const TEXT: &[u8] = b"a secret aaaaaaaaaaaaaaaa \xd0\xbf\xd0\xb0\xd1\x80\0s\0e\0c\0r\0e\0t\0 bob@example.org";

/// Runs one input: an order in JSON; or words, one a line, of which some begin or end alike.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let order = match choice % 3 {
        0 => match serde_json::from_slice::<SearchOrder>(data) {
            Ok(order) => order,
            Err(_) => return,
        },
        1 => words(data, choice & 4 != 0, |word| vec![word.to_owned()]),
        // All ends of a word: an automaton has the matches of each in the longer ones.
        _ => words(data, choice & 4 != 0, |word| {
            let word: String = word.chars().take(32).collect();
            word.char_indices().map(|(at, _)| word[at..].to_owned()).collect()
        }),
    };
    check(&SearchOrder { version: VERSION.into(), ..order });
}

/// An order for the words in lines of text.
fn words(data: &[u8], ignore_case: bool, each: impl Fn(&str) -> Vec<String>) -> SearchOrder {
    SearchOrder {
        words: String::from_utf8_lossy(data).lines().flat_map(each).filter(|word| !word.is_empty()).collect(),
        encodings: ["utf-8", "utf-16le", "windows-1251"].map(str::to_owned).to_vec(),
        ignore_case,
        ..SearchOrder::default()
    }
}

fn check(order: &SearchOrder) {
    let is_large = |text: &String| text.len() > EXPRESSION_BYTES_MAX || text.matches('{').count() > 1;
    if order.expressions.iter().any(is_large) || order.expressions.len() > 2 || order.finders.len() > 2 {
        return;
    }
    let Ok(search) = search_of(order, LIMITS) else { return };
    let Limits { word_memory_bytes_max, block_bytes_max, expression_bytes_max } = LIMITS;
    assert!(search.shared_bytes() <= word_memory_bytes_max + BLOCK_MEMORY * block_bytes_max + expression_bytes_max);
    let text = [&[b' '; 4096][..], TEXT, &[b' '; 4096]].concat();
    let Ok(hits) = search.scan_alone(0, &text, 64 << 10) else { return };
    for hit in hits {
        let at = usize::try_from(hit.offset).unwrap();
        assert_eq!(text[at..at + hit.bytes.len()], hit.bytes[..]);
        assert!(search.patterns()[hit.pattern].encodings.contains(&hit.encoding));
    }
}
