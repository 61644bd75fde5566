//! Finding the newest map of a set.

use std::time::Duration;

use cheetah_error::{Error, Result};
use futures::StreamExt as _;
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use super::divergence::{Divergence, agreed};
use super::map::DriveMap;
use super::votes::votes;
use crate::file::set::DriveSet;
use crate::file::{DriveFile, SetNode};
use crate::node::export::KeptExports;
use crate::session::Session;

/// How long to wait for further nodes once a deciding set has answered.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// How often a newer map may name nodes that were not asked yet.
const ROUNDS_MAX: usize = 8;

/// The newest map that was found.
pub(crate) struct Newest {
    pub map: DriveMap,
    /// The nodes that answered and hold their part of the drive, by index.
    pub answered: Vec<bool>,
    /// The number of Cheetah nodes that answered. A node that has ended does not count: it may have been the only one of
    /// this map's nodes that had a newer map.
    pub heard: usize,
    /// Two writers that wrote apart from each other, if there were any.
    pub diverged: Option<Box<Divergence>>,
}

/// Which answers to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// The answers of all nodes.
    All,
    /// The answers of a deciding set of nodes, plus [`STRAGGLERS`] for the others.
    Enough,
}

/// Asks the nodes that the drive file names, and those that newer maps name. A node that does not answer within
/// the time-out is left out.
pub(crate) async fn newest(set: &DriveSet, session: &Session) -> Result<Newest> {
    let found = newest_of_any(set, session).await?;
    agreed(set, found.diverged.as_deref())?;
    Ok(found)
}

/// The same, whether writers wrote apart from each other or not.
pub(crate) async fn newest_of_any(set: &DriveSet, session: &Session) -> Result<Newest> {
    find(set, DriveMap::of_file(set), &KeptExports::default(), session, Patience::All).await
}

/// The same, starting from a `known` map, over kept connections. Returns soon after nodes with more than half of the
/// votes have answered.
pub(crate) async fn newest_soon(
    set: &DriveSet,
    known: &DriveMap,
    exports: &KeptExports,
    session: &Session,
) -> Result<Newest> {
    let mut best = DriveMap::of_file(set);
    if best.map.epoch <= known.map.epoch {
        best = known.clone();
    }
    find(set, best, exports, session, Patience::Enough).await
}

/// Whether the maps in `file` are still the newest: nodes with more than half of the votes know no newer ones, nor does the file as
/// it is on disk now, which may have a vote.
pub(crate) async fn is_newest(file: &DriveFile, exports: &KeptExports, session: &Session) -> bool {
    if !file.is_redundant() {
        return true;
    }
    let on_disk = DriveFile::load(&file.path).ok().filter(|found| found.id == file.id);
    let sets: Vec<DriveSet> = DriveSet::all(file).collect();
    for set in &sets {
        let (known, epoch) = (DriveMap::of_file(set), set.entry().epoch);
        let Ok(found) = newest_soon(set, &known, exports, session).await else { return false };
        let is_sure = votes(&known.nodes, set.losses_max()).decide(found.heard, on_disk.is_some());
        let is_newer = found.map.map.epoch != epoch || found.diverged.is_some();
        let is_newer =
            is_newer || on_disk.iter().any(|file| file.sets.get(set.index).is_none_or(|set| set.epoch > epoch));
        if is_newer || !is_sure {
            return false;
        }
    }
    true
}

