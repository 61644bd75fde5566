//! Detaching, by the process that serves the device or by another one.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use super::claim::Claim;
use super::node::{Driver, Node};
use super::rescan::rescan;
use super::users;
use crate::blocking::blocking;
use crate::kernel::nbd::Kernel;
#[cfg(feature = "ublk")]
use crate::kernel::ublk::Control;
use crate::{Error, Result};

/// How long the serving process may take to write back and to release its leases and connections.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts while the device is in use, and the pause between them: udev's programs open it for a moment.
const BUSY_RETRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// The prefix of our devices' identifiers.
const OURS: &str = "cheetah:";

/// Detaches the device at `path`, and waits until the process that serves it has ended: written data is then on stable storage.
///
/// # Errors
///
/// If it was not attached by Cheetah, if it is in use (unless `force` is given), or if the process has not ended after
/// a minute.
pub async fn detach(path: &Path, force: bool) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let node = Node::named(path)?;
    if !is_ours(node) {
        return Err(Error::NotAttached(node.path()));
    }
    if let Err(error) = blocking(move || Ok(Claim::wake_holder(node))).await? {
        tracing::debug!("the process behind {node} was not continued: {error}");
    }
    if node.is_connected() {
        disconnect(node, force).await?;
    }
    match Claim::wait(node, END_TIMEOUT).await {
        Ok(Some(claim)) => claim.remove(),
        Ok(None) => return Err(Error::StillServed(node.path())),
        Err(error) => return Err(Error::Io { context: format!("waiting for the process behind {node}"), error }),
    }
    Ok(())
}

/// Whether we attached it. A ublk device whose process has died is gone, and its claim is what is left.
fn is_ours(node: Node) -> bool {
    match node.driver() {
        Driver::Nbd => node.is_connected() && node.identifier().is_some_and(|identifier| identifier.starts_with(OURS)),
        #[cfg(feature = "ublk")]
        Driver::Ublk => Claim::exists(node),
    }
}

/// Makes the kernel write dirty pages back to the device, and end the device.
pub(crate) async fn disconnect(node: Node, force: bool) -> Result<()> {
    let mut tries = if force { 0 } else { BUSY_RETRIES };
    while let Err(error) = blocking(move || try_to(node, force)).await {
        match error {
            Error::InUse { .. } if tries > 0 => tries -= 1,
            error => return Err(error),
        }
        tokio::time::sleep(BUSY_PAUSE).await;
    }
    if node.driver() != Driver::Nbd {
        return Ok(());
    }
    blocking(move || {
        // A partition that is still in use stays until its user ends.
        if let Err(error) = rescan(node) {
            tracing::debug!("the partitions of {node} stay: {error}");
        }
        Ok(())
    })
    .await
}

/// Returns the mounts and programs that use a device, a phrase each, if it is in use.
pub(crate) async fn users(node: Node) -> Result<Option<Vec<String>>> {
    blocking(move || Ok(open_alone(node)?.is_none().then(|| users::of(node)))).await
}

fn try_to(node: Node, force: bool) -> Result<()> {
    // Nothing can be mounted while this is open.
    let alone = if force { None } else { open_alone(node)? };
    let by = if force { Vec::new() } else { users::of(node) };
    if !force && (alone.is_none() || !by.is_empty()) {
        return Err(Error::InUse { device: node.path(), by });
    }
    if let Some(device) = &alone
        && !node.is_read_only()
    {
        let context = || format!("writing back what was written to {node}, which stays attached");
        device.sync_all().map_err(|error| Error::Io { context: context(), error })?;
    }
    let ended = match node.driver() {
        Driver::Nbd => Kernel::open()?.disconnect(node.index()),
        #[cfg(feature = "ublk")]
        Driver::Ublk => Control::open()?.stop(node.index()),
    };
    ended.map_err(|error| Error::Io { context: format!("detaching {node}"), error })
}

/// Opens the device unless it, or a partition of it, is mounted or held by another part of the kernel.
fn open_alone(node: Node) -> Result<Option<std::fs::File>> {
    // Not truncated: a flag of open(2).
    let exclusively = OFlags::EXCL.bits() as i32;
    match OpenOptions::new().read(true).write(!node.is_read_only()).custom_flags(exclusively).open(node.path()) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(None),
        Err(error) => Err(Error::Io { context: format!("opening {node}"), error }),
    }
}
