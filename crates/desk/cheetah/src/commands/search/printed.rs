//! A search whose hits are printed as they are found.

use cheetah_drive::WorkDone;
use cheetah_search::{AcrossHit, Batch, Outcome, Place};
use cheetah_source::Searching;
use cheetah_source::search::atoms::FoundAtoms;
use cheetah_source::search::inside::{Counts, Inside, Searched, Streams};

use super::lister::Listed;
use super::places::FilesShown;
use super::rules::{self, Matched, RulesShown, Tried};
use super::stages::{self, Ended};
use super::{Task, across, list, show, workers};
use crate::failure::Result;
use crate::signals::Stop;

/// What was found so far.
struct Printed<'a> {
    task: &'a Task<'a>,
    listed: Option<&'a Listed>,
    outcome: Outcome,
    at_nodes: Option<WorkDone>,
    /// What became of compressed data, once they were searched.
    inside: Option<Counts>,
    /// What became of the joints of files, once they were searched.
    across: Option<across::Counts>,
    /// What became of the files on which rules are tried.
    tried: Tried,
}

/// Searches the source, and shows the result as it is found, whatever ends the search.
pub async fn search(task: &Task<'_>, stop: &mut Stop) -> Result<()> {
    let listed = list(task.opened, task.python.as_ref(), (&mut *stop, task.ui)).await?;
    let begun = if task.search.is_for_nothing() { None } else { Some(task.begin(None).await?) };
    let mut printed = Printed {
        task,
        listed: listed.as_ref(),
        outcome: Outcome::new(task.opened.size(), task.search.patterns().len()),
        at_nodes: None,
        inside: None,
        across: None,
        tried: Tried::default(),
    };
    let ended = printed.all(begun, stop).await;
    let Printed { outcome, at_nodes, inside, across, tried, .. } = printed;
    let shown = show::Shown {
        source: &task.args.source,
        search: task.search,
        outcome: &outcome,
        out: None,
        at_nodes,
        inside,
        carved: None,
        files: listed.as_ref().map(|listed| FilesShown { listed, across }),
        known: None,
        rules: task.rules.map(|set| RulesShown { set, tried: &tried }),
    };
    task.ui.answer(shown.text(), &shown.answer(ended.is_ok()));
    ended.map_err(|failure| shown.unfinished(failure))?;
    shown.complete()
}

impl Printed<'_> {
    /// All stages, up to one that does not come to its end. Nothing that is printed is kept, so none fails otherwise.
    async fn all(&mut self, begun: Option<Searching>, stop: &mut Stop) -> Ended {
        let Task { args, opened, search, .. } = self.task;
        let mut atoms = FoundAtoms::new(search);
        let mut streams = args.order.is_inside().then(|| Streams::new(search));
        if let Some(begun) = begun {
            self.bytes(begun, (&mut atoms, streams.as_mut()), stop).await?;
            let end = opened.truncated_end(args.timeout.get()).await;
            end.into_iter().for_each(|truncation| self.outcome.truncate(truncation));
        }
        if let Some(streams) = streams {
            self.inside(streams, stop).await?;
        }
        if let Some(listed) = self.listed {
            self.across(listed, stop).await?;
        }
        self.rules(atoms, stop).await
    }

    /// Searches the bytes in their order.
    async fn bytes(
        &mut self,
        begun: Searching,
        (atoms, mut streams): (&mut FoundAtoms, Option<&mut Streams>),
        stop: &mut Stop,
    ) -> Ended {
        let Task { args, search, ui, .. } = self.task;
        let progress = ui.progress(format!("searching {}", args.source), self.outcome.coverage().size());
        let Searching { batches, near } = begun;
        let listed = self.listed;
        let outcome = &mut self.outcome;
        let take = |mut batch: Batch| {
            atoms.take(&mut batch);
            streams.iter_mut().for_each(|streams| streams.take(&mut batch));
            for hit in &batch.hits {
                let place = place(listed, hit.offset);
                show::hit(hit, (place.as_ref(), batch.node.as_deref()), search, *ui);
            }
            outcome.add(&batch);
            progress.set(batch.range.end());
            Ok(())
        };
        let ended = stages::each(batches, stop, take).await?;
        self.at_nodes = near.map(|done| done.lock().clone());
        ended
    }

    /// Searches the compressed data that were found.
    async fn inside(&mut self, streams: Streams, stop: &mut Stop) -> Ended {
        let Task { args, opened, search, ui, .. } = self.task;
        let progress = ui.progress("searching compressed data".to_owned(), streams.places() as u64);
        let mut counts = Counts { given_up: streams.left_out(), ..Counts::default() };
        let (listed, outcome) = (self.listed, &mut self.outcome);
        streams.truncated().into_iter().for_each(|truncation| outcome.truncate(truncation));
        let found = streams.search(&opened.decrypted()?, search, (workers(args), Searched::default()));
        let mut done = 0;
        let take = |inside: Inside| {
            counts.add(&inside.counts);
            inside.truncated.iter().for_each(|truncation| outcome.truncate(*truncation));
            for hit in &inside.hits {
                outcome.count(&hit.hit);
                show::inner_hit(hit, place(listed, hit.offset).as_ref(), search, *ui);
            }
            done += 1;
            progress.set(done);
            Ok(())
        };
        stages::each(found, stop, take).await??;
        self.inside = Some(counts);
        Ok(())
    }

    /// Searches the fragments of each file as one.
    async fn across(&mut self, listed: &Listed, stop: &mut Stop) -> Ended {
        let Task { args, opened, search, ui, .. } = self.task;
        let outcome = &mut self.outcome;
        let print = |file: usize, hit: &AcrossHit| {
            outcome.count(&hit.hit);
            let place = listed.places.of_file(file, hit.file_offset, hit.hit.offset);
            show::across(hit, &place, search, *ui);
            Ok(())
        };
        let device = opened.decrypted()?;
        let counts = across::search_all(listed, (search, workers(args)), &device, (*ui, print), stop).await??;
        self.across = Some(counts);
        Ok(())
    }

    /// Tries the rules on files, if there are any.
    async fn rules(&mut self, atoms: FoundAtoms, stop: &mut Stop) -> Ended {
        let Some(set) = self.task.rules else { return Ok(()) };
        let places = set.is_searched().then(|| atoms.places(self.outcome.coverage()));
        let (ui, outcome) = (self.task.ui, &mut self.outcome);
        let print = |matched: &Matched| {
            outcome.count(&matched.hit);
            ui.event(matched.line(), &matched.answer());
            Ok(())
        };
        rules::try_files(self.task, (set, places.as_ref()), (&mut self.tried, print), stop).await?
    }
}

/// Where a byte lies, if files are listed.
fn place(listed: Option<&Listed>, offset: u64) -> Option<Place<'_>> {
    listed.map(|listed| listed.places.at(offset))
}
