//! YARA rules, tried on the content of files.
//!
//! Their atoms are searched where the bytes lie, as words are. Then the process that lists files tries whole rules on the files that may
//! have an atom. If a rule has no atoms, nothing is searched for, and all rules are tried on all files.

mod blocks;
mod set;
mod tried;

use std::path::Path;
use std::sync::Arc;

use cheetah_drive::WorkDone;
use cheetah_search::{Batch, Layout, Order, Outcome, Search};
use cheetah_source::{OpenedSource, SearchOptions, Searching};

use self::blocks::Blocks;
use self::set::Named;
pub use self::set::RuleSet;
pub use self::tried::RulesShown;
use self::tried::{Matched, Taken, Tried};
use super::folder::{Writing, earlier_answer};
use super::kept::{self, Ended, Stages, Task, to_resume};
use super::lister::{self, AtomPlaces, TryRules};
use super::report::{About, Told};
use super::{Args, search_bytes, show, workers};
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// Searches the source for the atoms of the rules, tries the rules, and prints their matches.
pub async fn search(
    (args, desk, ui): (&Args, &Desk, Ui),
    opened: &OpenedSource,
    (set, order, atoms): (&RuleSet, &Order, &Arc<Search>),
    stop: &mut Stop,
) -> Result<()> {
    let named = set.named();
    let mut outcome = Outcome::new(opened.size(), named.search.patterns().len());
    let (mut blocks, mut ended, mut at_nodes) = (Blocks::new(), Ok(()), None);
    if set.is_searched() {
        let lend = args.lend.request("search", &desk.custodian);
        let options = SearchOptions { at_nodes: args.at_nodes, workers: workers(args), lend, within: None };
        let Searching { batches, near } = opened.search(&args.source, (order, atoms), options).await?;
        let take = |batch: &mut Batch| blocks.take(batch);
        ended = search_bytes(batches, (&args.source, ui), (take, &mut outcome), stop).await;
        at_nodes = near.map(|near| near.lock().clone());
    }
    let mut tried = Tried::default();
    if ended.is_ok() {
        let places = set.is_searched().then(|| blocks.places(outcome.coverage()));
        let found = |matched: &Matched| {
            outcome.count(&matched.hit);
            ui.event(matched.line(), &matched.answer());
            Ok(())
        };
        ended = try_files((set, &named, places.as_ref()), opened, (&mut tried, found, ui), stop).await?;
    }
    let rules = RulesShown { set, tried: &tried };
    let shown = shown(args, (&named, &outcome), (None, at_nodes), rules);
    ui.answer(shown.text(), &shown.answer(ended.is_ok()));
    ended.map_err(|failure| shown.unfinished(failure))?;
    shown.complete()
}

/// Does the same with a folder for the result. What was searched for atoms is in the journal; the rules are tried again.
pub async fn search_kept(task: &Task<'_>, set: &RuleSet, stop: &mut Stop) -> Result<()> {
    let Task { args, out, .. } = task;
    let mut journal = kept::open(task, stop).await?;
    if journal.state().finished.is_some() {
        return show::earlier(&earlier_answer(journal.folder(), out)?, &args.source, out, task.ui);
    }
    let about = About::new(task.opened, task.order).since(journal.state().start.begun_s);
    let (mut stages, mut ended) = (Stages::default(), Ok(()));
    if set.is_searched() {
        ended = kept::search_rest(task, &mut journal, &mut stages, stop).await?;
    }
    let named = set.named();
    let mut outcome = Outcome::new(journal.state().coverage.size(), named.search.patterns().len());
    let mut blocks = Blocks::new();
    for batch in journal.batches() {
        let mut batch = batch?;
        blocks.take(&mut batch);
        outcome.add(&batch);
    }
    let mut files = Writing::begin(journal.folder(), out, &args.source, Layout::Rules)?;
    let mut tried = Tried::default();
    if ended.is_ok() {
        let places = set.is_searched().then(|| blocks.places(outcome.coverage()));
        let found = |matched: &Matched| {
            outcome.count(&matched.hit);
            files.push(&matched.row(), &named.search)
        };
        let into = (&mut tried, found, task.ui);
        ended = try_files((set, &named, places.as_ref()), task.opened, into, stop).await.map_err(to_resume)?;
    }
    let key_lent = stages.near.and_then(|near| near.key_lent);
    let at_nodes = journal.state().near.as_ref().map(|near| WorkDone { key_lent, ..near.work_done() });
    let rules = RulesShown { set, tried: &tried };
    let shown = shown(args, (&named, &outcome), (Some(*out), at_nodes), rules);
    let answer = shown.answer(ended.is_ok());
    let told = Told { answer: &answer, search: &named.search, about: &about };
    let names = files.publish(&told, outcome.coverage(), None)?;
    if ended.is_ok() && shown.is_whole() {
        journal.finish(&names)?;
    }
    task.ui.answer(shown.text(), &answer);
    ended.map_err(|failure| shown.unfinished(failure))?;
    shown.complete()
}

/// A search for matches of rules.
fn shown<'a>(
    args: &'a Args,
    (named, outcome): (&'a Named, &'a Outcome),
    (out, at_nodes): (Option<&'a Path>, Option<WorkDone>),
    rules: RulesShown<'a>,
) -> show::Shown<'a> {
    show::Shown {
        source: &args.source,
        search: &named.search,
        outcome,
        out,
        at_nodes,
        inside: None,
        known: None,
        carved: None,
        files: None,
        rules: Some(rules),
    }
}

/// Tries the rules on the files of the source, and calls `found` with each match. Returns why not all files were tried. Fails if a match
/// cannot be kept.
async fn try_files(
    (set, named, searched): (&RuleSet, &Named, Option<&AtomPlaces>),
    opened: &OpenedSource,
    (tried, mut found, ui): (&mut Tried, impl FnMut(&Matched) -> Result<()>, Ui),
    stop: &mut Stop,
) -> Result<Ended> {
    let _progress = ui.spinner("trying rules on files");
    let order = TryRules { files: &set.files, searched };
    let mut lost = None;
    let walk = lister::walk(opened, (set.python.as_os_str(), Some(&order)), |message| {
        Ok(match tried.take(message, named)? {
            Taken::Match(matched) => {
                if let Err(failure) = found(matched.as_ref()) {
                    lost = Some(failure);
                    return Err(Failure::failed("a match could not be kept"));
                }
                None
            }
            Taken::Counted => None,
            Taken::Other(message) => Some(message),
        })
    });
    let walked = stop.unless("trying the rules", walk).await;
    if let Some(failure) = lost {
        return Err(failure);
    }
    Ok(walked.map(|listed| {
        tried.left_out_volumes = listed.places.left_out().volumes;
        tried.volumes = listed.volumes;
        tried.death = listed.death;
        tried.problems = listed.problems;
    }))
}
