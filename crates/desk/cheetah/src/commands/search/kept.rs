//! A search whose result is a folder. It can be stopped at any time, and the same command goes on: what is found goes into a journal,
//! of which the result is made.

use std::path::Path;
use std::time::{Duration, Instant};

use cheetah_carve::{Carver, Counts as CarveCounts};
use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Size};
use cheetah_drive::WorkDone;
use cheetah_error::Next;
use cheetah_error::next::Acquisition;
use cheetah_search::{AcrossHit, Batch, Hit, Layout, Outcome, PatternKind, Row, Search, Truncation};
use cheetah_source::Searching;
use cheetah_source::search::atoms::FoundAtoms;
use cheetah_source::search::inside::{Counts, Inside, Streams};
use cheetah_source::search::journal::{CARVED, CARVED_TABLE, Journal, Start, WhatToSearch, writing};
use cheetah_source::search::known::Known;
use cheetah_source::search::never_read;
use parking_lot::Mutex;

use super::carve::Headers;
use super::folder::{NAMES, Writing, earlier_answer};
use super::lister::Listed;
use super::places::FilesShown;
use super::report::{About, Told};
use super::rules::{self, Matched, RulesShown, Tried};
use super::stages::{self, Ended};
use super::{Task, across, list, show, workers};
use crate::failure::{Context as _, Failure, Result};
use crate::signals::Stop;

/// Results are stored when there are this many, take this much, or are this old.
const STORED: usize = 256;
const STORED_BYTES: usize = 4 << 20;
const STORED_AGE: Duration = Duration::from_secs(1);

/// What became of the parts of a search that follow each other. One that was not reached is `None`.
#[derive(Default)]
struct Stages {
    inside: Option<Counts>,
    carved: Option<CarveCounts>,
    /// Where the compressed data lie that were too many to be remembered.
    left_out: Option<Truncation>,
    /// What the source does not have, although it says so.
    end: Option<Truncation>,
    /// The keys that were lent are in it.
    near: Option<WorkDone>,
    /// The files in which hits lie.
    listed: Option<Listed>,
}

/// Searches, or goes on, and writes the result to the folder of this path.
pub async fn search(task: &Task<'_>, out: &Path, stop: &mut Stop) -> Result<()> {
    let mut journal = open(task, out, stop).await?;
    if journal.state().finished.is_some() {
        return show::earlier(&earlier_answer(journal.folder(), out)?, &task.args.source, out, task.ui);
    }
    let about = About::new(task.opened, task.order).since(journal.state().start.begun_s);
    // A search that goes on lists them again: they are not in the journal.
    let listed = list(task.opened, task.python.as_ref(), (&mut *stop, task.ui)).await.map_err(to_resume)?;
    let mut stages = Stages { listed, ..Stages::default() };
    let mut ended = search_rest(task, &mut journal, &mut stages, stop).await?;
    if ended.is_ok() && (task.args.order.is_inside() || task.args.carve) {
        let (streams, headers) = found_places(task, &journal)?;
        if let Some(streams) = streams {
            ended = search_inside(task, &mut journal, streams, &mut stages, stop).await?;
        }
        if let (Ok(()), Some(headers)) = (&ended, headers) {
            ended = carve((task, out), &mut journal, &headers, &mut stages, stop).await?;
        }
    }
    if ended.is_ok() && !task.search.is_for_nothing() {
        stages.end = task.opened.truncated_end(task.args.timeout.get()).await;
    }
    write_result((task, out), journal, (stages, about), (ended, stop)).await
}

/// Opens the journal. Nothing in the folder is changed if it is the one of something else.
async fn open(task: &Task<'_>, out: &Path, stop: &mut Stop) -> Result<Journal> {
    let Task { args, opened, order, search, .. } = task;
    let device = opened.decrypted()?;
    let absent: Vec<ByteRange> = never_read(&args.source)?;
    let also: Vec<_> = [("carve", args.carve), ("files", args.files)].into_iter().filter(|(_, is)| *is).collect();
    let rules = task.rules.map(|set| format!("yara {}", set.digest));
    let also: Vec<_> = also.into_iter().map(|(name, _)| name).chain(rules.as_deref()).collect();
    let what = WhatToSearch {
        source: &args.source,
        device: &device,
        drive: opened.identity.serial.as_deref(),
        digest: opened.identity.compressed_sha256.as_deref(),
        absent: &absent,
        order,
        known: task.known.as_deref(),
        also: &also,
    };
    let start = stop.unless(&format!("reading samples of {}", args.source), Start::of(&what)).await?;
    let (out, search) = (out.to_owned(), (*search).clone());
    let opening = tokio::task::spawn_blocking(move || Journal::open(&out, NAMES, start, search));
    // The digests of all files that were carved take a while.
    let journal = tokio::select! {
        opened = opening => opened.context("cannot open the journal")??,
        signal = stop.asked() => {
            return Err(to_resume(Failure::failed(format!("stopped by {signal} while reading the journal"))));
        }
    };
    let done = journal.state().coverage.bytes(State::Read);
    if journal.state().finished.is_none() && done > 0 {
        let size = Size(journal.state().coverage.size());
        task.ui.note(format_args!("{}: going on, {} of {size} were searched already", args.source, Size(done)));
    }
    Ok(journal)
}

