//! Searches a device: reads it in parts, and searches these side by side.

use std::sync::Arc;

use cheetah_device::around::{self, Piece, SECTOR_BYTES, read_around};
use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, DynDevice, coalesce};
use cheetah_error::{Error, Result};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, future};

use crate::batch::Batch;
use crate::extent::Extent;
use crate::hit::Hit;
use crate::node::SearchNode;
use crate::seam::{Seams, Window};
use crate::search::Search;

/// The usual number of reads in flight: of a source behind a link.
const READ_AHEAD: usize = 8;

/// The most bytes of windows that are searched without another thread: a few seams of short patterns take less time than a thread takes to
/// wake up.
const AT_ONCE_BYTES: usize = 16 << 10;

/// The maximum size of a part.
const PART_BYTES_MAX: u64 = 64 << 20;

/// How a device is searched. The result does not depend on it, but for `absent` and `within`.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The size of a part, in bytes; rounded up to sectors.
    pub part_bytes: u64,
    /// The number of parts that are searched at once.
    pub workers: usize,
    /// The number of parts that are read at once.
    pub read_ahead: usize,
    /// Ranges that are not read: the source does not have them yet.
    pub absent: Vec<ByteRange>,
    /// The ranges in which hits may begin; `None`: everywhere. The bytes around them are read, too.
    pub within: Option<Vec<ByteRange>>,
}

impl RunOptions {
    /// The usual size of a part: large enough that requests cost little, and small enough for a processor's cache.
    pub const PART_BYTES: u64 = 1 << 20;

    /// Parts of the usual size, all of them there.
    pub const fn new(workers: usize) -> Self {
        Self { part_bytes: Self::PART_BYTES, workers, read_ahead: READ_AHEAD, absent: Vec::new(), within: None }
    }

    /// The same for a file, of which no more is read ahead than keeps the workers busy: what was read is searched while it
    /// is in a processor's cache.
    #[must_use]
    pub fn of_local_file(self) -> Self {
        Self { read_ahead: self.workers.saturating_add(1), ..self }
    }
}

/// A range to search, or to leave out.
enum Part {
    There(ByteRange),
    Absent(ByteRange),
}

/// A part of a source, in order, for [`run_parts`].
#[derive(Debug)]
pub enum SourcePart {
    /// It was read, apart from ranges that cannot be.
    Read(Vec<Piece>),
    /// It was searched where it lies, in parts that follow each other.
    Searched(Vec<SearchedPart>),
    /// The source does not have it yet.
    Absent(ByteRange),
    /// The source failed as a whole.
    Failed(Error),
}

/// A range that was searched alone: [`Search::scan_alone`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchedPart {
    /// The range.
    pub range: ByteRange,
    /// Its first bytes, an [`edge`](crate::seam::Overlap::edge) of them.
    pub head: Vec<u8>,
    /// Its last bytes, as many.
    pub tail: Vec<u8>,
    /// The hits in its core, in order.
    pub hits: Vec<Hit>,
    /// The node that searched it, if it was one.
    pub node: Option<Arc<SearchNode>>,
}

/// A part of the work, in order.
enum Step {
    Scan(Window),
    /// The result is there.
    Done(Batch),
    Fail(Error),
}

/// Searches a device. Ranges that cannot be read are gaps. The stream ends after an error: the device failed as a whole, or there
/// are too many hits. It may be dropped at any time; what it has returned by then is final.
pub fn run(search: &Arc<Search>, device: &DynDevice, options: &RunOptions) -> BoxStream<'static, Result<Batch>> {
    let device = device.clone();
    let extent = Extent::new(options.within.as_deref(), search.overlap(), SECTOR_BYTES, device.geometry().size);
    let (ranges, options_of_parts) = (extent.reads().to_vec(), options.clone());
    let parts = stream::iter(ranges.into_iter().flat_map(move |range| parts(range, &options_of_parts)));
    let reads = parts.map(move |part| read(device.clone(), part)).buffered(options.read_ahead.max(1));
    extent.clip(run_parts(search, reads, options.workers))
}

/// Searches the parts of a source, which follow each other. The result is that of [`run()`].
pub fn run_parts(
    search: &Arc<Search>,
    parts: impl Stream<Item = SourcePart> + Send + 'static,
    workers: usize,
) -> BoxStream<'static, Result<Batch>> {
    let search = search.clone();
    let reads = parts.map(Some);
    let steps = reads
        .chain(stream::iter([None]))
        .scan(Seams::new(search.overlap()), |seams, read| future::ready(Some(steps(seams, read))));
    let done = steps.map(move |steps| carry_out(search.clone(), steps)).buffered(workers.max(1));
    let batches = done.flat_map(stream::iter);
    let mut has_failed = false;
    let until_failed = move |batch: &Result<Batch>| {
        let goes_on = !has_failed;
        has_failed |= batch.is_err();
        future::ready(goes_on)
    };
    batches.take_while(until_failed).boxed()
}

