//! Announcing the node by mDNS, so that examiners find it without its address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cheetah_control::api::MDNS_SERVICE;
use cheetah_control::mdns;
use mdns_sd::ServiceInfo;
use tokio::time::sleep;

use crate::shared::Shared;

/// The interval between updates of the announced free memory.
const REFRESH: Duration = Duration::from_secs(5);

/// A node's announcement. Dropping it sends a goodbye.
pub(crate) struct Announcement(mdns::Announcement);

impl Announcement {
    /// Announces `node`, whose NBD server listens on `listen`.
    pub fn start(node: &Shared, listen: SocketAddr) -> mdns_sd::Result<Self> {
        mdns::Announcement::start(service(node, listen)?, listen.ip()).map(Self)
    }

    /// Keeps the announcement current, and replaces it if its thread has ended. Never finishes.
    pub async fn refresh(mut self, node: Arc<Shared>, listen: SocketAddr) {
        let mut announced = node.free_bytes();
        loop {
            sleep(REFRESH).await;
            if !self.0.is_running() {
                tracing::warn!("the mDNS thread ended; the node is announced again");
                match Self::start(&node, listen) {
                    Ok(again) => self = again,
                    Err(error) => tracing::debug!(%error, "the node is not announced by mDNS"),
                }
                continue;
            }
            let free = node.free_bytes();
            if free != announced
                && let Ok(service) = service(&node, listen)
                && self.0.update(service)
            {
                announced = free;
            }
        }
    }
}

fn service(node: &Shared, listen: SocketAddr) -> mdns_sd::Result<ServiceInfo> {
    let instance = node.instance.to_string();
    // Two nodes may have the same name, even on one machine; the instance distinguishes them.
    let label: String = node.name.chars().filter(|c| !c.is_control()).take(12).collect();
    let name = format!("{label} {}", &instance[..8]);
    let host = format!("cheetah-{}.local.", &instance[..16]);
    let texts =
        [("http", node.http_port.to_string()), ("instance", instance.clone()), ("free", node.free_bytes().to_string())];
    mdns::service(MDNS_SERVICE, &name, &host, SocketAddr::new(listen.ip(), node.nbd_port), &texts)
}
