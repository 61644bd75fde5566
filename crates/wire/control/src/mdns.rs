//! Announcing a server by mDNS, and finding announced ones.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mdns_sd::{IfKind, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};
use tokio::time::{Instant, timeout_at};

/// The most announcements that are considered.
const ANNOUNCED_MAX: usize = 1024;
/// How long to wait until the goodbye has been sent.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

/// A server's announcement. Dropping it sends a goodbye.
pub struct Announcement {
    daemon: ServiceDaemon,
    fullname: String,
}

impl Announcement {
    /// Announces a server that listens at `listen`: on all interfaces, or on that of the address, so that a server on
    /// loopback is announced on its own machine only.
    ///
    /// # Errors
    ///
    /// If the library's thread cannot be started, or refuses the service.
    pub fn start(service: ServiceInfo, listen: IpAddr) -> mdns_sd::Result<Self> {
        let daemon = ServiceDaemon::new()?;
        if !listen.is_unspecified() {
            daemon.disable_interface(IfKind::All)?;
            daemon.enable_interface(match listen {
                IpAddr::V4(ip) if ip.is_loopback() => IfKind::LoopbackV4,
                IpAddr::V6(ip) if ip.is_loopback() => IfKind::LoopbackV6,
                ip => IfKind::Addr(ip),
            })?;
        }
        let fullname = service.get_fullname().to_owned();
        daemon.register(service)?;
        Ok(Self { daemon, fullname })
    }

    /// Whether the library's thread is running.
    pub fn is_running(&self) -> bool {
        self.daemon.status().is_ok()
    }

    /// Replaces the announcement of a service of the same name. Returns whether it was replaced.
    pub fn update(&self, service: ServiceInfo) -> bool {
        self.daemon.register(service).is_ok()
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // If this fails, the announcement remains in caches for its time to live.
        if let Ok(done) = self.daemon.unregister(&self.fullname) {
            let _ = done.recv_timeout(GOODBYE_TIMEOUT);
        }
        let _ = self.daemon.shutdown();
    }
}

/// A service of the kind `kind` for a server at `listen`, on a machine that is named `host` in the announcement, with
/// these TXT properties.
///
/// # Errors
///
/// If the library refuses a name.
pub fn service(
    kind: &str,
    name: &str,
    host: &str,
    listen: SocketAddr,
    texts: &[(&str, String)],
) -> mdns_sd::Result<ServiceInfo> {
    let any = listen.ip().is_unspecified();
    let ip = if any { String::new() } else { listen.ip().to_string() };
    let service = ServiceInfo::new(kind, name, host, ip.as_str(), listen.port(), texts)?;
    Ok(if any { service.enable_addr_auto() } else { service })
}

/// The services of a kind that are announced within `duration`, by name.
///
/// # Errors
///
/// If the library's thread cannot be started.
pub async fn browse(kind: &str, duration: Duration) -> mdns_sd::Result<Vec<ResolvedService>> {
    let daemon = ServiceDaemon::new()?;
    let events = daemon.browse(kind)?;
    let until = Instant::now() + duration;
    let mut announced: BTreeMap<String, Box<ResolvedService>> = BTreeMap::new();
    while let Ok(Ok(event)) = timeout_at(until, events.recv_async()).await {
        match event {
            ServiceEvent::ServiceResolved(service) if announced.len() < ANNOUNCED_MAX => {
                announced.insert(service.get_fullname().to_owned(), service);
            }
            ServiceEvent::ServiceRemoved(_, name) => drop(announced.remove(&name)),
            _ => {}
        }
    }
    // A failure is harmless: the daemon's thread ends with the process.
    let _ = daemon.shutdown();
    Ok(announced.into_values().map(|service| *service).collect())
}

/// The addresses of a service: those of other machines first, then IPv4 first.
pub fn addresses(service: &ResolvedService) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = service.get_addresses().iter().map(mdns_sd::ScopedIp::to_ip_addr).collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6(), *address));
    addresses
}
