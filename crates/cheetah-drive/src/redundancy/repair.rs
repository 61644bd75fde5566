//! Repairing a redundant drive: nodes that missed writes get them, and lost nodes are replaced by others.
//!
//! The drive stays in use by readers meanwhile. Repair holds the write lease, so it refuses a drive that is open for writing:
//! such a drive is repaired by its writer as far as its own nodes go.

use std::time::Duration;

use cheetah_error::{Error, Result};
use cheetah_redundancy::MemberState;
use serde::Serialize;

use super::newest::refresh;
use super::open::open_writer;
use crate::file::{DriveFile, SetNode};
use crate::lifecycle::create::allocate_spare;
use crate::node::find::AvailableNode;
use crate::node::open::NodeAccess;

/// How to repair a drive.
#[derive(Debug, Clone)]
pub struct RepairOptions {
    /// Nodes that may take the place of lost ones.
    pub spares: Vec<AvailableNode>,
    /// Take the lease from its holder.
    pub force_lease: bool,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// How far a repair has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairProgress {
    /// Regions done.
    pub done: u64,
    /// Regions that are still to do.
    pub left: u64,
}

/// The result of a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// Nodes that came back, and were given what they missed.
    pub resynced: Vec<String>,
    /// Nodes that were replaced.
    pub replaced: Vec<Replacement>,
    /// Nodes that are still missing.
    pub missing: Vec<String>,
    /// The number of losses that the drive survives now.
    pub survives: usize,
    /// The number of losses that its layout survives when nothing is missing.
    pub survives_max: usize,
}

/// A node that was replaced by another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replacement {
    /// The lost node.
    pub lost: String,
    /// The node that has its part of the drive now.
    pub by: String,
}

impl Repaired {
    /// Whether redundancy is complete.
    pub fn is_complete(&self) -> bool {
        self.survives == self.survives_max
    }
}

/// Repairs a drive, and brings its file up to date.
///
/// # Errors
///
/// If the drive has no redundancy, has a writer, or has lost more nodes than its layout survives.
pub async fn repair(
    file: &mut DriveFile,
    options: RepairOptions,
    mut progress: impl FnMut(RepairProgress) + Send,
) -> Result<Repaired> {
    if !file.is_redundant() {
        return Err(Error::misuse(format!(
            "{} has no redundancy, so there is nothing to repair it from; load its image again",
            file.name
        )));
    }
    *file = refresh(file, options.timeout).await?;
    let access = NodeAccess { writable: true, connections: 2, timeout: options.timeout };
    let opened = open_writer(file, options.force_lease, access).await?;
    let worked = work(file, &options, &opened, &mut progress).await;
    let closed = opened.close().await;
    let repaired = worked?;
    closed?;
    // What the writer's end has recorded, too.
    *file = refresh(file, options.timeout).await?;
    file.save()?;
    Ok(repaired)
}

async fn work(
    file: &DriveFile,
    options: &RepairOptions,
    opened: &super::open::Opened,
    progress: &mut (impl FnMut(RepairProgress) + Send),
) -> Result<Repaired> {
    let members = opened.redundant.members();
    let names: Vec<String> = file.nodes().map(|node| node.name.clone()).collect();
    let state = |index: usize| members.map().map_or(MemberState::Stale, |map| map.members[index].state);
    let (mut back, mut replaced) = (Vec::new(), Vec::new());
    let mut spares = options.spares.iter();
    for (index, name) in names.iter().enumerate() {
        match state(index) {
            MemberState::InSync => continue,
            MemberState::Syncing => {
                back.push(index);
                continue;
            }
            MemberState::Stale => {}
        }
        if members.rejoin(index).await {
            back.push(index);
        } else if let Some(spare) = spares.next() {
            let node = replace(file, opened, index, spare, options.timeout).await?;
            replaced.push((index, Replacement { lost: name.clone(), by: node.name }));
        }
    }
    let mut tell = |done, left| progress(RepairProgress { done, left });
    opened.redundant.resync(&mut tell).await.map_err(Error::device(format!("repairing {}", file.name)))?;
    let in_sync = |index: &usize| state(*index) == MemberState::InSync;
    let lost = (0..members.len()).filter(|index| !in_sync(index)).count();
    let survives_max = file.losses_max();
    Ok(Repaired {
        resynced: back.iter().filter(|index| in_sync(index)).map(|index| names[*index].clone()).collect(),
        replaced: replaced.into_iter().filter(|(index, _)| in_sync(index)).map(|(_, by)| by).collect(),
        missing: (0..members.len()).filter(|index| !in_sync(index)).map(|index| names[index].clone()).collect(),
        survives: survives_max.saturating_sub(lost),
        survives_max,
    })
}

/// Allocates a lost node's part of the drive on a spare, and puts the spare in its place.
async fn replace(
    file: &DriveFile,
    opened: &super::open::Opened,
    index: usize,
    spare: &AvailableNode,
    timeout: Duration,
) -> Result<SetNode> {
    let Some(holder) = opened.holder() else { return Err(Error::failed("a repair needs the write lease".to_owned())) };
    let size = file.nodes().nth(index).map_or(0, |node| node.size);
    let mut others = file.nodes().enumerate().filter(|(other, _)| *other != index);
    if others.any(|(_, node)| node.http.is_some() && spare.is_at(node.http.as_deref())) {
        return Err(Error::misuse(format!(
            "node {} holds a part of {} already: it cannot take another, or its loss would be two losses",
            spare.name, file.name
        )));
    }
    let epoch = opened.redundant.members().map().map_or(0, |map| map.epoch);
    let node = allocate_spare(file, index, epoch, spare, size, timeout).await?;
    let link = holder.replace(index, node.clone()).await?;
    opened.redundant.replace(index, link).await.map_err(Error::device(format!("repairing {}", file.name)))?;
    Ok(node)
}
