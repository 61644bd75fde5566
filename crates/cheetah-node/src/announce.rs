//! Announcing the node by mDNS, so that `--nodes auto` finds it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mdns_sd::{IfKind, ServiceDaemon, ServiceInfo};
use tokio::time::sleep;

use crate::node::Shared;
use cheetah_control::api::MDNS_SERVICE;

/// The interval between updates of the announced free memory.
const REFRESH: Duration = Duration::from_secs(5);
/// How long to wait until the goodbye has been sent.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

/// A node's announcement. Dropping it sends a goodbye.
pub(crate) struct Announcement {
    daemon: ServiceDaemon,
    fullname: String,
}

impl Announcement {
    /// Announces `node`, whose NBD server listens on `listen`: on all interfaces, or on that of the address, so that a node on
    /// loopback is announced on its own machine only.
    pub fn start(node: &Shared, listen: SocketAddr) -> mdns_sd::Result<Self> {
        let daemon = ServiceDaemon::new()?;
        if !listen.ip().is_unspecified() {
            daemon.disable_interface(IfKind::All)?;
            daemon.enable_interface(match listen.ip() {
                IpAddr::V4(ip) if ip.is_loopback() => IfKind::LoopbackV4,
                IpAddr::V6(ip) if ip.is_loopback() => IfKind::LoopbackV6,
                ip => IfKind::Addr(ip),
            })?;
        }
        let service = service(node, listen)?;
        let fullname = service.get_fullname().to_owned();
        daemon.register(service)?;
        Ok(Self { daemon, fullname })
    }

    /// Keeps the announcement current, and replaces it if its thread has ended. Never finishes.
    pub async fn refresh(mut self, node: Arc<Shared>, listen: SocketAddr) {
        let mut announced = node.free_bytes();
        loop {
            sleep(REFRESH).await;
            if self.daemon.status().is_err() {
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
                && self.daemon.register(service).is_ok()
            {
                announced = free;
            }
        }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // At worst, the announcement stays in caches for its time to live.
        if let Ok(done) = self.daemon.unregister(&self.fullname) {
            let _ = done.recv_timeout(GOODBYE_TIMEOUT);
        }
        let _ = self.daemon.shutdown();
    }
}

fn service(node: &Shared, listen: SocketAddr) -> mdns_sd::Result<ServiceInfo> {
    let instance = node.instance.to_string();
    // Two nodes may have the same name, even on one machine; the instance distinguishes them.
    let label: String = node.name.chars().filter(|c| !c.is_control()).take(12).collect();
    let name = format!("{label} {}", &instance[..8]);
    let host = format!("cheetah-{}.local.", &instance[..16]);
    let text =
        [("http", node.http_port.to_string()), ("instance", instance.clone()), ("free", node.free_bytes().to_string())];
    let any = listen.ip().is_unspecified();
    let ip = if any { String::new() } else { listen.ip().to_string() };
    let service = ServiceInfo::new(MDNS_SERVICE, &name, &host, ip.as_str(), node.nbd_port, &text[..])?;
    Ok(if any { service.enable_addr_auto() } else { service })
}
