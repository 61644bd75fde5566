//! A writer's leases at the nodes: taken, renewed, and retaken after they have expired.
//!
//! Another writer may have held a lease after it expired. Therefore leases are retaken at all nodes that refuse one,
//! and are used only once a deciding set of nodes holds leases of this writer and no map of another. Another writer
//! stores its map at a deciding set before it writes anything, and two such sets share a node or the drive file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cheetah_control::ControlError;
use cheetah_control::api::LeaseRequest;
use cheetah_redundancy::NotReached;
use futures::future::join_all;
use tokio::time::{Instant, timeout};

use super::confirmation::Unconfirmed;
use super::ended::has_ended;
use super::map::DriveMap;
use super::shared::{Place, Shared};
use super::votes::votes;
use crate::file::SetNode;
use crate::lease::holder;
use crate::node::export::NodeExport;
use crate::timing::{ENDED_TIMEOUT, RENEW_TIMEOUT, TTL_S};

/// A node's answer about a lease.
enum Renewal {
    /// It is held, and was without interruption.
    Held,
    /// It had expired and was retaken. The node has no map of another writer.
    TakenAnew,
    /// Another writer holds it, or has changed the drive: a clause.
    Another(String),
    /// The node's process has ended.
    Ended,
    /// The node did not answer.
    Unknown,
}

