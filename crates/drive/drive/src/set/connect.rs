//! A writer's connections to the nodes, under its leases.

use std::sync::Arc;

use cheetah_error::{Error, Result};
use cheetah_redundancy::engine::Epoch;
use cheetah_redundancy::{DynLink, Members};

use super::leased::{Leased, NodeLink};
use super::shared::{Former, Incoming, Place, Shared};
use crate::file::SetNode;
use crate::node::open::connect_node;

impl Shared {
    pub(super) async fn connect(self: &Arc<Self>, member: usize) -> Result<DynLink> {
        let Place { node, token, .. } = self.places.lock()[member].clone();
        if token.is_none() && node.http.is_some() {
            return Err(Error::failed(format!("node {}: no lease is held there", node.name)));
        }
        self.connect_to(member, &node, token).await
    }

    pub(super) async fn connect_to(
        self: &Arc<Self>,
        member: usize,
        node: &SetNode,
        token: Option<String>,
    ) -> Result<DynLink> {
        let (client, device) = connect_node(node, token.as_deref(), &self.access).await?;
        let leased =
            Leased { inner: device, shared: Arc::downgrade(self), member, token, node: node.name.as_str().into() };
        Ok(Arc::new(NodeLink { client, device: Arc::new(leased) }))
    }

    /// Puts an empty node in the place of a member, under a lease of its own.
    pub async fn replace(self: &Arc<Self>, members: &Arc<Members>, member: usize, node: SetNode) -> Result<()> {
        let why = |error: &dyn std::fmt::Display| Error::failed(format!("node {}: {error}", node.name));
        let token = self.acquire_at(&node, false).await.map_err(|error| why(&error))?;
        let link = self.connect_to(member, &node, token.clone()).await?;
        let taken = |until: Epoch| {
            let place = &mut self.places.lock()[member];
            let former = Former { node: place.node.clone(), token: place.token.take(), until };
            *place = Place { node: node.clone(), token, unconfirmed: None, former: Some(former), incoming: None };
        };
        members.replace(member, link, taken).await.map_err(|error| why(&error))
    }

    /// Connects to the node that a member moves to, under a lease of its own.
    pub async fn connect_incoming(self: &Arc<Self>, member: usize, node: &SetNode) -> Result<DynLink> {
        let taken = self.acquire_at(node, false).await;
        let token = taken.map_err(|error| Error::failed(format!("node {}: {error}", node.name)))?;
        self.places.lock()[member].incoming = Some(Incoming { node: node.clone(), token: token.clone() });
        self.connect_to(member, node, token).await
    }
}
