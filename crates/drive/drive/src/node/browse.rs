//! Nodes that announce themselves by mDNS on the local network.

use std::time::Duration;

use cheetah_control::{api::MDNS_SERVICE, mdns};
use futures::future::join_all;
use mdns_sd::ResolvedService;

use super::spec::{AvailableNode, host_port, shown_name};
use crate::session::Session;
use cheetah_error::{Error, Result, next};

/// The maximum number of addresses tried for one node.
const ADDRESSES_MAX: usize = 8;

/// Listens for announcements, and asks each announced node for its status. Nodes that do not answer are left out, since
/// an announcement outlives its node. They are sorted by name, for a stable order.
pub(crate) async fn browse(duration: Duration, session: &Session) -> Result<Vec<AvailableNode>> {
    let seconds = duration.as_secs_f32();
    let failed = |error: mdns_sd::Error| {
        Error::failed(format!("looking for nodes by mDNS: {error}; name the nodes instead of `auto`"))
    };
    let announced = mdns::browse(MDNS_SERVICE, duration).await.map_err(failed)?;
    // Anyone on the network can announce addresses at which nothing answers: each announcement has one time-out for all of
    // its addresses.
    let asked = announced.iter().map(|service| tokio::time::timeout(session.timeout, ask(service, session)));
    let found: Vec<_> = join_all(asked).await.into_iter().filter_map(|answer| answer.ok().flatten()).collect();
    if found.is_empty() {
        return Err(
            Error::failed(format!("no node announced itself within {seconds} s")).next(next::Node::StartAnnouncing)
        );
    }
    Ok(found)
}

/// Finds the node behind an announcement, at the first of its addresses that answers as the announced instance.
async fn ask(service: &ResolvedService, session: &Session) -> Option<AvailableNode> {
    let http_port: u16 = service.txt_properties.get_property_val_str("http")?.parse().ok()?;
    let instance = service.txt_properties.get_property_val_str("instance")?;
    for address in mdns::addresses(service).into_iter().take(ADDRESSES_MAX) {
        let host = address.to_string();
        let client = session.control(host_port(&host, http_port));
        match client.status().await {
            Ok(status) if status.instance == instance => {
                return Some(AvailableNode::node(
                    shown_name(&status.name, &host, status.nbd_port),
                    &host,
                    http_port,
                    &status,
                ));
            }
            Ok(_) => tracing::debug!("{host}: another node than the one announced as {}", service.get_fullname()),
            Err(error) => tracing::debug!("{} was announced: {error}", service.get_fullname()),
        }
    }
    None
}