/// Searches what was not searched, and what could not be read.
async fn search_rest(task: &Task<'_>, journal: &mut Journal, stages: &mut Stages, stop: &mut Stop) -> Result<Ended> {
    let todo = journal.todo();
    if todo.is_empty() || task.search.is_for_nothing() {
        return Ok(Ok(()));
    }
    let Searching { batches, near } = task.begin(Some(todo)).await?;
    let progress = task.ui.progress(format!("searching {}", task.args.source), task.opened.size());
    let take = |batch: Batch| -> Result<()> {
        journal.add(&batch)?;
        if journal.is_due() {
            store(journal, near.as_deref(), false)?;
        }
        progress.set(batch.range.end());
        Ok(())
    };
    let ended = stages::each(batches, stop, take).await?;
    drop(progress);
    store(journal, near.as_deref(), ended.is_ok())?;
    stages.near = near.map(|done| done.lock().clone());
    Ok(ended)
}

/// Has what was found on the disk. `is_last` says whether the whole range was searched.
fn store(journal: &mut Journal, near: Option<&Mutex<WorkDone>>, is_last: bool) -> Result<()> {
    if let Some(near) = near {
        journal.searched_near(&near.lock());
    }
    Ok(if is_last { journal.store_last() } else { journal.store() }?)
}

/// The beginnings of compressed data and the headers of files that were found, if these are asked for.
fn found_places(task: &Task<'_>, journal: &Journal) -> Result<(Option<Streams>, Option<Headers>)> {
    let mut streams = task.args.order.is_inside().then(|| Streams::new(task.search));
    let mut headers = task.args.carve.then(|| Headers::new(task.search));
    for batch in journal.batches() {
        let mut batch = batch?;
        for hit in &batch.hits {
            headers.iter_mut().for_each(|headers| headers.add(hit));
        }
        streams.iter_mut().for_each(|streams| streams.take(&mut batch));
    }
    Ok((streams, headers))
}

/// Searches the compressed data that were found.
async fn search_inside(
    task: &Task<'_>,
    journal: &mut Journal,
    streams: Streams,
    stages: &mut Stages,
    stop: &mut Stop,
) -> Result<Ended> {
    let (left_out, places) = (streams.left_out(), streams.places() as u64);
    stages.left_out = streams.truncated();
    let searched = journal.state().inside_searched();
    let progress = task.ui.progress("searching compressed data".to_owned(), places);
    let device = task.opened.decrypted()?;
    let results = streams.search(&device, task.search, (workers(task.args), searched));
    let (mut found, mut found_bytes, mut stored, mut done) = (Vec::new(), 0, Instant::now(), searched.places);
    let take = |inside: Inside| -> Result<()> {
        found_bytes += inside.hits.iter().map(|hit| hit.hit.room_bytes()).sum::<usize>();
        found.push(inside);
        done += 1;
        if found.len() >= STORED || found_bytes >= STORED_BYTES || stored.elapsed() >= STORED_AGE {
            journal.add_inside(&found)?;
            found.clear();
            (found_bytes, stored) = (0, Instant::now());
        }
        progress.set(done);
        Ok(())
    };
    let ended = stages::each(results, stop, take).await?;
    if !found.is_empty() {
        journal.add_inside(&found)?;
    }
    if ended.is_ok() {
        let counts = journal.state().inside_counts();
        stages.inside = Some(Counts { given_up: counts.given_up + left_out, ..counts });
    }
    Ok(ended)
}

