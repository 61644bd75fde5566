//! Paths of real kernels.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cheetah_probe::advice::advise;
use cheetah_probe::capture::CaptureError;
use cheetah_probe::limits::Limits;
use cheetah_probe::measure::{Aspect, AvailableProblem, CapacityProblem, Event, Measured, Options, Problem, Stop};
use cheetah_probe::path::{Method, PathReport};
use cheetah_probe::send::SendError;

use crate::net::{FAR, NEAR, Net, THERE, THERE_V6, has, only};
use cheetah_testing::skip;

const ROUTER: &str = "router";
const BEHIND: &str = "10.78.0.2";
const BEHIND_V6: &str = "fd78::2";

/// The far machine behind a router.
fn routed() -> Option<Net> {
    let mut net = Net::new()?;
    net.machines(&[NEAR, ROUTER, FAR]);
    net.link((NEAR, "10.77.0.1", "fd77::1"), (ROUTER, "10.77.0.2", "fd77::2"));
    net.link((ROUTER, "10.78.0.1", "fd78::1"), (FAR, BEHIND, BEHIND_V6));
    net.set(ROUTER, "ipv4/ip_forward", "1");
    net.set(ROUTER, "ipv6/conf/all/forwarding", "1");
    for (machine, address, address6) in [(NEAR, "10.77.0.2", "fd77::2"), (FAR, "10.78.0.1", "fd78::1")] {
        net.ip(machine, &["route", "add", "default", "via", address]);
        net.ip(machine, &["-6", "route", "add", "default", "via", address6]);
    }
    Some(net)
}

/// Whether the capacity is plausible or, on a machine that is too busy, not known for a reason that is told.
fn is_measured_or_unknown(report: &PathReport, problems: &[Problem]) -> bool {
    report.capacity.as_ref().map_or_else(|| has(problems, is_unknown), |capacity| capacity.bits_per_s > 1e6)
}

/// Whether a problem is that the probes do not tell the capacity.
fn is_unknown(problem: &Problem) -> bool {
    matches!(problem, Problem::Capacity(CapacityProblem::Unknown(_)))
}

/// Whether a problem is that the limit of packets is reached.
fn is_exhausted(problem: &Problem) -> bool {
    matches!(problem, Problem::EndedEarly(Stop::Exhausted))
}

#[test]
fn every_aspect_of_a_link_is_measured_within_the_limits() {
    let Some(net) = Net::pair() else { return };
    for address in [THERE, THERE_V6] {
        let Measured { report, problems, .. } = net.probe(address, &only(&Aspect::ALL));
        let trip = report.round_trip.unwrap();
        assert_eq!((trip.method, trip.answered, trip.loss), (Method::Icmp, trip.sent, 0.0), "{report:?}");
        assert!(trip.min_us > 0.0, "{trip:?}");
        assert_eq!(report.mtu.map(|mtu| (mtu.bytes, mtu.reported)), Some((1500, true)), "{report:?}");
        assert_eq!(report.hops, [], "{report:?}");
        assert!(is_measured_or_unknown(&report, &problems), "{report:?}");
        let limits = Limits::default();
        assert!(report.trains.packets <= limits.packets_max && report.trains.sent > 0, "{report:?}");
        assert_eq!((report.interface.as_deref(), report.address.to_string()), (Some(FAR), address.to_owned()));
        assert!(report.backend.is_some() && report.started.ends_with('Z'));
    }
}

#[test]
fn routers_and_their_smaller_links_are_found() {
    let Some(net) = routed() else { return };
    net.ip(ROUTER, &["link", "set", FAR, "mtu", "1400"]);
    net.ip(FAR, &["link", "set", ROUTER, "mtu", "1400"]);
    for (address, router) in [(BEHIND, "10.77.0.2"), (BEHIND_V6, "fd77::2")] {
        let Measured { report, problems, .. } = net.probe(address, &only(&[Aspect::Mtu, Aspect::Hops]));
        assert_eq!(report.mtu.map(|mtu| (mtu.bytes, mtu.reported)), Some((1400, true)), "{report:?}");
        let hops: Vec<_> = report.hops.iter().map(|hop| (hop.ttl, hop.address.map(|from| from.to_string()))).collect();
        assert_eq!(hops, [(1, Some(router.to_owned()))], "{report:?}");
        assert!(problems.is_empty(), "{problems:?}");
    }
}

