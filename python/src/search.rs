//! Searching an open source: see `cheetah.Device.search`.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use cheetah_custody::Custodian;
use cheetah_device::DynDevice;
use cheetah_device::coverage::State;
use cheetah_drive::lending::{LendRequest, LendTo};
use cheetah_error::{Error, Result};
use cheetah_search::{
    Atoms, Compressed, Finder, KnownFiles, Order, Outcome, PatternKind, Search, SearchNode, Truncation,
};
use cheetah_source::search::atoms::{AtomPlaces, FoundAtoms};
use cheetah_source::search::inside::{Counts, Inside, Searched, Streams};
use cheetah_source::search::known::{self, Known};
use cheetah_source::{OpenedSource, SearchOptions, Searching};
use futures::future::BoxFuture;
use futures::lock::Mutex;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use pyo3::prelude::*;

use crate::{failure, room, runtime};

/// How long the look for the end that a source claims may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is searched for, in the words of the user.
#[derive(FromPyObject)]
pub struct Wanted {
    words: Vec<String>,
    regexes: Vec<String>,
    kinds: Vec<String>,
    inside: Vec<String>,
    known: Vec<PathBuf>,
    blocks: Option<PathBuf>,
    atoms: Vec<String>,
    ignore_atom_case: bool,
    encodings: Vec<String>,
    ignore_case: bool,
    context_bytes: usize,
}

impl Wanted {
    fn order(self, known: Option<&KnownFiles>) -> Result<Order> {
        let inside = parsed::<Compressed>(&self.inside)?.into_iter().map(Finder::Compressed);
        Ok(Order {
            finders: parsed::<Finder>(&self.kinds)?.into_iter().chain(inside).collect(),
            encodings: parsed(&self.encodings)?,
            words: self.words,
            blocks: known.map(KnownFiles::keys).unwrap_or_default(),
            atoms: Atoms { words: self.atoms, ignore_case: self.ignore_atom_case },
            expressions: self.regexes,
            ignore_case: self.ignore_case,
            context_bytes: self.context_bytes,
        })
    }
}

fn parsed<T: std::str::FromStr<Err: StdError>>(names: &[String]) -> Result<Vec<T>> {
    names.iter().map(|name| name.parse().map_err(|error: T::Err| Error::misuse(error.to_string()))).collect()
}

/// The wish to lend these nodes the key of a sealed drive, which the custody log of the drive records; `all` stands for every node that may
/// be lent it.
fn lend_request(nodes: Vec<String>) -> Option<LendRequest> {
    let to = match nodes.as_slice() {
        [] => return None,
        [all] if all == "all" => LendTo::All,
        _ => LendTo::Named(nodes),
    };
    Some(LendRequest { to, purpose: "search", record: Arc::new(Custodian::of_user(room::credential())) })
}

/// The words in a list, which is the content of a file.
#[pyfunction]
pub fn read_words(list: &[u8]) -> PyResult<Vec<String>> {
    cheetah_search::read_words(list).map_err(|error| failure::of(&error))
}

/// Reads the known files, or the set of them, if there are any. Also returns how many are left out.
async fn read_known(paths: Vec<PathBuf>, set: Option<PathBuf>) -> Result<(Option<Arc<KnownFiles>>, usize)> {
    if paths.is_empty() && set.is_none() {
        return Ok((None, 0));
    }
    let read = tokio::task::spawn_blocking(move || match set {
        Some(set) => known::read_set(&set).map(|files| (files, 0)),
        None => known::read(&paths),
    });
    let read = read.await;
    let (files, left_out) = read.map_err(|error| Error::failed(format!("reading the known files: {error}")))??;
    Ok((Some(Arc::new(files)), left_out))
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
    inside: Option<String>,
    node: Option<String>,
    instance: Option<String>,
}