/// Saves the files whose headers were found, and writes their table.
async fn carve(
    (task, out): (&Task<'_>, &Path),
    journal: &mut Journal,
    headers: &Headers,
    stages: &mut Stages,
    stop: &mut Stop,
) -> Result<Ended> {
    let progress = task.ui.progress("carving files".to_owned(), headers.found().len() as u64);
    let device = task.opened.decrypted()?;
    let mut carver = Carver::resume(journal.carved_folder()?, &out.join(CARVED), journal.state().carving);
    let (mut files, mut stored, mut done) = (Vec::new(), Instant::now(), journal.state().headers);
    let skipped = usize::try_from(done).unwrap_or(usize::MAX);
    let mut ended = Ok(());
    for (offset, format) in headers.found().iter().skip(skipped) {
        let carved = tokio::select! {
            carved = carver.carve(&device, *offset, *format) => carved,
            signal = stop.asked() => {
                ended = Err(Failure::failed(format!("stopped by {signal}")));
                break;
            }
        };
        match carved {
            Ok(file) => files.extend(file),
            Err(error) => {
                ended = Err(error.into());
                break;
            }
        }
        done += 1;
        if files.len() >= STORED || stored.elapsed() >= STORED_AGE {
            carver.sync()?;
            journal.add_carved(done, carver.progress(), &files)?;
            files.clear();
            stored = Instant::now();
        }
        progress.set(done);
    }
    carver.sync()?;
    journal.add_carved(done, carver.progress(), &files)?;
    // Without what a file that was not finished left.
    let folder = journal.carved_folder()?;
    if ended.is_ok() {
        let counts = journal.state().carving.counts;
        stages.carved = Some(CarveCounts { given_up: counts.given_up + headers.left_out(), ..counts });
        let written = folder.create(CARVED_TABLE).and_then(|mut table| {
            cheetah_carve::write_table(&journal.state().carved, &mut table)?;
            table.sync_all().and_then(|()| folder.sync())
        });
        written.map_err(|error| writing(out, &error))?;
    }
    Ok(ended)
}

/// A result that is being made.
struct Making<'a> {
    task: &'a Task<'a>,
    out: &'a Path,
    listed: Option<&'a Listed>,
    files: Writing<'a>,
    outcome: Outcome,
    known: Option<Known>,
    /// The atoms of rules so far, if these are searched for.
    atoms: Option<FoundAtoms>,
    /// What became of the joints of files, once they were searched.
    across: Option<across::Counts>,
    /// What became of the files on which rules are tried.
    tried: Tried,
}

