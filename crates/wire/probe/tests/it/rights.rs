//! Measurements without the right to raw sockets.

use std::time::Duration;

use cheetah_error::next::Measure;
use cheetah_probe::capture::CaptureError;
use cheetah_probe::limits::Limits;
use cheetah_probe::measure::{Aspect, Event, Measured, Options, Probe, Problem, Stop};
use cheetah_probe::path::Method;
use cheetah_probe::send::SendError;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::net::{FAR, NEAR, Net, THERE, THERE_V6, has, only};

/// Measures as a user without privileges.
fn probe(net: &Net, address: &str, options: Options) -> Measured {
    probe_heard(net, address, options, &mut |_| {})
}

fn probe_heard(net: &Net, address: &str, options: Options, hear: &mut (dyn FnMut(Event) + Send)) -> Measured {
    let probe = Probe::new(address, address.parse().unwrap(), options);
    net.on(NEAR, || {
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
        probe.run(&Default::default(), &mut |event| hear(event))
    })
}

#[test]
fn without_rights_connecting_measures_round_trips_and_the_rest_is_reported() {
    let Some(net) = Net::pair() else { return };
    net.set(NEAR, "ipv4/ping_group_range", "1 0");
    for address in [THERE, THERE_V6] {
        let Measured { report, problems, .. } = probe(&net, address, only(&Aspect::ALL));
        let trip = report.round_trip.unwrap();
        assert_eq!((trip.method, trip.answered), (Method::TcpConnect, trip.sent), "{report:?}");
        let lacks_right =
            |why: &Stop| matches!(why, Stop::Send(SendError::NotPermitted) | Stop::Capture(CaptureError::NotPermitted));
        assert!(has(&problems, |one| matches!(one, Problem::NoRawSockets(why) if lacks_right(why))), "{problems:?}");
        assert!(has(&problems, |one| matches!(one, Problem::NeedsRawSockets(Aspect::Capacity))), "{problems:?}");
        assert!(report.backend.is_none() && report.capacity.is_none() && report.hops.is_empty(), "{report:?}");
        assert_eq!(report.mtu.map(|mtu| mtu.bytes), Some(1500), "{report:?}");
    }
}

#[test]
fn without_rights_an_icmp_socket_is_used_where_one_is_permitted() {
    let Some(net) = Net::pair() else { return };
    net.set(NEAR, "ipv4/ping_group_range", "0 2147483647");
    for address in [THERE, THERE_V6] {
        let Measured { report, .. } = probe(&net, address, only(&[Aspect::RoundTrip]));
        assert_eq!(report.round_trip.map(|trip| (trip.method, trip.loss)), Some((Method::Icmp, 0.0)), "{report:?}");
    }
}

#[test]
fn without_rights_a_silent_host_costs_little_time() {
    let Some(net) = Net::pair() else { return };
    net.ip(FAR, &["route", "add", "blackhole", "10.77.0.1/32"]);
    let options = Options { timeout: Duration::from_millis(100), ..only(&[Aspect::RoundTrip, Aspect::Mtu]) };
    let Measured { report, next, .. } = probe(&net, THERE, options);
    assert!(report.round_trip.is_none() && next.contains(&Measure::NameOpenPort.into()), "{report:?}");
}

#[test]
fn without_rights_partial_results_are_kept_and_limits_hold() {
    let Some(net) = Net::pair() else { return };
    net.set(NEAR, "ipv4/ping_group_range", "0 2147483647");
    let mut options = only(&[Aspect::RoundTrip, Aspect::Mtu]);
    options.limits = Limits { packets_max: 5, ..Limits::default() };
    let Measured { report, problems, .. } = probe(&net, THERE, options);
    assert_eq!((report.trains.packets, report.round_trip.map(|trip| trip.answered)), (5, Some(5)), "{report:?}");
    let ended = |one: &Problem| matches!(one, Problem::AspectEndedEarly { why: Stop::Exhausted, .. });
    assert!(has(&problems, ended), "{problems:?}");
    let Measured { report, problems, .. } = probe_heard(&net, THERE, only(&[Aspect::RoundTrip]), &mut |event| {
        if matches!(event, Event::Progress { done: 5, .. }) {
            net.ip(NEAR, &["link", "set", FAR, "down"]);
        }
    });
    assert_eq!(report.round_trip.map(|trip| (trip.answered, trip.loss)), Some((5, 0.0)), "{report:?}");
    let ended = |one: &Problem| matches!(one, Problem::AspectEndedEarly { why: Stop::Unsent(_), .. });
    assert!(has(&problems, ended), "{problems:?}");
}