/// A range that was not searched: its start, its length, its state, and why.
type Gap = (u64, u64, &'static str, String);
/// A pattern: its kind, itself, the encodings in which it was searched, and the number of its hits.
type Pattern = (&'static str, String, Vec<String>, u64);
/// What became of compressed data: the streams that were searched, their bytes, the hits in them, the streams that were cut at a limit,
/// and that are damaged, the places that were given up, the streams that cannot be read, the places where nothing could be unpacked, and
/// whether the search of them has ended.
type OfInside = (u64, u64, u64, u64, u64, u64, u64, u64, bool);
/// The bytes that were searched, that cannot be read, and that were not searched for another reason; the gaps; the patterns;
/// what was searched where, as JSON, if nodes were asked; what became of compressed data, if these are searched; and the bytes that were
/// searched only partly, with their ranges.
type Covered = (u64, u64, u64, Vec<Gap>, Vec<Pattern>, Option<String>, Option<OfInside>, (u64, Vec<Truncated>));
/// A range that was searched only partly: its offset, its length, and the limit that was reached.
type Truncated = (u64, u64, &'static str);
/// The runs of known files, each with its start, its length, the file and the start in it; the files, each with the number of its
/// blocks and of those that were found; and the number of blocks that were found alone.
type OfKnown = (Vec<(u64, u64, String, u64)>, Vec<(String, u64, u64)>, u64);

/// Where atoms of rules were found: the numbers of the blocks that have a byte of one, offset and length of the ranges that were not
/// searched, and the power of two that is the size of a block.
type OfAtoms = (Vec<u64>, Vec<(u64, u64)>, u32);

/// A search under way.
#[pyclass(frozen, module = "cheetah._native")]
pub struct Hits {
    source: String,
    search: Arc<Search>,
    workers: usize,
    /// The links and special files among the known files, which are left out.
    #[pyo3(get)]
    known_left_out: usize,
    state: Mutex<Progress>,
}

struct Progress {
    searching: Searching,
    outcome: Outcome,
    inside: Option<InsideProgress>,
    /// The look for what the source says that it has behind its end; `None` once it has ended.
    end: Option<BoxFuture<'static, Option<Truncation>>>,
    /// The blocks of known files so far; `None` once the source was searched.
    known: Option<Known>,
    /// What was found of known files.
    known_found: Option<known::Found>,
    /// The atoms of rules so far; `None` if there are none, and once the source was searched.
    atoms: Option<FoundAtoms>,
    /// Where atoms were found.
    atom_places: Option<AtomPlaces>,
}

/// Compressed data, which are searched once the source is.
struct InsideProgress {
    device: DynDevice,
    /// Their beginnings so far; `None` once they are searched.
    streams: Option<Streams>,
    results: BoxStream<'static, Result<Inside>>,
    counts: Counts,
    is_finished: bool,
}

impl Progress {
    /// Goes on to what is done once the source was searched.
    fn end_source(&mut self, search: &Arc<Search>, workers: usize) {
        if let Some(known) = self.known.take() {
            self.known_found = Some(known.finish());
        }
        if let Some(atoms) = self.atoms.take() {
            self.atom_places = Some(atoms.places(self.outcome.coverage()));
        }
        if let Some(inside) = &mut self.inside
            && let Some(streams) = inside.streams.take()
        {
            inside.counts.given_up = streams.left_out();
            streams.truncated().into_iter().for_each(|truncation| self.outcome.truncate(truncation));
            inside.results = streams.search(&inside.device, search, (workers, Searched::default()));
        }
    }
}

impl Hits {
    /// Begins to search `opened`, which the user calls `source`.
    pub fn begin(
        py: Python<'_>,
        source: (&str, &OpenedSource),
        wanted: Wanted,
        options: (bool, Vec<String>, Option<usize>),
    ) -> PyResult<Self> {
        runtime::wait(py, Self::begun(source, wanted, options))?.map_err(|error| failure::of(&error))
    }

    async fn begun(
        (source, opened): (&str, &OpenedSource),
        mut wanted: Wanted,
        (at_nodes, lend_key, workers): (bool, Vec<String>, Option<usize>),
    ) -> Result<Self> {
        let (known, known_left_out) = read_known(std::mem::take(&mut wanted.known), wanted.blocks.take()).await?;
        let is_inside = !wanted.inside.is_empty();
        let order = wanted.order(known.as_deref())?;
        let compiling = order.clone();
        let compiled = tokio::task::spawn_blocking(move || Search::new(&compiling).map(Arc::new)).await;
        let search = compiled.map_err(|error| Error::failed(format!("compiling the patterns: {error}")))??;
        let workers = workers.or_else(|| available_parallelism().ok().map(usize::from)).unwrap_or(1);
        let options = SearchOptions { at_nodes, workers, lend: lend_request(lend_key), within: None };
        let searching = opened.search(source, (&order, &search), options).await;
        let searching = searching.map_err(|error| error.within(source))?;
        let inside = |device| InsideProgress {
            device,
            streams: Some(Streams::new(&search)),
            results: futures::stream::empty().boxed(),
            counts: Counts::default(),
            is_finished: false,
        };
        let state = Progress {
            searching,
            outcome: Outcome::new(opened.size(), search.patterns().len()),
            inside: is_inside.then(|| opened.decrypted()).transpose()?.map(inside),
            end: Some(opened.truncated_end(PATIENCE).boxed()),
            known: known.map(|files| Known::new(files, &search)),
            known_found: None,
            atoms: (!order.atoms.words.is_empty()).then(|| FoundAtoms::new(&search)),
            atom_places: None,
        };
        Ok(Self { source: source.to_owned(), search, workers, known_left_out, state: Mutex::new(state) })
    }

    /// The hits of the next part that has any.
    async fn next_hits(&self) -> Result<Option<Vec<Hit>>> {
        let mut guard = self.state.lock().await;
        let state = &mut *guard;
        while let Some(mut batch) = state.searching.batches.next().await.transpose()? {
            let streams = state.inside.iter_mut().filter_map(|inside| inside.streams.as_mut());
            streams.for_each(|streams| streams.take(&mut batch));
            state.known.iter_mut().for_each(|known| known.take(&mut batch));
            state.atoms.iter_mut().for_each(|atoms| atoms.take(&mut batch));
            state.outcome.add(&batch);
            if !batch.hits.is_empty() {
                let node = batch.node.as_deref();
                return Ok(Some(batch.hits.iter().map(|hit| self.shown(hit, (hit.offset, None), node)).collect()));
            }
        }
        state.end_source(&self.search, self.workers);
        if let Some(looking) = &mut state.end {
            let end = looking.await;
            state.end = None;
            end.into_iter().for_each(|truncation| state.outcome.truncate(truncation));
        }
        let Some(inside) = &mut state.inside else { return Ok(None) };
        while let Some(found) = inside.results.next().await.transpose()? {
            inside.counts.add(&found.counts);
            found.truncated.iter().for_each(|truncation| state.outcome.truncate(*truncation));
            found.hits.iter().for_each(|hit| state.outcome.count(&hit.hit));
            if !found.hits.is_empty() {
                let shown =
                    found.hits.into_iter().map(|hit| self.shown(&hit.hit, (hit.offset, Some(hit.inside)), None));
                return Ok(Some(shown.collect()));
            }
        }
        inside.is_finished = true;
        Ok(None)
    }

    /// A hit that this node found, or this process; of one inside compressed data, `offset` is where these begin.
    fn shown(
        &self,
        hit: &cheetah_search::Hit,
        (offset, inside): (u64, Option<String>),
        node: Option<&SearchNode>,
    ) -> Hit {
        let pattern = self.search.patterns().get(hit.pattern).map_or("", |pattern| pattern.name.as_str());
        Hit {
            offset,
            length: hit.len(),
            pattern: pattern.to_owned(),
            encoding: hit.encoding.name(),
            text: self.search.text(hit),
            context: self.search.context(hit),
            inside,
            node: node.map(|node| node.name.to_string()),
            instance: node.map(|node| node.instance.to_string()),
        }
    }
}

#[pymethods]
impl Hits {
    /// Returns the hits of the next part of the source that has any, and `None` at its end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<Hit>>> {
        runtime::wait(py, self.next_hits())?.map_err(|error| failure::of(&error.within(&self.source)))
    }

    /// Returns how much was searched so far.
    fn coverage(&self, py: Python<'_>) -> PyResult<Covered> {
        let (outcome, near, inside) = runtime::wait(py, async {
            let state = self.state.lock().await;
            let near = state.searching.near.as_ref().map(|near| near.lock().clone());
            (state.outcome.clone(), near, state.inside.as_ref().map(|inside| (inside.counts, inside.is_finished)))
        })?;
        let near = near.map(|near| serde_json::to_string(&near)).transpose();
        let near = near.map_err(|error| failure::failed(format!("putting the nodes as JSON: {error}")))?;
        let bytes = |state| outcome.coverage().bytes(state);
        let patterns = self.search.patterns().iter().zip(outcome.hits_by_pattern());
        let patterns = patterns.filter_map(|(pattern, hits)| {
            let encodings = pattern.encodings.iter().map(|encoding| encoding.name()).collect();
            Some((kind(pattern.kind)?, pattern.name.clone(), encodings, *hits))
        });
        let gaps = outcome.gaps().iter();
        let gaps = gaps.map(|gap| (gap.range.offset, gap.range.len, state(gap.state), gap.why.to_string()));
        let inside = inside.map(|(counts, is_finished)| {
            let Counts { streams, bytes, hits, cut, damaged, given_up, invalid, unreadable } = counts;
            (streams, bytes, hits, cut, damaged, given_up, unreadable, invalid, is_finished)
        });
        let (read, unreadable, unread) = (bytes(State::Read), bytes(State::Unreadable), bytes(State::Unread));
        let ranges = outcome.truncated().ranges().iter();
        let ranges = ranges.map(|found| (found.range.offset, found.range.len, found.limit.name())).collect();
        let truncated = (outcome.truncated().bytes(outcome.coverage()), ranges);
        Ok((read, unreadable, unread, gaps.collect(), patterns.collect(), near, inside, truncated))
    }

    /// Returns what was found of known files; `None` if there are none, or the source was not searched to its end yet.
    fn known(&self, py: Python<'_>) -> PyResult<Option<OfKnown>> {
        runtime::wait(py, async {
            let state = self.state.lock().await;
            state.known_found.as_ref().map(|found| {
                let runs = found.named_runs();
                let runs = runs.map(|(run, file)| (run.offset, run.len, file.to_owned(), run.file_offset)).collect();
                let files = found.all_shares().map(|share| (share.name.to_owned(), share.blocks, share.found));
                (runs, files.collect(), found.singles())
            })
        })
    }

    /// Returns where atoms of rules were found, once; `None` if there are none, or the source was not searched to its end yet.
    fn atoms(&self, py: Python<'_>) -> PyResult<Option<OfAtoms>> {
        runtime::wait(py, async {
            let places = self.state.lock().await.atom_places.take();
            places.map(|AtomPlaces { blocks, gaps, shift }| (blocks, gaps, shift))
        })
    }
}

impl Drop for Hits {
    fn drop(&mut self) {
        let ended = Searching { batches: futures::stream::empty().boxed(), near: None };
        let state = self.state.get_mut();
        runtime::discard((std::mem::replace(&mut state.searching, ended), state.inside.take(), state.end.take()));
    }
}

/// The kind of a pattern; `None` if it is none of the user's.
const fn kind(kind: PatternKind) -> Option<&'static str> {
    Some(match kind {
        PatternKind::Word => "word",
        PatternKind::Expression => "regex",
        PatternKind::Finder => "find",
        PatternKind::Header => "header",
        PatternKind::Compressed | PatternKind::Block | PatternKind::Atom | PatternKind::Rule => return None,
    })
}

const fn state(state: State) -> &'static str {
    match state {
        State::Unreadable => "unreadable",
        State::Unread | State::Read => "unread",
    }
}
