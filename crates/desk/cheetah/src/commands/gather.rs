//! `cheetah create --gather`: a drive that grows with every node that joins, until it is used or large enough.

use std::net::SocketAddr;
use std::time::Duration;

use cheetah_device::Size;
use cheetah_drive::create::{CreateRequest, EnlargeRequest, bytes_of_added, bytes_of_new, create_unless, enlarge};
use cheetah_drive::gather::JoinListener;
use cheetah_drive::usage::is_in_use;
use cheetah_drive::{AvailableNode, DriveFile, DriveSize, Session};
use cheetah_error::Fact;
use cheetah_words::sentence;
use tokio::time::{Instant, sleep};

use super::options::{NodeArgs, how_to_join, is_same, member_beside};
use crate::answers::create::Gather;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// The most nodes that join.
const NODES_MAX: usize = 1024;
/// The interval of looks at the use of the drive, and of attempts to add a node.
const LOOK: Duration = Duration::from_secs(1);
/// How long a node is added again and again while it, or another node of the drive, does not answer: it may only be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the nodes come from.
pub struct Gathering {
    /// The nodes that are there.
    pub nodes: NodeArgs,
    /// The address at which others join.
    pub listen: SocketAddr,
    /// The size at which the drive is large enough; `None`: it grows until it is used.
    pub size_max: Option<u64>,
}

/// Creates the drive over the nodes that are there, or the first that joins, and adds each node that joins later, until the
/// drive has its size or a process opens it. A signal ends the wait; the drive then stays as it is. `request` has neither
/// nodes nor a size.
pub async fn gather(how: Gathering, request: CreateRequest, desk: &Desk, stop: &mut Stop, ui: Ui) -> Result<DriveFile> {
    let session = request.session.clone();
    let mut joining = JoinListener::listen(how.listen, NODES_MAX, false, &session.credentials).await?;
    let address = joining.address();
    let mut found = if how.nodes.is_given() { how.nodes.find(session.timeout, desk, ui).await? } else { Vec::new() };
    ui.event(
        format_args!("gathering nodes; on each machine run: {}", how_to_join(address, &session.credentials)),
        &Gather::Gathering { listen: address },
    );
    if found.is_empty() {
        let first = tokio::select! {
            first = next(&mut joining, &found, &session) => first,
            signal = stop.asked() => {
                return Err(Failure::failed(format!("stopped by {signal} before a node joined: no drive was made")));
            }
        };
        found.push(first?);
    }
    let layout = request.layout;
    let free: u64 = found.iter().map(|node| node.free_bytes).sum();
    let size = match how.size_max.map(DriveSize::Bytes) {
        Some(wanted) if bytes_of_new(wanted, request.seal.as_ref())?.is_within(free) => wanted,
        _ => DriveSize::All,
    };
    let mut file = create_unless(CreateRequest { nodes: found.clone(), size, ..request }, stop.asked()).await?;
    say(&file, found.len(), ui);
    while how.size_max.is_none_or(|size| file.size < size) {
        let node = tokio::select! {
            node = next(&mut joining, &found, &session) => node?,
            () = until_used(&file, &session) => break,
            _ = stop.asked() => break,
        };
        found.push(node.clone());
        let size = match how.size_max.map(|size| DriveSize::Bytes(size - file.size)) {
            Some(rest) if bytes_of_added(&file, rest)?.is_within(node.free_bytes) => rest,
            _ => DriveSize::All,
        };
        let more =
            EnlargeRequest { nodes: vec![node.clone()], layout, size, parts: 1, thin: false, session: session.clone() };
        match add(&mut file, more, stop).await {
            Some(Ok(())) => say(&file, found.len(), ui),
            Some(Err(error)) => ui.warn(format_args!("{} is not used: {}", node.name, sentence(&error))),
            None => break,
        }
    }
    Ok(file)
}

/// Adds a node, and is patient with nodes that do not answer; `None` if a signal ended that.
async fn add(file: &mut DriveFile, more: EnlargeRequest, stop: &mut Stop) -> Option<cheetah_error::Result<()>> {
    let begun = Instant::now();
    loop {
        // Not dropped by a signal, so that nothing is left half-done.
        let error = match enlarge(file, more.clone()).await {
            Ok(_) => return Some(Ok(())),
            Err(error) => error,
        };
        let is_slow = matches!(error.fact(), Some(Fact::Silent | Fact::Unreachable));
        if !is_slow || begun.elapsed() >= PATIENCE {
            return Some(Err(error));
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            _ = stop.asked() => return None,
        }
    }
}

/// The next node that joins, or that belongs to this machine's room and is there.
async fn next(joining: &mut JoinListener, found: &[AvailableNode], session: &Session) -> Result<AvailableNode> {
    loop {
        let node = tokio::select! {
            node = joining.next() => node.ok_or_else(|| Failure::failed(format!("a drive gathers at most {NODES_MAX} nodes")))?,
            Some(node) = member_beside(found, session) => node,
        };
        if node.free_bytes > 0 && !found.iter().any(|other| is_same(other, &node)) {
            return Ok(node);
        }
    }
}

async fn until_used(file: &DriveFile, session: &Session) {
    while !is_in_use(file, session).await {
        sleep(LOOK).await;
    }
}

fn say(file: &DriveFile, nodes: usize, ui: Ui) {
    let text = format!("{}: {} on {nodes} nodes", file.path.display(), Size(file.size));
    ui.event(text, &Gather::Grown { nodes, size_bytes: file.size });
}
