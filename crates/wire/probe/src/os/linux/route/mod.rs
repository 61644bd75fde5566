//! The route to a host, by rtnetlink.

mod interface;
mod netlink;
pub(super) mod qdisc;

pub(crate) use self::interface::is_virtual_pair;
pub(crate) use self::qdisc::shaper;

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Arphrd, Iff, Ifla, Nda, Nud, RtAddrFamily, RtScope, RtTable, Rta, Rtm, Rtn, Rtprot};
use neli::rtnl::{Ifinfomsg, IfinfomsgBuilder, Ndmsg, NdmsgBuilder, Rtmsg, RtmsgBuilder};
use rustix::io::Errno;

pub(super) use self::netlink::number;
use self::netlink::{address, ask, attribute, family, octets, with};
use crate::clock::Nanos;
use crate::route::{Route, RouteError};

/// How long to wait for a next hop: the kernel retries after a second.
const RESOLVE_TIMEOUT: Duration = Duration::from_millis(1500);

/// How often to look at the neighbour table meanwhile.
const RESOLVE_POLL: Duration = Duration::from_millis(5);

impl Route {
    /// Asks the kernel for the route to `remote`. Sends one UDP packet to `remote` to resolve an unknown next hop's MAC
    /// address, and waits up to 1.5 s for it.
    ///
    /// # Errors
    ///
    /// If there is none, if the next hop is silent, or if the interface has no Ethernet.
    pub fn to(remote: IpAddr) -> Result<Self, RouteError> {
        if matches!(remote, IpAddr::V6(address) if address.is_unicast_link_local()) {
            return Err(RouteError::LinkLocal(remote));
        }
        let failed = |error: io::Error| match Errno::from_io_error(&error) {
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL) => RouteError::None(remote),
            _ => RouteError::Io { remote, error },
        };
        let route = kernel_route_to(remote).map_err(failed)?.ok_or(RouteError::None(remote))?;
        if !matches!(route.kind, Rtn::Unicast | Rtn::Local) {
            return Err(if matches!(route.kind, Rtn::Broadcast | Rtn::Multicast | Rtn::Anycast) {
                RouteError::Many(remote)
            } else {
                RouteError::None(remote)
            });
        }
        let link = link(route.index).map_err(failed)?.ok_or(RouteError::None(remote))?;
        if !link.ethernet {
            return Err(RouteError::NotEthernet(link.name));
        }
        let next_hop = route.gateway.unwrap_or(remote);
        let remote_mac = if link.loopback || !link.resolves {
            [0; 6]
        } else {
            resolve(route.index, next_hop, remote).map_err(failed)?.ok_or(RouteError::Silent { remote, next_hop })?
        };
        Ok(Self {
            interface: link.name,
            index: route.index,
            local: route.local,
            remote,
            gateway: route.gateway,
            local_mac: link.mac,
            remote_mac,
            mtu: link.mtu,
            loopback: link.loopback,
        })
    }
}

/// The kernel's answer to a route request.
struct KernelRoute {
    kind: Rtn,
    index: u32,
    local: IpAddr,
    gateway: Option<IpAddr>,
}

fn kernel_route_to(remote: IpAddr) -> io::Result<Option<KernelRoute>> {
    let question = RtmsgBuilder::default()
        .rtm_family(family(remote))
        .rtm_dst_len(if remote.is_ipv4() { 32 } else { 128 })
        .rtm_src_len(0)
        .rtm_tos(0)
        .rtm_table(RtTable::Unspec)
        .rtm_protocol(Rtprot::Unspec)
        .rtm_scope(RtScope::Universe)
        .rtm_type(Rtn::Unspec)
        .rtattrs([with(Rta::Dst, octets(remote))?].into_iter().collect())
        .build()
        .map_err(io::Error::other)?;
    let routes = ask(Rtm::Getroute, NlmF::empty(), question, |route: &Rtmsg| {
        let address_of = |kind| attribute(route.rtattrs(), kind).and_then(address);
        let kind = *route.rtm_type();
        Some(KernelRoute {
            kind,
            index: attribute(route.rtattrs(), Rta::Oif).and_then(number)?,
            local: if kind == Rtn::Local { remote } else { address_of(Rta::Prefsrc)? },
            gateway: address_of(Rta::Gateway),
        })
    })?;
    Ok(routes.into_iter().next())
}