#[test]
fn capacity_alone_is_measured_over_smaller_links_too() {
    let Some(net) = routed() else { return };
    net.ip(ROUTER, &["link", "set", FAR, "mtu", "1400"]);
    net.ip(FAR, &["link", "set", ROUTER, "mtu", "1400"]);
    let Measured { report, problems, .. } = net.probe(BEHIND, &only(&[Aspect::Capacity]));
    assert!(report.trains.sent > 0 && is_measured_or_unknown(&report, &problems), "{report:?}");
}

#[test]
fn the_mtu_of_a_link_that_drops_silently_is_found_by_trying() {
    let Some(net) = routed() else { return };
    // The router does not know that the other end takes no more.
    net.ip(FAR, &["link", "set", ROUTER, "mtu", "1492"]);
    // Most sizes are not answered.
    let Measured { report, .. } =
        net.probe(BEHIND, &Options { timeout: Duration::from_millis(300), ..only(&[Aspect::Mtu]) });
    let mtu = report.mtu.unwrap();
    // The kernel passes packets that exceed the interface's MTU by a VLAN tag.
    assert!((1492..=1496).contains(&mtu.bytes) && !mtu.reported, "{report:?}");
}

#[test]
fn every_method_measures_round_trips() {
    let Some(net) = Net::pair() else { return };
    for address in [THERE, THERE_V6] {
        for method in [Method::Icmp, Method::Tcp, Method::Udp, Method::TcpConnect] {
            let mut options = only(&[Aspect::RoundTrip]);
            (options.method, options.probes) = (Some(method), 5);
            options.raw = method != Method::TcpConnect;
            let Measured { report, .. } = net.probe(address, &options);
            assert_eq!(
                report.round_trip.map(|trip| (trip.method, trip.answered > 0)),
                Some((method, true)),
                "{report:?}"
            );
        }
    }
}

#[test]
fn capacity_is_measured_by_tcp_and_by_icmp() {
    let Some(net) = Net::pair() else { return };
    for method in [Method::Icmp, Method::Tcp] {
        let mut options = only(&[Aspect::Capacity]);
        options.method = Some(method);
        let Measured { report, problems, .. } = net.probe(THERE, &options);
        assert!(report.capacity.as_ref().is_none_or(|capacity| capacity.method == method), "{report:?}");
        assert!(is_measured_or_unknown(&report, &problems), "{report:?}");
    }
}

#[test]
fn measuring_this_machine_is_reported() {
    let Some(net) = Net::pair() else { return };
    let Measured { report, problems, .. } = net.probe("127.0.0.1", &only(&[Aspect::RoundTrip, Aspect::Mtu]));
    assert!(has(&problems, |one| matches!(one, Problem::NoRawSockets(Stop::Loopback))), "{problems:?}");
    assert!(report.round_trip.is_some(), "{problems:?}");
}

#[test]
fn nothing_is_sent_beyond_the_limits() {
    let Some(net) = Net::pair() else { return };
    let mut options = only(&Aspect::ALL);
    options.limits = Limits { packets_max: 60, ..Limits::default() };
    let Measured { report, problems, .. } = net.probe(THERE, &options);
    assert!(report.trains.packets <= 60 && has(&problems, is_exhausted), "{report:?} {problems:?}");
    // The report has the measurements made so far.
    assert!(report.round_trip.is_some(), "{report:?}");
    options.limits.packets_max = 20;
    let Measured { report, .. } = net.probe(THERE, &options);
    assert!(report.trains.packets == 20 && report.round_trip.is_some_and(|trip| trip.loss == 0.0), "{report:?}");
    // Pairs alone may all have arrived in batches.
    (options.aspects, options.method) = (vec![Aspect::Capacity], Some(Method::Tcp));
    options.limits.packets_max = 80;
    let Measured { report, problems, .. } = net.probe(THERE, &options);
    assert!(report.capacity.is_none() && has(&problems, is_exhausted) && has(&problems, is_unknown), "{problems:?}");
}