/// The parts of a range of a device, in order.
fn parts(whole: ByteRange, options: &RunOptions) -> impl Iterator<Item = Part> + Send + use<> {
    let absent = options.absent.iter().filter_map(|range| range.intersection(whole)).collect();
    let part_bytes = options.part_bytes.clamp(1, PART_BYTES_MAX).next_multiple_of(SECTOR_BYTES);
    let mut at = whole.offset;
    let stretches = coalesce(absent, 0).into_iter().chain([ByteRange::new(whole.end(), 0)]).map(move |absent| {
        let there = ByteRange::between(at, absent.offset);
        at = absent.end();
        (there, absent)
    });
    stretches.flat_map(move |(there, absent)| {
        let absent = (!absent.is_empty()).then_some(Part::Absent(absent));
        there.split_at_multiples(part_bytes).map(Part::There).chain(absent)
    })
}

async fn read(device: DynDevice, part: Part) -> SourcePart {
    let range = match part {
        Part::There(range) => range,
        Part::Absent(range) => return SourcePart::Absent(range),
    };
    // A task of its own, so that it goes on while the parts before it are searched.
    match tokio::spawn(async move { read_around(&device, range).await }).await {
        Ok(Ok(pieces)) => SourcePart::Read(pieces),
        Ok(Err(error)) => SourcePart::Failed(Error::device("reading the source")(error)),
        Err(error) => SourcePart::Failed(Error::failed(format!("reading {range}: {error}"))),
    }
}

/// What to do after a read; `None` stands for the end of the device.
fn steps(seams: &mut Seams, part: Option<SourcePart>) -> Vec<Step> {
    let mut steps = Vec::new();
    let interrupt = |seams: &mut Seams, steps: &mut Vec<Step>| steps.extend(seams.finish().map(Step::Scan));
    match part {
        None => interrupt(seams, &mut steps),
        Some(SourcePart::Absent(range)) => {
            interrupt(seams, &mut steps);
            let why = "it was never read from its source".into();
            steps.push(Step::Done(Batch::gap(range, State::Unread, why)));
        }
        Some(SourcePart::Failed(error)) => {
            interrupt(seams, &mut steps);
            steps.push(Step::Fail(error));
        }
        Some(SourcePart::Searched(parts)) => {
            let edge = seams.overlap().edge();
            for SearchedPart { range, head, tail, hits, node } in parts {
                let core = seams.overlap().core(range).filter(|_| head.len() == edge && tail.len() == edge);
                let Some(core) = core else {
                    steps.push(Step::Fail(Error::failed(format!("searching {range}: it has no edges"))));
                    break;
                };
                steps.extend(seams.push(range.offset, head.into()).into_iter().map(Step::Scan));
                steps.push(Step::Done(Batch { range: core, state: State::Read, why: None, hits, node }));
                seams.resume(range.end(), &tail);
            }
        }
        Some(SourcePart::Read(pieces)) => {
            for (range, read) in pieces {
                match read {
                    Ok(data) => steps.extend(seams.push(range.offset, data).into_iter().map(Step::Scan)),
                    Err(error) => {
                        interrupt(seams, &mut steps);
                        steps.push(Step::Done(Batch::gap(range, State::Unreadable, around::reason(&error))));
                    }
                }
            }
        }
    }
    steps
}

async fn carry_out(search: Arc<Search>, steps: Vec<Step>) -> Vec<Result<Batch>> {
    let bytes_of = |step: &Step| if let Step::Scan(window) = step { window.bytes.len() } else { 0 };
    if steps.iter().map(bytes_of).sum::<usize>() <= AT_ONCE_BYTES {
        return results(&search, steps);
    }
    let windows =
        || steps.iter().filter_map(|step| if let Step::Scan(window) = step { Some(window.own) } else { None });
    let range = ByteRange::between(
        windows().next().map_or(0, |first| first.offset),
        windows().last().map_or(0, |last| last.end()),
    );
    let task = tokio::task::spawn_blocking(move || results(&search, steps));
    task.await.unwrap_or_else(|error| vec![Err(Error::failed(format!("searching {range}: {error}")))])
}

/// The results of steps, up to the first that fails. Those without hits become one, as there may be many.
fn results(search: &Search, steps: Vec<Step>) -> Vec<Result<Batch>> {
    let mut results: Vec<Result<Batch>> = Vec::new();
    for step in steps {
        let found = match step {
            Step::Done(batch) => Ok(Batch { node: batch.node.filter(|_| !batch.hits.is_empty()), ..batch }),
            Step::Fail(error) => Err(error),
            Step::Scan(window) => search.scan(&window).map(|hits| {
                let (state, why, node) = (State::Read, None, None);
                Batch { range: window.own, state, why, hits, node }
            }),
        };
        match (results.last_mut(), found) {
            (Some(Ok(last)), Ok(batch)) if last.goes_on_in(&batch) => last.range.len += batch.range.len,
            (_, Ok(batch)) => results.push(Ok(batch)),
            (_, Err(error)) => {
                results.push(Err(error));
                break;
            }
        }
    }
    results
}
