//! The state of a drive: its image, and each of its nodes.

use std::time::Duration;

use cheetah_device::coverage::State;
use cheetah_image::Hashes;
use futures::future::join_all;
use serde::Serialize;

use crate::file::coverage;
use crate::file::{DigestsRef, DriveFile, Image, ImageState};
pub use crate::node::health::{NodeState, NodeStatus};
use crate::node::health::{check_nbd, node_statuses};
use cheetah_error::Result;

/// The state of a drive.
#[derive(Debug, Clone, Serialize)]
pub struct DriveStatus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The layouts of its sets, in words.
    pub layout: Vec<String>,
    /// The image, if one was loaded.
    pub image: Option<ImageStatus>,
    /// How much of the image the drive has, if it is being filled or could not be read in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered: Option<CoveredStatus>,
    /// Whether every node answers and holds its part of the drive.
    pub healthy: bool,
    /// The nodes, in file order.
    pub nodes: Vec<NodeStatus>,
}

/// An image and the condition it is in now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageStatus {
    /// Its source, as the user wrote it.
    pub source: String,
    /// Its size in bytes; it begins at the drive's start.
    pub size: u64,
    /// Its condition.
    pub state: Condition,
    /// The file of chunk digests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digests: Option<DigestsRef>,
    /// Hashes of the whole.
    pub hashes: Hashes,
}

/// The condition of an image: as the drive file records it, unless a node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// A node of the drive is lost, and with it the part that it held.
    Lost,
    /// As recorded.
    #[serde(untagged)]
    Recorded(ImageState),
}

impl ImageStatus {
    fn new(image: &Image, healthy: bool) -> Self {
        let Image { source, size, state, digests, hashes } = image.clone();
        let state = if healthy { Condition::Recorded(state) } else { Condition::Lost };
        Self { source, size, state, digests, hashes }
    }
}

/// How much of an image the drive has, as last recorded. A fill records it every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoveredStatus {
    /// Bytes that the drive has.
    pub read_bytes: u64,
    /// Bytes that were not read from the source yet.
    pub unread_bytes: u64,
    /// Bytes that the source could not read.
    pub unreadable_bytes: u64,
    /// Whether the image is still being filled; if not, the rest could not be read.
    #[serde(skip)]
    pub filling: bool,
    /// The process that fills the drive now.
    pub filler: Option<String>,
}

/// Asks every node, waiting at most `timeout` for each. Nodes that do not answer are in the result, as such.
pub async fn status(file: &DriveFile, timeout: Duration) -> Result<DriveStatus> {
    let mut nodes = node_statuses(file, timeout).await;
    join_all(file.nodes().zip(&mut nodes).map(|(node, status)| check_nbd(node, status, timeout))).await;
    let covered = coverage::recorded(file)?.map(|coverage| CoveredStatus {
        read_bytes: coverage.bytes(State::Read),
        unread_bytes: coverage.bytes(State::Unread),
        unreadable_bytes: coverage.bytes(State::Unreadable),
        filling: file.fill.is_some(),
        filler: nodes.iter().find_map(|node| node.writer.clone()).filter(|_| file.fill.is_some()),
    });
    let healthy = nodes.iter().all(|node| node.state.is_healthy());
    Ok(DriveStatus {
        name: file.name.clone(),
        id: file.id.clone(),
        size_bytes: file.size,
        layout: file.sets.iter().map(|set| set.describe()).collect(),
        image: file.image.as_ref().map(|image| ImageStatus::new(image, healthy)),
        covered,
        healthy,
        nodes,
    })
}
