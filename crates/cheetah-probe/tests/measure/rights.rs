//! Without rights.

use cheetah_probe::measure::{Aspect, Options, Probe};
use cheetah_probe::path::{Method, PathReport};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::net::{FAR, NEAR, Net, THERE, THERE_V6, only, says};

/// Measures as somebody who has no rights.
fn probe(net: &Net, address: &str, options: Options) -> PathReport {
    let probe = Probe::new(address, address.parse().unwrap(), options);
    net.on(NEAR, || {
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
        probe.run(&Default::default(), &mut |_| {})
    })
}

#[test]
fn without_rights_connecting_tells_round_trips_and_what_lacks_is_said() {
    let Some(net) = Net::pair() else { return };
    net.set(NEAR, "ipv4/ping_group_range", "1 0");
    for address in [THERE, THERE_V6] {
        let report = probe(&net, address, only(&Aspect::ALL));
        let trip = report.round_trip.unwrap();
        assert_eq!((trip.method, trip.answered), (Method::TcpConnect, trip.sent), "{report:?}");
        assert!(says(&report, "setcap cap_net_raw") && says(&report, "the capacity cannot be measured"), "{report:?}");
        assert!(report.backend.is_none() && report.capacity.is_none() && report.hops.is_empty(), "{report:?}");
        assert_eq!(report.mtu.map(|mtu| mtu.bytes), Some(1500), "{report:?}");
    }
}

#[test]
fn without_rights_an_icmp_socket_is_used_where_one_is_permitted() {
    let Some(net) = Net::pair() else { return };
    net.set(NEAR, "ipv4/ping_group_range", "0 2147483647");
    for address in [THERE, THERE_V6] {
        let report = probe(&net, address, only(&[Aspect::RoundTrip]));
        assert_eq!(report.round_trip.map(|trip| (trip.method, trip.loss)), Some((Method::Icmp, 0.0)), "{report:?}");
    }
}

#[test]
fn without_rights_a_silent_host_is_given_up_soon() {
    let Some(net) = Net::pair() else { return };
    net.ip(FAR, &["route", "add", "blackhole", "10.77.0.1/32"]);
    let report = probe(&net, THERE, only(&[Aspect::RoundTrip, Aspect::Mtu]));
    assert!(report.round_trip.is_none() && says(&report, "--port"), "{report:?}");
}
