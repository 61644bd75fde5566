//! The route to a host: interface, addresses, and the next hop's MAC address. Each system has a `Route::to` of its own.

use std::io;
use std::net::IpAddr;

use crate::frame::Ends;

/// The route to a host.
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
    /// The next-hop router, if the host is not on the link.
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

/// The reason there is no route to a host.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// There is no route.
    #[error("there is no route to {0}: check the address and the network's settings")]
    None(IpAddr),
    /// It is a link-local address without its link.
    #[error("{0} is valid on one link only, and the link is not known: name another address of the host")]
    LinkLocal(IpAddr),
    /// It is a multicast or broadcast address.
    #[error("{0} is a multicast or broadcast address: name the address of one host")]
    Many(IpAddr),
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
    /// This system has no raw sockets that send on time.
    #[error("this system cannot send packets at exact times, which Linux can")]
    NotOffered,
    /// The kernel refused.
    #[error("the kernel does not report the route to {remote}: {error}")]
    Io {
        /// The host.
        remote: IpAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
}

impl Route {
    /// Returns the addresses of packets on this route, with the usual time to live of 64.
    #[must_use]
    pub const fn ends(&self) -> Ends {
        Ends { local_mac: self.local_mac, remote_mac: self.remote_mac, local: self.local, remote: self.remote, ttl: 64 }
    }
}