impl<'a> Making<'a> {
    fn begin((task, out): (&'a Task<'a>, &'a Path), journal: &'a Journal, stages: &'a Stages) -> Result<Self> {
        let (search, listed) = (task.search, stages.listed.as_ref());
        let mut outcome = Outcome::new(journal.state().coverage.size(), search.patterns().len());
        let truncated = journal.state().truncated.ranges().iter().chain(&stages.left_out).chain(&stages.end);
        truncated.for_each(|truncation| outcome.truncate(*truncation));
        let layout = match (task.rules, listed) {
            (Some(_), _) => Layout::Rules,
            (None, Some(_)) => Layout::Places,
            (None, None) => Layout::Hits,
        };
        Ok(Self {
            task,
            out,
            listed,
            files: Writing::begin(journal.folder(), out, &task.args.source, layout)?,
            outcome,
            known: task.known.clone().map(|files| Known::new(files, search)),
            atoms: task.rules.filter(|set| set.is_searched()).map(|_| FoundAtoms::new(search)),
            across: None,
            tried: Tried::default(),
        })
    }

    /// Writes the hits of the journal, in their order, those in compressed data last. Fails if the process is asked to stop, and leaves
    /// what is in the folder as it was.
    async fn write_hits(&mut self, journal: &Journal, mut stop: Option<&mut Stop>) -> Result<()> {
        let (listed, search) = (self.listed, self.task.search);
        let place = |offset: u64| listed.map(|listed| listed.places.at(offset));
        for batch in journal.batches() {
            let mut batch = batch?;
            self.known.iter_mut().for_each(|known| known.take(&mut batch));
            self.atoms.iter_mut().for_each(|atoms| atoms.take(&mut batch));
            batch.hits.retain(|hit| !is_compressed(hit, search));
            for hit in &batch.hits {
                self.files.push(&Row::new(hit, batch.node.as_deref()).lying(place(hit.offset)), search)?;
            }
            self.outcome.add(&batch);
            if let Some(stop) = stop.as_deref_mut() {
                unless_stopped(stop, self.out).await?;
            }
        }
        for inner in journal.inner_hits() {
            for hit in &inner? {
                self.outcome.count(&hit.hit);
                self.files.push(&Row::inner(hit).lying(place(hit.offset)), search)?;
            }
        }
        Ok(())
    }

    /// Searches the fragments of each file as one, if files are listed, and writes the hits.
    async fn write_across(&mut self, stop: &mut Stop) -> Result<Ended> {
        let Some(listed) = self.listed else { return Ok(Ok(())) };
        let (task, outcome, files) = (self.task, &mut self.outcome, &mut self.files);
        let add = |file: usize, hit: &AcrossHit| {
            outcome.count(&hit.hit);
            let place = listed.places.of_file(file, hit.file_offset, hit.hit.offset);
            files.push(&Row::across(hit, place), task.search)
        };
        let device = task.opened.decrypted()?;
        let with = (task.search, workers(task.args));
        let counts = across::search_all(listed, with, &device, (task.ui, add), stop).await?;
        Ok(counts.map(|counts| self.across = Some(counts)))
    }

    /// Tries the rules on files, if there are any, and writes their matches.
    async fn write_matches(&mut self, stop: &mut Stop) -> Result<Ended> {
        let Some(set) = self.task.rules else { return Ok(Ok(())) };
        let places = self.atoms.take().map(|atoms| atoms.places(self.outcome.coverage()));
        let (task, outcome, files) = (self.task, &mut self.outcome, &mut self.files);
        let add = |matched: &Matched| {
            outcome.count(&matched.hit);
            files.push(&matched.row(), task.search)
        };
        let trying = rules::try_files(task, (set, places.as_ref()), (&mut self.tried, add), stop);
        trying.await.map_err(to_resume)
    }
}

/// Makes the result of what is in the journal.
async fn write_result(
    (task, out): (&Task<'_>, &Path),
    journal: Journal,
    (mut stages, about): (Stages, About),
    (mut ended, stop): (Ended, &mut Stop),
) -> Result<()> {
    let key_lent = stages.near.take().and_then(|near| near.key_lent);
    let mut making = Making::begin((task, out), &journal, &stages)?;
    // Of a search that was stopped, the hits so far are kept.
    let stopping = if ended.is_ok() { Some(&mut *stop) } else { None };
    making.write_hits(&journal, stopping).await?;
    if ended.is_ok() {
        ended = making.write_across(stop).await?;
    }
    if ended.is_ok() {
        ended = making.write_matches(stop).await?;
    }
    let Making { files, outcome, known, across, tried, .. } = making;
    let known = known.map(Known::finish);
    let Stages { inside, carved, .. } = stages;
    let at_nodes = journal.state().near.as_ref().map(|near| WorkDone { key_lent, ..near.work_done() });
    let source = task.args.source.as_str();
    let shown_files = stages.listed.as_ref().map(|listed| FilesShown { listed, across });
    let are_files_whole = shown_files.as_ref().is_none_or(|shown| shown.complete(source).is_ok());
    let shown = show::Shown {
        source,
        search: task.search,
        outcome: &outcome,
        out: Some(out),
        at_nodes,
        inside,
        carved,
        files: shown_files,
        known: known.as_ref(),
        rules: task.rules.map(|set| RulesShown { set, tried: &tried }),
    };
    let answer = shown.answer(ended.is_ok());
    let told = Told { answer: &answer, search: task.search, about: &about };
    let mut names = files.publish(&told, outcome.coverage(), known.as_ref())?;
    if ended.is_ok() && shown.is_whole() && are_files_whole {
        names.extend(carved.map(|_| format!("{CARVED}/{CARVED_TABLE}")));
        journal.finish(&names)?;
    }
    task.ui.answer(shown.text(), &answer);
    ended.map_err(|failure| shown.unfinished(failure))?;
    shown.complete()
}

/// Fails if the process is asked to stop while a result is written.
async fn unless_stopped(stop: &mut Stop, out: &Path) -> Result<()> {
    tokio::select! {
        biased;
        signal = stop.asked() => {
            let why = format!("stopped by {signal} while writing the result in {}", out.display());
            Err(to_resume(Failure::failed(why)))
        }
        // Signals are seen only by a task that yields.
        () = tokio::task::yield_now() => Ok(()),
    }
}

/// A failure after which the same command goes on. One that says what to do already stays as it is.
pub fn to_resume(failure: Failure) -> Failure {
    if !failure.next.is_empty() {
        return failure;
    }
    let step: Next = Acquisition::Resume.into();
    let message = cheetah_words::with(&failure.message, std::slice::from_ref(&step));
    Failure { message, next: vec![step], ..failure }
}

/// Whether a hit is the beginning of compressed data, which is no result.
fn is_compressed(hit: &Hit, search: &Search) -> bool {
    search.patterns().get(hit.pattern).is_some_and(|pattern| pattern.kind == PatternKind::Compressed)
}
