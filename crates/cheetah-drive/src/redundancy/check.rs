//! Checking a drive's redundancy: all data and redundancy is read and compared, and what is wrong is written anew.

use std::time::Duration;

use cheetah_error::{Error, Result};
use serde::Serialize;

use super::newest::refresh;
use super::open::open_writer;
use crate::file::DriveFile;
use crate::node::open::NodeAccess;

/// How to check a drive.
#[derive(Debug, Clone, Copy)]
pub struct CheckOptions {
    /// Take the lease from its holder.
    pub force_lease: bool,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// The result of a check. Pages are of 4096 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Bytes of data that were compared with their redundancy.
    pub compared_bytes: u64,
    /// Bytes of data that were not: a node is missing, or the range is bad.
    pub uncompared_bytes: u64,
    /// Stripe units that a node reported as damaged. They were written anew.
    pub damaged_units: u64,
    /// Pages of data that contradicted their digests. They were computed from the other nodes and written anew.
    pub data_pages_repaired: u64,
    /// Pages of redundancy, digests included, that contradicted the data. They were written anew.
    pub redundancy_pages_repaired: u64,
    /// Rows of pages in which data and redundancy contradict each other, and nothing shows which is right. They are left as
    /// they are.
    pub undecided_rows: u64,
    /// The nodes that are missing, a sentence each.
    pub missing: Vec<String>,
}

impl CheckReport {
    /// Whether everything was compared, and nothing is wrong any more.
    pub fn is_sound(&self) -> bool {
        self.uncompared_bytes == 0 && self.undecided_rows == 0
    }

    /// Whether something was wrong.
    pub fn has_found(&self) -> bool {
        self.damaged_units + self.data_pages_repaired + self.redundancy_pages_repaired + self.undecided_rows > 0
    }
}

/// Checks a drive under its write lease; readers continue meanwhile. `progress` is told the bytes of data done.
///
/// # Errors
///
/// If the drive has no redundancy, has lost more nodes than its layout survives, or another process has it open for writing.
pub async fn check(
    file: &DriveFile,
    options: CheckOptions,
    mut progress: impl FnMut(u64) + Send,
) -> Result<CheckReport> {
    if !file.is_redundant() {
        return Err(Error::misuse(format!(
            "{} has no redundancy to check; `cheetah verify` compares its image with the digests made at load",
            file.name
        )));
    }
    let file = refresh(file, options.timeout).await?;
    let access = NodeAccess { writable: true, connections: 2, timeout: options.timeout };
    let opened = open_writer(&file, options.force_lease, access).await?;
    let missing = opened.missing.clone();
    let checked = opened.redundant.check(&mut |done, _| progress(done)).await;
    let closed = opened.close().await;
    let checked = checked.map_err(Error::device(format!("checking {}", file.name)))?;
    closed?;
    Ok(CheckReport {
        compared_bytes: checked.compared_bytes,
        uncompared_bytes: checked.uncompared_bytes,
        damaged_units: checked.damaged_units,
        data_pages_repaired: checked.data_pages_repaired,
        redundancy_pages_repaired: checked.redundancy_pages_repaired,
        undecided_rows: checked.undecided_rows,
        missing,
    })
}
