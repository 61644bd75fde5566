//! Moving a member's part of a drive to another node.

use std::sync::Arc;

use cheetah_control::api::NewExport;
use cheetah_error::{Error, Result};
use cheetah_redundancy::{DynLink, Members};

use crate::file::SetNode;
use crate::node::allocate::name_incoming;
use crate::node::export::NodeExport;
use crate::node::find::AvailableNode;
use crate::session::Session;
use crate::set::shared::Shared;

/// Begins to move a member to a node. The map names the new export before it is allocated, so that a later writer finds
/// it. Returns once the node is being filled.
///
/// # Errors
///
/// If the member is not in sync, or the node does not take its part. The member then stays.
pub(crate) async fn begin(
    shared: &Arc<Shared>,
    members: &Arc<Members>,
    member: usize,
    to: &AvailableNode,
    session: &Session,
) -> Result<()> {
    let size = shared.node(member).size;
    let epoch = members.map().map_or(0, |map| map.epoch);
    let (node, export) = name_incoming(&shared.set(), member, epoch, to, size, session).await?;
    let recorded = |_| shared.moves_to(member, node.clone());
    members.begin_move(member, recorded).await.map_err(Error::device(format!("moving to node {}", to.name)))?;
    let error = match fill(shared, member, &node, &export).await {
        Ok(link) if members.attach(member, link.clone()) => return Ok(()),
        Ok(_) => Error::failed(format!("node {}: the move was given up", to.name)),
        Err(error) => error,
    };
    if let Err(error) = members.abandon_move(member).await {
        tracing::warn!("that a move was given up is not recorded yet: {error}");
    }
    Err(error)
}

/// Allocates the export, and connects to it.
async fn fill(shared: &Arc<Shared>, member: usize, node: &SetNode, export: &NodeExport) -> Result<DynLink> {
    let new = NewExport::reserved(&export.name, node.size);
    export.control.create_export(&new).await.map_err(|error| Error::failed(error.to_string()))?;
    shared.connect_incoming(member, node).await
}
