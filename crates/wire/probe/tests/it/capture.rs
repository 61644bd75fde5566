//! Capturing packets, with and without the right to raw sockets.

use std::net::UdpSocket;
use std::time::Duration;

use cheetah_probe::capture::datagram::{Datagram, DatagramAnswer};
use cheetah_probe::capture::{Capture, CaptureError};
use cheetah_probe::clock::Nanos;
use cheetah_probe::frame::{Session, datagram};
use cheetah_probe::route::Route;

use crate::net::{FAR, HERE, NEAR, Net, THERE, THERE_V6};

fn soon() -> Nanos {
    Nanos::now() + Duration::from_secs(60)
}

fn session() -> Session {
    Session { nonce: 7, local_port: 40_000, port: 33_434 }
}

#[test]
fn only_packets_from_the_host_are_captured() {
    let Some(net) = Net::pair() else { return };
    net.ip(FAR, &["address", "add", "10.77.0.3/24", "dev", NEAR]);
    for (there, other) in [(THERE, "10.77.0.3:7"), (THERE_V6, "[fd77::3]:7")] {
        if there == THERE_V6 {
            net.ip(FAR, &["address", "add", "fd77::3/64", "dev", NEAR, "nodad"]);
        }
        let mut capture = net.on(NEAR, || Capture::open(&Route::to(there.parse().unwrap()).unwrap()).unwrap());
        let here = if there == THERE { format!("{HERE}:9") } else { "[fd77::1]:9".to_owned() };
        let before = Nanos::now();
        net.on(FAR, || {
            UdpSocket::bind(other).unwrap().send_to(b"another's", &here).unwrap();
            let bound = if there == THERE { format!("{THERE}:7") } else { format!("[{THERE_V6}]:7") };
            UdpSocket::bind(bound).unwrap().send_to(b"the host's", &here).unwrap();
        });
        let captured = loop {
            let captured = capture.recv_until(soon()).unwrap().unwrap();
            assert!(!captured.frame.ends_with(b"another's"));
            assert!(captured.at >= before && captured.at <= Nanos::now());
            // Packets that its kernel sends unasked, such as neighbour advertisements, are ignored.
            if captured.frame.ends_with(b"the host's") {
                break captured;
            }
        };
        assert!(captured.frame.len() > 28);
        assert!(
            capture
                .recv_until(Nanos::now() + Duration::from_millis(20))
                .unwrap()
                .is_none_or(|last| last.frame.len() > 60)
        );
    }
}

#[test]
fn an_interface_that_goes_down_ends_a_capture() {
    let Some(net) = Net::pair() else { return };
    let mut capture = net.on(NEAR, || Capture::open(&Route::to(THERE.parse().unwrap()).unwrap()).unwrap());
    net.ip(NEAR, &["link", "set", FAR, "down"]);
    assert!(matches!(capture.recv_until(soon()), Err(CaptureError::Down(_))));
}

#[test]
fn an_interface_that_goes_down_ends_unprivileged_sending() {
    let Some(net) = Net::pair() else { return };
    let socket = net.on(NEAR, || Datagram::udp(THERE.parse().unwrap(), 9)).unwrap();
    net.ip(NEAR, &["link", "set", FAR, "down"]);
    let (send, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(socket.send(b"x").is_err()));
    assert_eq!(received.recv_timeout(Duration::from_secs(60)), Ok(true), "sending is retried for ever");
}

/// Sends a request until it is answered, as `ping` does: an address that was just added is not reachable at once.
fn ask(socket: &mut Datagram, request: &[u8], check: impl FnOnce(&DatagramAnswer<'_>)) {
    const PAUSE: Duration = Duration::from_millis(200);
    let deadline = soon();
    loop {
        socket.send(request).unwrap();
        if let Some(answer) = socket.recv_until(Nanos::now() + PAUSE).unwrap() {
            return check(&answer);
        }
        assert!(Nanos::now() < deadline, "no answer");
    }
}

#[test]
fn echo_needs_no_privilege_if_the_group_may_ping() {
    let Some(net) = Net::pair() else { return };
    for there in [THERE, THERE_V6] {
        let (ipv4, session) = (there == THERE, session());
        net.set(NEAR, "ipv4/ping_group_range", "0 2147483647");
        net.on(NEAR, || {
            let mut socket = Datagram::icmp(there.parse().unwrap()).unwrap();
            let sent = Nanos::now();
            ask(&mut socket, &datagram::echo_request(ipv4, &session, 5, 100), |answer| {
                assert_eq!(datagram::echo_reply(ipv4, &session, answer.message), Some(5));
                assert_eq!((answer.error, answer.ttl), (None, Some(64)));
                assert!(answer.at >= sent);
            });
        });
        net.set(NEAR, "ipv4/ping_group_range", "1 0");
        let refused = net.on(NEAR, || Datagram::icmp(there.parse().unwrap()).err().unwrap());
        assert!(matches!(refused, CaptureError::NoPing), "{refused}");
    }
}

#[test]
fn closed_ports_and_exceeded_ttls_are_reported() {
    let Some(net) = Net::pair() else { return };
    net.ip(NEAR, &["route", "add", "192.0.2.0/24", "via", THERE]);
    net.ip(FAR, &["route", "add", "192.0.2.0/24", "dev", NEAR]);
    net.set(FAR, "ipv4/ip_forward", "1");
    net.on(NEAR, || {
        let session = session();
        let payload = session.payload(3, 60);
        let mut socket = Datagram::udp(THERE.parse().unwrap(), 33_434).unwrap();
        // The second is sent although the first has come back as an error.
        for _ in 0..2 {
            socket.send(&payload).unwrap();
            let answer = socket.recv_until(soon()).unwrap().unwrap();
            let error = answer.error.unwrap();
            assert_eq!((error.remote, error.kind, error.code, error.from), (true, 3, 3, Some(THERE.parse().unwrap())));
            assert_eq!(session.sequence(answer.message), Some(3));
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut socket = Datagram::udp("192.0.2.9".parse().unwrap(), 33_434).unwrap();
        socket.set_ttl(1).unwrap();
        socket.send(&payload).unwrap();
        let error = socket.recv_until(soon()).unwrap().unwrap().error.unwrap();
        assert_eq!((error.kind, error.code, error.from), (11, 0, Some(THERE.parse().unwrap())));
    });
}

#[test]
fn a_packet_too_large_for_the_interface_is_refused() {
    let Some(net) = Net::pair() else { return };
    for there in [THERE, THERE_V6] {
        net.on(NEAR, || {
            let socket = Datagram::udp(there.parse().unwrap(), 33_434).unwrap();
            socket.set_dont_fragment().unwrap();
            let refused = socket.send(&[0; 1500]).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::MSGSIZE.raw_os_error()));
            socket.send(&[0; 1000]).unwrap();
        });
    }
}

#[test]
fn a_silent_host_is_waited_for_until_the_deadline_only() {
    let Some(net) = Net::pair() else { return };
    net.on(NEAR, || {
        let deadline = || Nanos::now() + Duration::from_millis(30);
        let mut capture = Capture::open(&Route::to(THERE.parse().unwrap()).unwrap()).unwrap();
        let mut socket = Datagram::udp(THERE.parse().unwrap(), 33_434).unwrap();
        let before = Nanos::now();
        assert_eq!(socket.recv_until(deadline()).unwrap(), None);
        while capture.recv_until(deadline()).unwrap().is_some() {}
        assert!(Nanos::now().since(before) >= Duration::from_millis(55));
    });
}
