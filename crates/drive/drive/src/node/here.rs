//! Whether a node is on this machine.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use cheetah_nbd::uri::Address;

use super::spec::AvailableNode;

/// The first of these nodes that is not on this machine. One whose name cannot be resolved counts as such.
pub async fn first_elsewhere(nodes: &[AvailableNode]) -> Option<&AvailableNode> {
    for node in nodes {
        if !is_here(node.address()).await {
            return Some(node);
        }
    }
    None
}

async fn is_here(address: Option<Address>) -> bool {
    match address {
        Some(Address::Unix(_)) => true,
        Some(Address::Tcp { host, port }) => match tokio::net::lookup_host((host, port)).await {
            Ok(found) => {
                let mut found = found.peekable();
                found.peek().is_some() && found.all(is_own)
            }
            Err(_) => false,
        },
        Some(Address::Inbound(_)) | None => false,
    }
}

/// Whether an address is one of this machine's: a socket can be bound to it.
fn is_own(address: SocketAddr) -> bool {
    address.ip().is_loopback()
        || match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() => false,
            IpAddr::V6(ip) if ip.is_unspecified() || ip.is_multicast() => false,
            _ => UdpSocket::bind(with_port_0(address)).is_ok(),
        }
}

/// The address with a port that the system chooses. It keeps its interface, without which a link-local address cannot be
/// bound.
fn with_port_0(mut address: SocketAddr) -> SocketAddr {
    address.set_port(0);
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loopback_and_sockets_of_files_are_here_and_other_addresses_are_not() {
        let here = |uri: &str| is_here(uri.parse().ok().map(|uri: cheetah_nbd::uri::NbdUri| uri.address));
        for uri in ["nbd://127.0.0.1/", "nbd://[::1]:7/", "nbd://localhost/", "nbd+unix:///?socket=/run/a"] {
            assert!(here(uri).await, "{uri}");
        }
        // Addresses for documentation are no machine's.
        for uri in ["nbd://192.0.2.1/", "nbd://[2001:db8::1]/", "nbd://0.0.0.0/"] {
            assert!(!here(uri).await, "{uri}");
        }
    }
}
