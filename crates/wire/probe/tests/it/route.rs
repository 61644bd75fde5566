//! Routes to hosts.

use cheetah_probe::route::{Route, RouteError};

use crate::net::{FAR, HERE, MACS, NEAR, Net, THERE, THERE_V6};

fn mac(text: &str) -> [u8; 6] {
    let bytes: Vec<_> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

#[test]
fn a_host_on_the_link_is_found_with_its_mac() {
    let Some(net) = Net::pair() else { return };
    for there in [THERE, THERE_V6] {
        // The kernel has not resolved it yet.
        let route = net.on(NEAR, || Route::to(there.parse().unwrap())).unwrap();
        assert_eq!((route.interface.as_str(), route.loopback, route.gateway, route.mtu), (FAR, false, None, 1500));
        assert_eq!((route.local_mac, route.remote_mac), (mac(MACS[0]), mac(MACS[1])));
        assert!(["10.77.0.1", "fd77::1"].contains(&route.local.to_string().as_str()), "{route:?}");
    }
}

#[test]
fn a_host_behind_a_router_is_reached_through_it() {
    let Some(net) = Net::pair() else { return };
    net.ip(NEAR, &["route", "add", "192.0.2.0/24", "via", THERE]);
    let route = net.on(NEAR, || Route::to("192.0.2.7".parse().unwrap())).unwrap();
    assert_eq!(route.gateway, Some(THERE.parse().unwrap()));
    assert_eq!((route.local.to_string().as_str(), route.remote_mac), (HERE, mac(MACS[1])));
}

#[test]
fn each_reason_for_no_route_is_reported() {
    let Some(net) = Net::pair() else { return };
    let error = |host: &str| net.on(NEAR, || Route::to(host.parse().unwrap())).unwrap_err();
    assert!(matches!(error("192.0.2.7"), RouteError::None(_)));
    assert!(matches!(error("10.77.0.255"), RouteError::Many(_)));
    assert!(matches!(error("224.0.0.1"), RouteError::Many(_) | RouteError::None(_)));
    // On the link, and not there.
    assert!(matches!(error("10.77.0.9"), RouteError::Silent { .. }));
    net.ip(NEAR, &["link", "set", FAR, "down"]);
    assert!(matches!(error(THERE), RouteError::None(_)));
}
