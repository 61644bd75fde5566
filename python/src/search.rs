//! Searching an open source: see `cheetah.Device.search`.

use std::error::Error as StdError;
use std::sync::Arc;
use std::thread::available_parallelism;

use cheetah_device::coverage::State;
use cheetah_error::{Error, Result};
use cheetah_search::{Batch, Order, Outcome, PatternKind, Search};
use cheetah_source::{OpenedSource, SearchOptions, Searching};
use futures::StreamExt as _;
use futures::lock::Mutex;
use pyo3::prelude::*;

use crate::{failure, runtime};

/// What is searched for, in the words of the user.
#[derive(FromPyObject)]
pub struct Wanted {
    words: Vec<String>,
    regexes: Vec<String>,
    kinds: Vec<String>,
    encodings: Vec<String>,
    ignore_case: bool,
    context_bytes: usize,
}

impl Wanted {
    fn order(self) -> Result<Order> {
        Ok(Order {
            finders: parsed(&self.kinds)?,
            encodings: parsed(&self.encodings)?,
            words: self.words,
            blocks: Vec::new(),
            expressions: self.regexes,
            ignore_case: self.ignore_case,
            context_bytes: self.context_bytes,
        })
    }
}

fn parsed<T: std::str::FromStr<Err: StdError>>(names: &[String]) -> Result<Vec<T>> {
    names.iter().map(|name| name.parse().map_err(|error: T::Err| Error::misuse(error.to_string()))).collect()
}

/// The words in a list, which is the content of a file.
#[pyfunction]
pub fn read_words(list: &[u8]) -> PyResult<Vec<String>> {
    cheetah_search::read_words(list).map_err(|error| failure::of(&error))
}

/// A hit; see `cheetah.Hit`.
#[pyclass(frozen, get_all, module = "cheetah._native")]
pub struct Hit {
    offset: u64,
    length: u64,
    pattern: String,
    encoding: String,
    text: String,
    context: String,
}

/// A range that was not searched: its start, its length, its state, and why.
type Gap = (u64, u64, &'static str, String);
/// A pattern: its kind, itself, the encodings in which it was searched, and the number of its hits.
type Pattern = (&'static str, String, Vec<String>, u64);
/// The bytes that were searched, that cannot be read, and that were not searched for another reason; the gaps; the patterns; and
/// what was searched where, as JSON, if nodes were asked.
type Covered = (u64, u64, u64, Vec<Gap>, Vec<Pattern>, Option<String>);

/// A search under way.
#[pyclass(frozen, module = "cheetah._native")]
pub struct Hits {
    source: String,
    search: Arc<Search>,
    state: Mutex<Progress>,
}

struct Progress {
    searching: Searching,
    outcome: Outcome,
}

impl Hits {
    /// Begins to search `opened`, which the user calls `source`.
    pub fn begin(
        py: Python<'_>,
        (source, opened): (&str, &OpenedSource),
        wanted: Wanted,
        (at_nodes, workers): (bool, Option<usize>),
    ) -> PyResult<Self> {
        let begun = runtime::wait(py, async {
            let order = wanted.order()?;
            let compiling = order.clone();
            let compiled = tokio::task::spawn_blocking(move || Search::new(&compiling).map(Arc::new)).await;
            let search = compiled.map_err(|error| Error::failed(format!("compiling the patterns: {error}")))??;
            let workers = workers.or_else(|| available_parallelism().ok().map(usize::from)).unwrap_or(1);
            let options = SearchOptions { at_nodes, workers, lend: None };
            let searching = opened.search(source, (&order, &search), options).await;
            let searching = searching.map_err(|error| error.within(source))?;
            let outcome = Outcome::new(opened.size(), search.patterns().len());
            Ok(Self { source: source.to_owned(), search, state: Mutex::new(Progress { searching, outcome }) })
        });
        begun?.map_err(|error: Error| failure::of(&error))
    }

    fn hits(&self, batch: &Batch) -> Vec<Hit> {
        let name = |pattern: usize| self.search.patterns().get(pattern).map_or("", |pattern| pattern.name.as_str());
        let hits = batch.hits.iter().map(|hit| Hit {
            offset: hit.offset,
            length: hit.len(),
            pattern: name(hit.pattern).to_owned(),
            encoding: hit.encoding.name(),
            text: hit.text(),
            context: hit.context(),
        });
        hits.collect()
    }
}

#[pymethods]
impl Hits {
    /// Returns the hits of the next part of the source that has any, and `None` at its end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<Hit>>> {
        let next = runtime::wait(py, async {
            let mut state = self.state.lock().await;
            while let Some(batch) = state.searching.batches.next().await.transpose()? {
                state.outcome.add(&batch);
                if !batch.hits.is_empty() {
                    return Ok(Some(self.hits(&batch)));
                }
            }
            Ok(None)
        });
        next?.map_err(|error: Error| failure::of(&error.within(&self.source)))
    }

    /// Returns how much was searched so far.
    fn coverage(&self, py: Python<'_>) -> PyResult<Covered> {
        let (outcome, near) = runtime::wait(py, async {
            let state = self.state.lock().await;
            (state.outcome.clone(), state.searching.near.as_ref().map(|near| near.lock().clone()))
        })?;
        let near = near.map(|near| serde_json::to_string(&near)).transpose();
        let near = near.map_err(|error| failure::failed(format!("putting the nodes as JSON: {error}")))?;
        let bytes = |state| outcome.coverage().bytes(state);
        let patterns = self.search.patterns().iter().zip(outcome.hits_by_pattern());
        let patterns = patterns.map(|(pattern, hits)| {
            let encodings = pattern.encodings.iter().map(|encoding| encoding.name()).collect();
            (kind(pattern.kind), pattern.name.clone(), encodings, *hits)
        });
        let gaps = outcome.gaps().iter();
        let gaps = gaps.map(|gap| (gap.range.offset, gap.range.len, state(gap.state), gap.why.to_string()));
        let (read, unreadable, unread) = (bytes(State::Read), bytes(State::Unreadable), bytes(State::Unread));
        Ok((read, unreadable, unread, gaps.collect(), patterns.collect(), near))
    }
}

impl Drop for Hits {
    fn drop(&mut self) {
        let ended = Searching { batches: futures::stream::empty().boxed(), near: None };
        runtime::discard(std::mem::replace(&mut self.state.get_mut().searching, ended));
    }
}

const fn kind(kind: PatternKind) -> &'static str {
    match kind {
        PatternKind::Word => "word",
        PatternKind::Expression => "regex",
        PatternKind::Finder => "find",
        PatternKind::Header | PatternKind::Compressed | PatternKind::Block => "header",
    }
}

const fn state(state: State) -> &'static str {
    match state {
        State::Unreadable => "unreadable",
        State::Unread | State::Read => "unread",
    }
}