/// The properties of an interface.
struct InterfaceLink {
    name: String,
    mac: [u8; 6],
    mtu: u32,
    loopback: bool,
    /// Whether its frames begin with an Ethernet header.
    ethernet: bool,
    /// Whether neighbours' MAC addresses are resolved by ARP or neighbour discovery.
    resolves: bool,
}

fn link(index: u32) -> io::Result<Option<InterfaceLink>> {
    let question = IfinfomsgBuilder::default()
        .ifi_family(RtAddrFamily::Unspecified)
        .ifi_index(i32::try_from(index).unwrap_or_default())
        .build()
        .map_err(io::Error::other)?;
    let links = ask(Rtm::Getlink, NlmF::empty(), question, |link: &Ifinfomsg| {
        let name = attribute(link.rtattrs(), Ifla::Ifname)?;
        let mac = attribute(link.rtattrs(), Ifla::Address).and_then(|mac| mac.try_into().ok());
        Some(InterfaceLink {
            name: String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(),
            mac: mac.unwrap_or_default(),
            mtu: attribute(link.rtattrs(), Ifla::Mtu).and_then(number)?,
            loopback: link.ifi_flags().contains(Iff::LOOPBACK),
            ethernet: matches!(link.ifi_type(), Arphrd::Ether | Arphrd::Loopback),
            resolves: !link.ifi_flags().contains(Iff::NOARP),
        })
    })?;
    Ok(links.into_iter().next())
}

/// Returns the next hop's MAC address; makes the kernel resolve it if it is unknown.
fn resolve(index: u32, next_hop: IpAddr, remote: IpAddr) -> io::Result<Option<[u8; 6]>> {
    if let Some(mac) = neighbour(index, next_hop)? {
        return Ok(Some(mac));
    }
    let anywhere = if remote.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0_u16; 8]) };
    // To the discard port, RFC 863. The neighbour table shows the result.
    let _ = UdpSocket::bind((anywhere, 0))?.send_to(&[], (remote, 9));
    let until = Nanos::now() + RESOLVE_TIMEOUT;
    while Nanos::now() < until {
        std::thread::sleep(RESOLVE_POLL);
        if let Some(mac) = neighbour(index, next_hop)? {
            return Ok(Some(mac));
        }
    }
    Ok(None)
}

/// Returns the MAC address in the neighbour table.
fn neighbour(index: u32, address: IpAddr) -> io::Result<Option<[u8; 6]>> {
    let index = i32::try_from(index).unwrap_or_default();
    let question = NdmsgBuilder::default()
        .ndm_family(family(address))
        .ndm_index(index)
        .ndm_state(Nud::empty())
        .ndm_type(Rtn::Unspec)
        .build()
        .map_err(io::Error::other)?;
    let useless = Nud::INCOMPLETE | Nud::FAILED;
    let macs = ask(Rtm::Getneigh, NlmF::DUMP, question, |found: &Ndmsg| {
        let its_address = attribute(found.rtattrs(), Nda::Dst).and_then(netlink::address);
        let usable =
            *found.ndm_index() == index && its_address == Some(address) && !found.ndm_state().intersects(useless);
        let mac = attribute(found.rtattrs(), Nda::Lladdr)?.try_into().ok();
        mac.filter(|_| usable)
    })?;
    Ok(macs.into_iter().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_to_this_machine_is_loopback() {
        for host in ["127.0.0.1", "127.9.9.9"] {
            let route = Route::to(host.parse().unwrap()).unwrap();
            assert!(route.loopback && route.interface == "lo" && route.gateway.is_none(), "{route:?}");
            assert_eq!((route.local_mac, route.remote_mac, route.remote), ([0; 6], [0; 6], host.parse().unwrap()));
            assert_eq!(route.ends().local, route.local);
        }
    }

    #[test]
    fn a_link_local_address_without_its_link_is_refused() {
        let error = Route::to("fe80::1".parse().unwrap()).unwrap_err();
        assert!(matches!(error, RouteError::LinkLocal(_)), "{error:?}");
    }

    #[test]
    fn multicast_and_broadcast_addresses_are_refused() {
        for many in ["255.255.255.255", "224.0.0.251"] {
            let error = Route::to(many.parse().unwrap()).unwrap_err();
            assert!(matches!(error, RouteError::Many(_) | RouteError::None(_)), "{error:?}");
        }
    }
}