/// Why no lease is held at a node; a clause.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoLease {
    /// The node does not grant it.
    #[error(transparent)]
    NotGranted(#[from] ControlError),
    /// Another writer may have had it meanwhile.
    #[error(transparent)]
    Unconfirmed(#[from] Unconfirmed),
}

impl Shared {
    /// Renews the leases until another writer has the drive.
    pub(super) async fn keep_leases(self: Arc<Self>) {
        while !self.fence.is_up() {
            self.confirmation.due().await;
            self.confirm().await;
        }
    }

    /// One round: renews the leases, and retakes those that have expired.
    async fn confirm(self: &Arc<Self>) {
        let begun = Instant::now();
        let places = self.places.lock().clone();
        let renewals = join_all(places.iter().enumerate().map(|(member, place)| self.renew(member, place))).await;
        let count = |wanted: fn(&Renewal) -> bool| renewals.iter().filter(|renewal| wanted(renewal)).count();
        let taken_anew = count(|renewal| matches!(renewal, Renewal::TakenAnew));
        let another = renewals.iter().find_map(|renewal| match renewal {
            Renewal::Another(why) => Some(why.clone()),
            _ => None,
        });
        let by_file =
            || (taken_anew > 0 && self.file_has_another_map()).then(|| "the drive file names a newer map".into());
        if let Some(why) = another.or_else(by_file) {
            tracing::error!("{} has, or had, another writer, nothing more is written: {why}", self.drive_name());
            self.fence.raise();
            self.confirmation.failed(Unconfirmed::Fenced);
            return;
        }
        let held = count(|renewal| matches!(renewal, Renewal::Held)) + taken_anew;
        // While the leases of the last confirmed round last, no other writer can have used a node whose process has
        // ended since.
        let ended = if self.confirmation.is_valid() { count(|renewal| matches!(renewal, Renewal::Ended)) } else { 0 };
        let nodes: Vec<SetNode> = places.iter().map(|place| place.node.clone()).collect();
        if !votes(&nodes, self.losses_max()).decide(held + ended, true) {
            self.confirmation.failed(Unconfirmed::TooFew { held, nodes: nodes.len() });
            return;
        }
        self.use_leases(&renewals).await;
        self.confirmation.confirmed(begun);
        self.renew_incoming(&places).await;
    }

    /// Renews the leases at the nodes that members move to. If one has ended, writes there are refused, and the move is
    /// given up.
    async fn renew_incoming(&self, places: &[Place]) {
        let renewals = places.iter().filter_map(|place| place.incoming.as_ref()).map(|incoming| async {
            if let (Some(token), Some(export)) =
                (&incoming.token, self.exports.of(&incoming.node, &self.access.session.within(RENEW_TIMEOUT)))
                && let Err(error) = export.control.renew_lease(&export.name, token).await
            {
                tracing::debug!("renewing the write lease at {}: {error}", export.node);
            }
        });
        join_all(renewals).await;
    }

    /// Puts retaken leases to use, over new connections.
    async fn use_leases(self: &Arc<Self>, renewals: &[Renewal]) {
        let mut members = Vec::new();
        {
            let mut places = self.places.lock();
            let renewed = places.iter_mut().zip(renewals).enumerate();
            for (member, (place, _)) in renewed.filter(|(_, (_, renewal))| matches!(renewal, Renewal::TakenAnew)) {
                if let Some(token) = place.unconfirmed.take() {
                    place.token = Some(token);
                    members.push(member);
                }
            }
        }
        if members.is_empty() {
            return;
        }
        tracing::warn!(
            "{}: write leases had expired; nobody has written meanwhile, so they are taken again",
            self.drive_name()
        );
        let Some(drive) = self.members.get().and_then(std::sync::Weak::upgrade) else { return };
        let connect = |member: usize| async move {
            let connected = timeout(RENEW_TIMEOUT, self.connect(member)).await.map_err(|_| NotReached::Silent)?;
            connected.map_err(|error| NotReached::Unreachable(Arc::new(error)))
        };
        join_all(members.into_iter().map(|member| drive.renew_connection(member, connect(member)))).await;
    }

    async fn renew(&self, member: usize, place: &Place) -> Renewal {
        let Some(export) = self.exports.of(&place.node, &self.access.session.within_at_most(RENEW_TIMEOUT)) else {
            return Renewal::Unknown;
        };
        let Some(token) = place.token.as_ref().or(place.unconfirmed.as_ref()) else { return Renewal::Unknown };
        let Err(error) = export.control.renew_lease(&export.name, token).await else {
            return if place.token.is_some() { Renewal::Held } else { self.look_for_another(&export).await };
        };
        if !error.is_conflict() {
            tracing::warn!("renewing the write lease at {}: {error}", export.node);
            let has_ended =
                error.is_not_found() || has_ended(&place.node, &self.access.session.within(ENDED_TIMEOUT)).await;
            return if has_ended { Renewal::Ended } else { Renewal::Unknown };
        }
        if !self.forget(member, token) {
            return Renewal::Unknown;
        }
        match export.control.acquire_lease(&export.name, &request(false)).await {
            Ok(grant) => {
                self.keep_unconfirmed(member, &place.node, grant.token).await;
                self.look_for_another(&export).await
            }
            Err(error) if error.is_conflict() && is_held_by_another(&export).await => {
                Renewal::Another(format!("node {}: {error}", export.node))
            }
            Err(error) => {
                tracing::debug!("no lease at {}: {error}", export.node);
                Renewal::Unknown
            }
        }
    }

    /// Whether a node has the map of a writer that came after this one.
    async fn look_for_another(&self, export: &NodeExport) -> Renewal {
        let map = match export.control.map(&export.name).await {
            Ok(None) => return Renewal::TakenAnew,
            Ok(Some(stored)) => DriveMap::parse(&stored.map, &self.set()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match map {
            Ok(map) if map.writer == self.id || map.map.epoch <= self.former_epochs.load(Ordering::Acquire) => {
                Renewal::TakenAnew
            }
            Ok(_) => Renewal::Another(format!("node {} has that writer's map", export.node)),
            Err(why) => {
                tracing::debug!("node {}: {why}", export.node);
                Renewal::Unknown
            }
        }
    }

    /// Whether another writer has changed the drive file. A writer that continues without a node changes the file
    /// wherever the file has votes.
    fn file_has_another_map(&self) -> bool {
        let newest = self.former_epochs.load(Ordering::Acquire).max(self.stored_epoch.load(Ordering::Acquire));
        let has_vote = votes(&self.nodes(), self.losses_max()).of_file() > 0;
        let index = self.set().index;
        has_vote && self.newest_file().sets.get(index).is_some_and(|set| set.epoch > newest)
    }

    /// Drops a lease that has expired; false if it is no longer the one of this place.
    fn forget(&self, member: usize, token: &str) -> bool {
        let place = &mut self.places.lock()[member];
        let own = if place.token.is_some() { &mut place.token } else { &mut place.unconfirmed };
        own.take_if(|own| own == token).is_some()
    }

    /// Keeps a lease that may not be used yet, unless the place has another node or the drive was closed meanwhile.
    async fn keep_unconfirmed(&self, member: usize, node: &SetNode, token: String) {
        {
            let mut places = self.places.lock();
            if !self.is_released.load(Ordering::Acquire) && places[member].node.is_same(node) {
                places[member].unconfirmed = Some(token);
                return;
            }
        }
        // Nothing else will release it.
        if let Some(export) = NodeExport::of(node, &self.access.session) {
            let _ = export.control.release_lease(&export.name, &token).await;
        }
    }

    /// Makes sure that a lease is held at a member's node. An existing lease is replaced by a new one, which
    /// invalidates requests sent under the old one.
    pub(super) async fn acquire(&self, member: usize) -> Result<(), NoLease> {
        let asked = Instant::now();
        let place = self.places.lock()[member].clone();
        let Some(export) = NodeExport::of(&place.node, &self.access.session) else { return Ok(()) };
        match &place.token {
            Some(token) => match export.control.renew_lease(&export.name, token).await {
                Ok(_) => {
                    let grant = export.control.acquire_lease(&export.name, &request(true)).await?;
                    if !self.replace_token(member, token, &grant.token) {
                        let _ = export.control.release_lease(&export.name, &grant.token).await;
                    }
                }
                // The next round retakes it.
                Err(error) if error.is_conflict() => self.confirmation.doubt(),
                Err(error) => return Err(error.into()),
            },
            None if place.unconfirmed.is_none() => {
                let force = self.overwrites.load(Ordering::Acquire);
                let grant = export.control.acquire_lease(&export.name, &request(force)).await?;
                self.keep_unconfirmed(member, &place.node, grant.token).await;
            }
            None => {}
        }
        Ok(self.confirmation.confirmed_since(asked).await?)
    }

    fn replace_token(&self, member: usize, old: &str, new: &str) -> bool {
        let mut places = self.places.lock();
        let is_ours = !self.is_released.load(Ordering::Acquire) && places[member].token.as_deref() == Some(old);
        if is_ours {
            places[member].token = Some(new.to_owned());
        }
        is_ours
    }

    /// Takes the lease at a node.
    pub(super) async fn acquire_at(&self, node: &SetNode, force: bool) -> Result<Option<String>, ControlError> {
        let Some(export) = NodeExport::of(node, &self.access.session) else { return Ok(None) };
        Ok(Some(export.control.acquire_lease(&export.name, &request(force)).await?.token))
    }

    pub(super) async fn release(&self) {
        // Before the leases end: maps are stored under them.
        self.stores.finish().await;
        let places = {
            let mut places = self.places.lock();
            self.is_released.store(true, Ordering::Release);
            let held = places.clone();
            places.iter_mut().for_each(|place| (place.token, place.unconfirmed) = (None, None));
            held
        };
        let own = places.iter().map(|place| (&place.node, place.token.as_ref().or(place.unconfirmed.as_ref())));
        let incoming = places.iter().filter_map(|place| place.incoming.as_ref());
        let incoming = incoming.map(|incoming| (&incoming.node, incoming.token.as_ref()));
        let releases = own.chain(incoming).map(|(node, token)| async move {
            if let (Some(token), Some(export)) = (token, NodeExport::of(node, &self.access.session))
                && let Err(error) = export.control.release_lease(&export.name, token).await
            {
                tracing::debug!("releasing the lease at {}: {error}", export.node);
            }
        });
        join_all(releases).await;
    }
}

fn request(force: bool) -> LeaseRequest {
    LeaseRequest { holder: holder(), ttl_s: TTL_S, force }
}

async fn is_held_by_another(export: &NodeExport) -> bool {
    let Ok(status) = export.control.status().await else { return false };
    let lease = status.exports.into_iter().find(|other| other.name == export.name).and_then(|export| export.lease);
    lease.is_some_and(|lease| lease.holder != holder())
}
