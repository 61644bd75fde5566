//! Checking a drive's redundancy: reads and compares all data and redundancy, and rewrites wrong units.

use std::sync::Arc;

use cheetah_error::{Error, Result, next};
use cheetah_redundancy::Checked;
use serde::Serialize;

use crate::file::set::DriveSet;
use crate::file::{DriveFile, NodePart};
use crate::node::open::NodeAccess;
use crate::session::Session;
use crate::set::newest::refresh;
use crate::set::open::open_writer;

/// How to check a drive.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Take the lease from its holder.
    pub force_lease: bool,
    /// What nodes are called with.
    pub session: Session,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckReport {
    /// The counts of comparisons and repairs.
    #[serde(flatten)]
    pub checked: Checked,
    /// The nodes that are missing, a sentence each.
    pub missing: Vec<String>,
    /// The parts of nodes all of whose units were compared and agree; empty if the check is not sound.
    #[serde(skip)]
    pub parts: Vec<NodePart>,
}

/// Checks a drive under its write lease; readers continue meanwhile. `progress` gets the bytes of data done.
///
/// # Errors
///
/// If the drive has no redundancy, has lost more nodes than its layout survives, or another process has it open for
/// writing.
pub async fn check(
    file: &DriveFile,
    options: CheckOptions,
    mut progress: impl FnMut(u64) + Send,
) -> Result<CheckReport> {
    if !file.is_redundant() {
        return Err(Error::misuse(format!("{} has no redundancy to check", file.name)).next(next::Drive::Verify));
    }
    let file = refresh(file, &options.session).await?;
    let access = NodeAccess { writable: true, connections: 2, session: options.session.clone(), exclusive: false };
    let mut report = CheckReport { checked: Checked::default(), missing: Vec::new(), parts: Vec::new() };
    let mut before = 0;
    for set in DriveSet::all(&file) {
        let opened = open_writer(&set, options.force_lease, access.clone(), Arc::default()).await?;
        report.missing.extend(opened.missing.iter().map(ToString::to_string));
        let checked = opened.redundant.check(&mut |done, _| progress(before + done)).await;
        let closed = opened.close().await;
        report.checked += checked.map_err(Error::device(format!("checking {}", file.name)))?;
        closed?;
        before += set.capacity();
    }
    if report.checked.is_sound() {
        report.parts = file.nodes().map(NodePart::from).collect();
    }
    Ok(report)
}
