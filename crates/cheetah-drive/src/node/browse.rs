//! Nodes that announce themselves by mDNS on the local network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use cheetah_control::{ControlClient, api::MDNS_SERVICE};
use futures::future::join_all;
use mdns_sd::{ResolvedService, ServiceDaemon, ServiceEvent};
use tokio::time::{Instant, timeout_at};

use super::spec::{AvailableNode, host_port, shown_name};
use cheetah_error::{Error, Result};

/// The maximum number of announcements considered.
const NODES_MAX: usize = 1024;
/// The maximum number of addresses tried for one node.
const ADDRESSES_MAX: usize = 8;

/// Listens for announcements, and asks each announced node for its status. Nodes that do not answer are left out, since
/// an announcement outlives its node. They are sorted by name, for a stable order.
pub(crate) async fn browse(duration: Duration, timeout: Duration) -> Result<Vec<AvailableNode>> {
    let seconds = duration.as_secs_f32();
    let failed = |error: mdns_sd::Error| {
        Error::failed(format!("looking for nodes by mDNS: {error}; name the nodes instead of `auto`"))
    };
    let daemon = ServiceDaemon::new().map_err(failed)?;
    let events = daemon.browse(MDNS_SERVICE).map_err(failed)?;
    let until = Instant::now() + duration;
    let mut announced: BTreeMap<String, Box<ResolvedService>> = BTreeMap::new();
    while let Ok(Ok(event)) = timeout_at(until, events.recv_async()).await {
        match event {
            ServiceEvent::ServiceResolved(service) if announced.len() < NODES_MAX => {
                announced.insert(service.get_fullname().to_owned(), service);
            }
            ServiceEvent::ServiceRemoved(_, name) => drop(announced.remove(&name)),
            _ => {}
        }
    }
    // The result does not matter: the daemon's thread ends with the process at the latest.
    let _ = daemon.shutdown();
    let answers = join_all(announced.values().map(|service| ask(service, timeout))).await;
    let found: Vec<_> = answers.into_iter().flatten().collect();
    if found.is_empty() {
        return Err(Error::failed(format!(
            "no node announced itself within {seconds} s; start `cheetah node` with --announce on the machines, or name them"
        )));
    }
    Ok(found)
}

/// Finds the node behind an announcement, at the first of its addresses that answers as the announced instance.
async fn ask(service: &ResolvedService, timeout: Duration) -> Option<AvailableNode> {
    let http_port: u16 = service.txt_properties.get_property_val_str("http")?.parse().ok()?;
    let instance = service.txt_properties.get_property_val_str("instance")?;
    let mut addresses: Vec<IpAddr> = service.get_addresses().iter().map(mdns_sd::ScopedIp::to_ip_addr).collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6(), *address));
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        let host = address.to_string();
        let client = ControlClient::new(host_port(&host, http_port)).with_timeout(timeout);
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
