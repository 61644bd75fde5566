//! Hosts that break the protocols.

use std::time::Duration;

use cheetah_probe::measure::{Aspect, Measured, Options, Problem, RoundTripProblem};
use cheetah_probe::path::Method;

use crate::net::{FAR, Net, THERE, has, only};
use crate::played::Played;

const NOW: Duration = Duration::ZERO;

#[test]
fn a_host_that_never_answers_gets_few_packets() {
    let Some((net, _played)) = Played::host(|_, _| Vec::new()) else { return };
    let Measured { report, problems, .. } =
        net.probe(THERE, &Options { timeout: Duration::from_millis(100), ..only(&Aspect::ALL) });
    assert!(report.round_trip.is_none() && report.mtu.is_none() && report.capacity.is_none(), "{report:?}");
    assert!(has(&problems, |one| matches!(one, Problem::NoAnswer { .. })), "{problems:?}");
    assert!(report.trains.packets < 200, "{report:?}");
}

#[test]
fn late_answers_count_as_lost_and_are_reported() {
    let late = Duration::from_millis(3400);
    let Some((net, _played)) = Played::host(move |nth, right| vec![(if nth % 4 == 3 { late } else { NOW }, right)])
    else {
        return;
    };
    let Measured { report, problems, .. } = net.probe(THERE, &only(&[Aspect::RoundTrip]));
    let trip = report.round_trip.unwrap();
    assert!(trip.loss >= 0.1 && trip.max_us <= 3e6, "{report:?}");
    let is_late = |one: &Problem| matches!(one, Problem::RoundTrip(RoundTripProblem::Late { answers: 1.., .. }));
    assert!(has(&problems, is_late), "{problems:?}");
}

#[test]
fn answers_that_come_several_times_count_once() {
    let again = Duration::from_millis(3);
    let Some((net, _played)) =
        Played::host(move |_, right| vec![(NOW, right.clone()), (NOW, right.clone()), (again, right)])
    else {
        return;
    };
    let Measured { report, .. } = net.probe(THERE, &only(&[Aspect::RoundTrip, Aspect::Capacity]));
    let trip = report.round_trip.unwrap();
    assert_eq!((trip.answered, trip.loss), (trip.sent, 0.0), "{report:?}");
}

#[test]
fn forged_and_truncated_answers_are_rejected() {
    let Some((net, _played)) = Played::host(|nth, right| {
        let mut forged = right.clone();
        match nth % 5 {
            // Falsify the nonce, the sender or the identifier; cut off the end, or nearly all.
            0 => forged[42] ^= 1,
            1 => forged[29] ^= 4,
            2 => forged[38] ^= 1,
            3 => forged.truncate(50),
            _ => forged.truncate(20),
        }
        vec![(NOW, forged)]
    }) else {
        return;
    };
    let options = Options { timeout: Duration::from_millis(300), ..only(&[Aspect::RoundTrip, Aspect::Mtu]) };
    let Measured { report, problems, .. } = net.probe(THERE, &options);
    assert!(report.round_trip.is_none() && report.mtu.is_none(), "{report:?}");
    assert!(has(&problems, |one| matches!(one, Problem::NoAnswer { .. })), "{problems:?}");
}

#[test]
fn a_host_that_limits_icmp_is_probed_by_tcp() {
    let Some(net) = Net::pair() else { return };
    // The kernel there answers TCP; the test answers echo requests, but only the first few.
    net.set(FAR, "ipv4/icmp_echo_ignore_all", "1");
    let _played = Played::on(&net, |nth, right| if nth < 8 { vec![(NOW, right)] } else { Vec::new() });
    let Measured { report, problems, .. } = net.probe(THERE, &only(&[Aspect::RoundTrip, Aspect::Capacity]));
    let trip = report.round_trip.unwrap();
    assert_eq!((trip.method, trip.loss), (Method::Tcp, 0.0), "{report:?}");
    let limits = |one: &Problem| matches!(one, Problem::RoundTrip(RoundTripProblem::RateLimited { .. }));
    assert!(has(&problems, limits), "{problems:?}");
    assert!(report.capacity.is_none_or(|capacity| capacity.method == Method::Tcp));
}
