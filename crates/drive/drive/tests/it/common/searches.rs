//! Searches whose result is compared with that of a naive scan.

use std::sync::{Arc, LazyLock};

use cheetah_device::coverage::State;
use cheetah_search::{Atoms, Batch, Hit, Order, RunOptions, Search, run};
use futures::StreamExt as _;
use futures::stream::BoxStream;

use super::*;

pub const WORD: &str = "Geheimnis";
pub const MAIL: &[u8] = b" <john.doe@example.com>, ";

/// Words, an expression that looks around, a finder, and atoms of rules.
pub fn order(context_bytes: usize) -> Order {
    Order {
        words: vec![WORD.into(), "heim".into()],
        expressions: vec![r"\bGe[a-z]{2,9}".into()],
        finders: vec!["email".parse().unwrap()],
        blocks: Vec::new(),
        atoms: Atoms { words: vec!["Geheim".into(), "doe@".into()], ignore_case: true },
        encodings: ["utf-8", "utf-16le"].map(|name| name.parse().unwrap()).to_vec(),
        ignore_case: false,
        context_bytes,
    }
}

pub fn forms() -> [Vec<u8>; 2] {
    [WORD.as_bytes().to_vec(), WORD.encode_utf16().flat_map(u16::to_le_bytes).collect()]
}

/// Where bytes stand in others.
fn places(bytes: &[u8], of: &[u8]) -> Vec<u64> {
    let ends = bytes.len().saturating_sub(of.len());
    (0..=ends).filter(|at| bytes[*at..].starts_with(of)).map(|at| at as u64).collect()
}

/// Noise of this size.
pub fn noise(size: u64) -> Vec<u8> {
    static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| image(5 * MIB));
    NOISE[..size as usize].to_vec()
}

/// Writes `what` so that it begins `shift` bytes before `seam`, if there is room.
pub fn put(bytes: &mut [u8], seam: u64, shift: u64, what: &[u8]) {
    let at = seam.saturating_sub(shift) as usize;
    if let Some(place) = bytes.get_mut(at..at + what.len()) {
        place.copy_from_slice(what);
    }
}

pub async fn collected(mut batches: BoxStream<'static, cheetah_error::Result<Batch>>, size: u64) -> Vec<Hit> {
    let (mut hits, mut at) = (Vec::new(), 0);
    while let Some(batch) = batches.next().await {
        let batch = batch.unwrap();
        assert_eq!((batch.range.offset, batch.state), (at, State::Read), "{:?}", batch.why);
        at = batch.range.end();
        hits.extend(batch.hits);
    }
    assert_eq!(at, size);
    hits
}

/// The hits in bytes, all of which are read.
pub async fn expected(bytes: &[u8], order: &Order) -> Vec<Hit> {
    let search = Arc::new(Search::new(order).unwrap());
    let batches = run(&search, &device(bytes), &RunOptions::new(2));
    let hits = collected(batches, bytes.len() as u64).await;
    let of_word = |encoding: &str| {
        let of = hits.iter().filter(|hit| hit.pattern == 0 && hit.encoding.name() == encoding);
        of.map(|hit| hit.offset).collect::<Vec<_>>()
    };
    let [narrow, wide] = forms().map(|form| places(bytes, &form));
    assert_eq!((of_word("utf-8"), of_word("utf-16le")), (narrow, wide));
    hits
}
