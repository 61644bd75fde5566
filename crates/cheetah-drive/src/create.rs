//! Making a drive out of nodes, and making it larger.

use std::path::PathBuf;
use std::time::Duration;

use cheetah_device::placement::Layout;

use crate::error::{Error, Result};
use crate::file::DriveFile;
use crate::find::Found;
use crate::plan::Wanted;

/// What drive to make.
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// Where its file goes; must not exist. The drive is named after it.
    pub path: PathBuf,
    /// The nodes, in the order they are used.
    pub nodes: Vec<Found>,
    /// How it lies over them.
    pub layout: Layout,
    /// How large it is. The drive has exactly this size; the nodes round up.
    pub size: Wanted,
    /// Do not reserve the memory: nodes lend it as it is written, and may run out.
    pub thin: bool,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// What to add to a drive.
#[derive(Debug, Clone)]
pub struct EnlargeRequest {
    /// The nodes of the new set, in order.
    pub nodes: Vec<Found>,
    /// How the new set lies over them.
    pub layout: Layout,
    /// Bytes to add.
    pub size: Wanted,
    /// Do not reserve the memory.
    pub thin: bool,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// Allocates the drive on its nodes and writes its file. If anything fails, everything made is undone.
pub async fn create(request: CreateRequest) -> Result<DriveFile> {
    let _ = request;
    Err(Error::failed("not built yet"))
}

/// Appends a set of further nodes to the drive; its file is replaced. Refused while anyone uses the drive.
pub async fn enlarge(file: &mut DriveFile, request: EnlargeRequest) -> Result<()> {
    let _ = (file, request);
    Err(Error::failed("not built yet"))
}