async fn find(
    set: &DriveSet,
    mut best: DriveMap,
    exports: &KeptExports,
    session: &Session,
    patience: Patience,
) -> Result<Newest> {
    // Those of all rounds, and what the drive file says.
    let mut maps = vec![DriveMap::of_file(set)];
    for _ in 0..ROUNDS_MAX {
        let asked = best.clone();
        let mut answered = vec![false; asked.nodes.len()];
        let (mut heard, mut until, mut has_map) = (0, None, false);
        let nodes = asked.nodes.iter().enumerate();
        let asks = nodes.map(|(index, node)| async move { (index, ask(set, node, exports, session).await) });
        let mut answers: FuturesUnordered<_> = asks.collect();
        loop {
            let answer = match until {
                None => answers.next().await,
                Some(until) => timeout_at(until, answers.next()).await.ok().flatten(),
            };
            let Some((index, answer)) = answer else { break };
            let answer = match answer {
                // A damaged map at one node must not cost a reader its lease.
                Err(error) if patience == Patience::Enough => {
                    tracing::debug!("{error}");
                    Answer::Nothing
                }
                answer => answer?,
            };
            answered[index] = matches!(answer, Answer::Map(_) | Answer::NoMap);
            heard += usize::from(!matches!(answer, Answer::Nothing) && asked.nodes[index].http.is_some());
            has_map |= matches!(answer, Answer::Map(_));
            if let Answer::Map(map) = &answer {
                maps.push((**map).clone());
            }
            if let Answer::Map(map) = answer
                && (map.map.epoch > best.map.epoch
                    || best.map.epoch == set.entry().epoch && map.map.epoch == set.entry().epoch)
            {
                best = *map;
            }
            if patience == Patience::Enough
                && until.is_none()
                && votes(&asked.nodes, set.losses_max()).decide(heard, true)
            {
                until = Some(Instant::now() + STRAGGLERS);
            }
        }
        if best.nodes == asked.nodes {
            // The nodes that had this map are lost.
            if has_map && best.writer.is_empty() {
                best.is_of_file_only();
            }
            let diverged = Divergence::among(&best, &maps);
            return Ok(Newest { map: best, answered, heard, diverged });
        }
    }
    let name = &set.drive.name;
    Err(Error::failed(format!("{name}: its nodes keep naming newer nodes; is another process repairing it?")))
}

/// Brings a drive file up to date with the newest maps. Files of drives without redundancy are left as they are.
pub(crate) async fn refresh(file: &DriveFile, session: &Session) -> Result<DriveFile> {
    refresh_agreed(file, session, true).await
}

/// The same, even if writers wrote apart from each other: for a drive of which nothing is to be kept.
pub(crate) async fn refresh_any(file: &DriveFile, session: &Session) -> Result<DriveFile> {
    refresh_agreed(file, session, false).await
}

async fn refresh_agreed(file: &DriveFile, session: &Session, must_agree: bool) -> Result<DriveFile> {
    let mut file = file.clone();
    if file.is_redundant() {
        let sets: Vec<DriveSet> = DriveSet::all(&file).collect();
        let found = try_join_all(sets.iter().map(|set| newest_of_any(set, session))).await?;
        if must_agree {
            sets.iter().zip(&found).try_for_each(|(set, found)| agreed(set, found.diverged.as_deref()))?;
        }
        found.iter().enumerate().for_each(|(index, found)| found.map.update(&mut file, index));
    }
    Ok(file)
}

/// Records the newest maps in the drive file, and keeps what else it records, such as receipts. `known` names the nodes to
/// ask.
pub(crate) async fn record(file: &mut DriveFile, known: &DriveFile, session: &Session) -> Result<()> {
    let sets: Vec<DriveSet> = DriveSet::all(known).collect();
    let found = try_join_all(sets.iter().map(|set| newest(set, session))).await?;
    file.update(|file| found.iter().enumerate().for_each(|(index, found)| found.map.update(file, index)))
}

enum Answer {
    Map(Box<DriveMap>),
    /// The export exists and holds no map: nothing was written since the drive was created.
    NoMap,
    Nothing,
}

async fn ask(set: &DriveSet, node: &SetNode, exports: &KeptExports, session: &Session) -> Result<Answer> {
    let Some(export) = exports.of(node, session) else { return Ok(Answer::Nothing) };
    match export.control.map(&export.name).await {
        Ok(Some(stored)) => match DriveMap::parse(&stored.map, set) {
            Ok(map) => Ok(Answer::Map(Box::new(map))),
            Err(why) => Err(Error::failed(format!("{}: node {}: {why}", set.drive.name, node.name))),
        },
        Ok(None) => Ok(Answer::NoMap),
        Err(error) => {
            tracing::debug!("node {} returns no map: {error}", node.name);
            Ok(Answer::Nothing)
        }
    }
}