#[test]
fn an_interface_that_goes_down_midway_ends_the_measurement_with_a_reason() {
    let Some(net) = Net::pair() else { return };
    let Measured { report, problems, .. } = net.probe_heard(THERE, &only(&Aspect::ALL), |event, _| {
        if matches!(event, Event::Progress { aspect: Aspect::Capacity, done: 5, .. }) {
            net.ip(NEAR, &["link", "set", FAR, "down"]);
        }
    });
    let is_down = |why: &Stop| matches!(why, Stop::Send(SendError::Down { .. }) | Stop::Capture(CaptureError::Down(_)));
    assert!(has(&problems, |one| matches!(one, Problem::EndedEarly(why) if is_down(why))), "{problems:?}");
    assert!(report.round_trip.is_some() && report.capacity.is_none(), "{report:?}");
}

#[test]
fn an_interrupted_measurement_reports_its_results_so_far() {
    let Some(net) = Net::pair() else { return };
    let Measured { report, problems, .. } = net.probe_heard(THERE, &only(&Aspect::ALL), |event, cancel| {
        if *event == Event::Begins(Aspect::Capacity) {
            cancel.store(true, Ordering::Relaxed);
        }
    });
    assert!(has(&problems, |one| matches!(one, Problem::EndedEarly(Stop::Cancelled))), "{problems:?}");
    assert!(report.round_trip.is_some() && report.capacity.is_none(), "{report:?}");
}

/// Limits the link to the far machine to 40 Mbit/s, if tc is available.
fn narrow(net: &Net) -> bool {
    shape(net, ROUTER, FAR)
}

/// Limits what a machine sends through an interface to 40 Mbit/s, if tc is available.
fn shape(net: &Net, machine: &str, interface: &str) -> bool {
    let shaper = ["qdisc", "add", "dev", interface, "root", "tbf", "rate", "40mbit", "burst", "1600", "limit", "200k"];
    let shaped = net.on(machine, || Command::new("tc").args(shaper).output());
    let done = shaped.is_ok_and(|ran| ran.status.success());
    if !done {
        skip("needs tc, and the kernel's token bucket filter");
    }
    done
}

#[test]
fn a_host_that_becomes_silent_is_not_taken_for_a_full_path() {
    let Some(net) = routed() else { return };
    if !narrow(&net) {
        return;
    }
    let mut options = only(&[Aspect::Capacity, Aspect::Available]);
    (options.method, options.timeout) = (Some(Method::Icmp), Duration::from_millis(100));
    let Measured { report, problems, .. } = net.probe_heard(BEHIND, &options, |event, _| {
        if *event == Event::Begins(Aspect::Available) {
            net.set(FAR, "ipv4/icmp_echo_ignore_all", "1");
        }
    });
    assert!(is_measured_or_unknown(&report, &problems) && report.available.is_none(), "{report:?}");
    let is_silent = |one: &Problem| matches!(one, Problem::Available(AvailableProblem::Silent { .. }));
    assert!(report.capacity.is_none() || has(&problems, is_silent), "{problems:?}");
}

#[test]
fn no_capacity_is_reported_where_this_machine_shapes_what_others_send() {
    let Some(net) = Net::pair() else { return };
    if !shape(&net, NEAR, FAR) {
        return;
    }
    let Measured { report, problems, .. } = net.probe(THERE, &only(&[Aspect::Capacity, Aspect::Available]));
    assert!(report.capacity.is_none() && report.available.is_none(), "{report:?}");
    let is_shaped =
        |one: &Problem| matches!(one, Problem::Capacity(CapacityProblem::Shaped { shaper, .. }) if shaper == "tbf");
    assert!(has(&problems, is_shaped), "{problems:?}");
}

#[test]
fn a_narrow_link_behind_a_router_is_measured_and_gets_advice() {
    let Some(net) = routed() else { return };
    if !narrow(&net) {
        return;
    }
    let Measured { report, problems, .. } = net.probe(BEHIND, &only(&[Aspect::Capacity, Aspect::Available]));
    assert!(is_measured_or_unknown(&report, &problems), "{report:?}");
    let Some(capacity) = report.capacity.clone() else { return };
    assert!((20e6..80e6).contains(&capacity.bits_per_s) && !capacity.at_least, "{report:?}");
    let is_possible = |bits_per_s: f64| bits_per_s > 1e6 && bits_per_s < 80e6;
    assert!(report.available.is_none_or(|available| is_possible(available.bits_per_s)), "{report:?}");
    let advice = advise(&report, 1 << 30).unwrap();
    assert!(advice.compress && (75.0..3000.0).contains(&advice.raw_s), "{advice:?}");
}
