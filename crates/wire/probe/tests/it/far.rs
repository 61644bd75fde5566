//! A far end on loopback: its answers, and its refusals.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::routing::get;
use axum::{Extension, Json};
use cheetah_probe::far::limits::{BULKS_MAX, LIMITS, RECEIVERS_PER_CALLER_MAX};
use cheetah_probe::far::measure::{FarRequest, NoFigure, NotMeasured, Quantity, measure};
use cheetah_probe::far::{Caller, FarClient, FarConfig, FarError, SendRequest, Token, router, tag};
use cheetah_probe::schedule::Pattern;
use tokio::net::{TcpListener, TcpSocket};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Another address of this machine.
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// No operation takes this long, unless the machine stalls.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test on its own threads.
fn run(test: impl AsyncFn()) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    runtime.block_on(test());
}

/// A far end that takes every caller for `peer`.
async fn far_end(sends: bool, peer: IpAddr) -> FarClient<'static> {
    let caller = Caller { peer: SocketAddr::new(peer, 9), here: SocketAddr::new(LOOPBACK, 9) };
    let app = router(FarConfig { name: "far".into(), sends }).layer(Extension(caller));
    let listener = TcpListener::bind((LOOPBACK, 0)).await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    FarClient::new(address, None)
}

/// The status of a request that is made by hand.
async fn status(far: FarClient<'static>, method: &'static str, path: String, body: String, kind: &'static str) -> u16 {
    let asked = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(far.address()).expect("connected");
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("sent");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("answered");
        String::from_utf8_lossy(&answer).rsplit(' ').next().and_then(|code| code.parse().ok())
    });
    asked.await.expect("no panic").expect("a status")
}

async fn post(far: FarClient<'static>, path: &str, body: &str) -> u16 {
    status(far, "POST", path.into(), body.into(), "application/json").await
}

fn token(text: &str) -> Token {
    text.parse().expect("a token")
}

#[test]
fn tcp_rates_are_measured_and_a_missing_rate_of_trains_is_reported() {
    run(async || {
        let far = far_end(true, LOOPBACK).await;
        let mut problems = Vec::new();
        let measured = measure(far, FarRequest::default(), |one| problems.push(one)).await.expect("it answers");
        assert!(measured.name.starts_with("far ("), "{}", measured.name);
        let rates = [
            measured.to_bits_per_s,
            measured.from_bits_per_s,
            measured.tcp_to_bits_per_s,
            measured.tcp_from_bits_per_s,
        ];
        assert!(
            measured.tcp_to_bits_per_s.is_some() && measured.tcp_from_bits_per_s.is_some(),
            "{measured:?}: {problems:?}"
        );
        // A loaded machine may deliver no usable train; the rate of loopback is unknown, but not low.
        assert!(rates.iter().flatten().all(|rate| *rate > 1e7), "{measured:?}");
        let quantities = [Quantity::CapacityThere, Quantity::CapacityBack, Quantity::TcpThere, Quantity::TcpBack];
        let missing: Vec<_> = quantities.into_iter().zip(rates).filter(|(_, rate)| rate.is_none()).collect();
        let missing: Vec<_> = missing.into_iter().map(|(what, _)| what).collect();
        let named: Vec<_> = problems.iter().map(|one| one.what).collect();
        assert_eq!(missing, named, "{measured:?}: {problems:?}");
    });
}

#[test]
fn a_train_is_stamped_and_packets_of_others_are_ignored() {
    run(async || {
        let far = far_end(true, LOOPBACK).await;
        let waiting = far.receive(10, LIMITS.seconds_max).await.expect("waiting");
        let there = SocketAddr::new(LOOPBACK, waiting.port);
        let stranger = UdpSocket::bind((OTHER, 0)).expect("a socket");
        let ours = UdpSocket::bind((LOOPBACK, 0)).expect("a socket");
        let packet = |token, seq| tag::payload(token, seq, 500, true);
        // With the token from elsewhere, from here without it, cut short, and empty.
        stranger.send_to(&packet(waiting.token, 1), there).expect("sent");
        ours.send_to(&packet(Token(!waiting.token.0), 2), there).expect("sent");
        ours.send_to(&packet(waiting.token, 3)[..11], there).expect("sent");
        ours.send_to(&[], there).expect("sent");
        for seq in [4, 5, 5] {
            ours.send_to(&packet(waiting.token, seq), there).expect("sent");
        }
        let late = Instant::now() + PATIENCE;
        let mut heard = far.arrivals(waiting.token).await.expect("some");
        while heard.packets.len() < 3 && Instant::now() < late {
            tokio::time::sleep(Duration::from_millis(10)).await;
            heard = far.arrivals(waiting.token).await.expect("some");
        }
        let seqs: Vec<_> = heard.packets.iter().map(|(seq, ..)| *seq).collect();
        assert_eq!(seqs, [4, 5, 5], "duplicates are left to the estimator");
        assert!(
            heard.packets.iter().all(|(.., bytes)| *bytes == 500) && heard.packets.is_sorted_by_key(|(_, at, _)| *at)
        );
        assert!(!heard.ended);
        far.forget(waiting.token).await.expect("forgotten");
        assert!(far.arrivals(waiting.token).await.is_err());
    });
}

#[test]
fn trains_are_sent_to_the_caller_only() {
    run(async || {
        let far = far_end(true, OTHER).await;
        let (right, wrong) =
            (UdpSocket::bind((OTHER, 0)).expect("a socket"), UdpSocket::bind((LOOPBACK, 0)).expect("a socket"));
        let port = right.local_addr().expect("its address").port();
        right.set_read_timeout(Some(PATIENCE)).expect("set");
        let token = token("0123456789abcdef");
        let pattern: Pattern = "train:5@1ms".parse().expect("a pattern");
        let sent = far.send(&SendRequest::new(&pattern, 300, port, token)).await.expect("sent");
        assert_eq!((sent.due_ns.len(), sent.left_ns.len()), (5, 5));
        assert!(sent.left_ns.iter().zip(&sent.due_ns).all(|(left, due)| left >= due));
        for seq in 0..5 {
            let mut packet = [0; 2000];
            let len = right.recv(&mut packet).expect("came");
            assert_eq!((tag::seq_of(token, &packet[..len]), tag::ip_bytes(len, true)), (Some(seq), 300));
        }
        // A request cannot name an address.
        let port = wrong.local_addr().expect("its address").port();
        let body =
            format!(r#"{{"pattern":"single","ip_bytes":300,"port":{port},"token":"{token}","address":"127.0.0.1"}}"#);
        assert_eq!(post(far, "/v1/probe/send", &body).await, 422);
    });
}

/// A train of 4 s is asked for, and its caller hangs up once it has begun.
#[test]
fn a_train_ends_with_its_caller_and_two_never_run_at_once() {
    run(async || {
        let far = far_end(true, LOOPBACK).await;
        let receiver = UdpSocket::bind((LOOPBACK, 0)).expect("a socket");
        let port = receiver.local_addr().expect("its address").port();
        let (left_alone, next) = (token("0000000000000001"), token("0000000000000002"));
        let pattern: Pattern = "train:200@20ms".parse().expect("a pattern");
        let asking = tokio::spawn(async move { far.send(&SendRequest::new(&pattern, 100, port, left_alone)).await });
        let hear = |wait: Duration| {
            let (receiver, mut packet) = (receiver.try_clone().expect("another"), [0; 2000]);
            receiver.set_read_timeout(Some(wait)).expect("set");
            tokio::task::spawn_blocking(move || receiver.recv(&mut packet).ok().map(|len| packet[..len].to_vec()))
        };
        let heard = hear(PATIENCE).await.expect("no panic").expect("it begins");
        assert!(tag::seq_of(left_alone, &heard).is_some());
        asking.abort();
        let single: Pattern = "single".parse().expect("a pattern");
        let late = Instant::now() + PATIENCE;
        while far.send(&SendRequest::new(&single, 100, port, next)).await.is_err() {
            assert!(Instant::now() < late, "the permit is never released");
        }
        while tag::seq_of(next, &hear(PATIENCE).await.expect("no panic").expect("it comes")).is_none() {}
        assert_eq!(hear(Duration::from_millis(200)).await.expect("no panic"), None, "the earlier train had ended");
    });
}

#[test]
fn requests_above_the_limits_are_refused() {
    run(async || {
        let far = far_end(true, LOOPBACK).await;
        let send = |pattern: &str, ip_bytes: u32, port: u16| {
            format!(r#"{{"pattern":"{pattern}","ip_bytes":{ip_bytes},"port":{port},"token":"0123456789abcdef"}}"#)
        };
        let receive = |packets: u32, seconds: u32| format!(r#"{{"packets_max":{packets},"seconds_max":{seconds}}}"#);
        for (path, body) in [
            ("/v1/probe/send", send("train:1001@0", 300, 5000)),
            ("/v1/probe/send", send("train:99999999999@0", 300, 5000)),
            ("/v1/probe/send", send("pair:6s", 300, 5000)),
            ("/v1/probe/send", send("pair:-6s", 300, 5000)),
            ("/v1/probe/send", send("single", 59, 5000)),
            ("/v1/probe/send", send("single", 1501, 5000)),
            ("/v1/probe/send", send("single", 300, 53)),
            ("/v1/probe/send", send("single", 300, 0)),
            ("/v1/probe/receive", receive(0, 1)),
            ("/v1/probe/receive", receive(LIMITS.packets_max + 1, 1)),
            ("/v1/probe/receive", receive(1, 0)),
            ("/v1/probe/receive", receive(1, LIMITS.seconds_max + 1)),
        ] {
            assert_eq!(post(far, path, &body).await, 400, "{body}");
        }
        assert_eq!(post(far, "/v1/probe/receive", &" ".repeat(70_000)).await, 413);
        // What a page in a browser could send.
        let form = status(far, "POST", "/v1/probe/receive".into(), receive(1, 1), "text/plain").await;
        assert_eq!(form, 415);
        let bulk = |bytes: u64, kind| status(far, "GET", format!("/v1/probe/bulk?bytes={bytes}"), String::new(), kind);
        assert_eq!(bulk(1000, "text/plain").await, 415);
        assert_eq!(bulk(1000, "application/json").await, 200);
        assert_eq!(bulk(LIMITS.bulk_bytes_max + 1, "application/json").await, 400);
        // The limit of expected trains is reached; forgetting one makes room again.
        let mut tokens = Vec::new();
        for _ in 0..RECEIVERS_PER_CALLER_MAX {
            tokens.push(far.receive(1, LIMITS.seconds_max).await.expect("room").token);
        }
        assert!(matches!(far.receive(1, LIMITS.seconds_max).await, Err(FarError::Refused { status: 429, .. })));
        far.forget(tokens[0]).await.expect("forgotten");
        far.receive(1, LIMITS.seconds_max).await.expect("room again");
    });
}

#[test]
fn a_closed_port_is_not_sent_a_train() {
    run(async || {
        let far = far_end(true, LOOPBACK).await;
        // Connected to one peer, so that the kernel gives the port to no other socket meanwhile.
        let held = UdpSocket::bind((LOOPBACK, 0)).expect("a socket");
        held.connect((LOOPBACK, 9)).expect("connected");
        let closed = held.local_addr().expect("its address").port();
        let pattern: Pattern = "train:1000@1ms".parse().expect("a pattern");
        let sent = far.send(&SendRequest::new(&pattern, 300, closed, Token(1))).await;
        assert!(matches!(sent, Err(FarError::Refused { status: 409, .. })), "{sent:?}");
    });
}

#[test]
fn bulk_transfers_beyond_the_limit_are_refused() {
    run(async || {
        let far = far_end(true, LOOPBACK).await;
        // They do not read the bytes that they requested.
        let stalled: Vec<_> = (0..BULKS_MAX)
            .map(|_| {
                let mut stream = TcpStream::connect(far.address()).expect("connected");
                let request = "GET /v1/probe/bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\r\n";
                stream.write_all(request.as_bytes()).expect("sent");
                let mut answer = [0; 12];
                stream.read_exact(&mut answer).expect("answered");
                assert_eq!(&answer, b"HTTP/1.1 200");
                stream
            })
            .collect();
        assert!(matches!(far.bulk_from(Duration::from_millis(10)).await, Err(FarError::Refused { status: 429, .. })));
        drop(stalled);
        let late = Instant::now() + PATIENCE;
        while far.bulk_from(Duration::from_millis(10)).await.is_err() {
            assert!(Instant::now() < late, "the permits are never released");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_far_end_that_may_not_send_reports_it() {
    run(async || {
        let far = far_end(false, LOOPBACK).await;
        let mut problems = Vec::new();
        let request =
            FarRequest { trains: true, bulk_to: Duration::from_millis(50), bulk_from: Duration::from_millis(50) };
        let measured = measure(far, request, |one| problems.push(one)).await.expect("it answers");
        assert!(measured.tcp_from_bits_per_s.is_none() && measured.from_bits_per_s.is_none());
        let refused = problems.iter().filter(|one| matches!(one.why, NoFigure::Refused(_)));
        let refused: Vec<_> = refused.map(|one| one.what).collect();
        assert_eq!(refused, [Quantity::CapacityBack, Quantity::TcpBack], "{problems:?}");
    });
}

#[test]
fn a_silent_address_and_another_server_give_different_errors() {
    run(async || {
        let listener = TcpListener::bind((LOOPBACK, 0)).await.expect("a port");
        let silent =
            FarClient::new(listener.local_addr().expect("its address"), None).with_patience(Duration::from_millis(50));
        assert!(matches!(silent.about().await, Err(FarError::Unreachable { .. })));
        // The port is kept, but nothing listens there: one that is free may be taken by another test.
        let closed = TcpSocket::new_v4().expect("a socket");
        closed.bind(SocketAddr::new(LOOPBACK, 0)).expect("a port");
        let refusing = FarClient::new(closed.local_addr().expect("its address"), None);
        assert!(matches!(refusing.about().await, Err(FarError::Unreachable { .. })));
        let listener = TcpListener::bind((LOOPBACK, 0)).await.expect("a port");
        let other = FarClient::new(listener.local_addr().expect("its address"), None);
        tokio::spawn(async move { axum::serve(listener, axum::Router::new()).await });
        assert!(matches!(other.about().await, Err(FarError::NotOne { .. })));
    });
}

/// A far end's messages are shown in reports and on terminals.
#[test]
fn messages_of_a_far_end_are_safe_to_print() {
    run(async || {
        let escape = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}\nno".repeat(100);
        let about = serde_json::json!({ "name": escape, "version": escape, "sends": true, "limits": LIMITS });
        let refusal = (StatusCode::SERVICE_UNAVAILABLE, Json(serde_json::json!({ "error": escape })));
        let app = axum::Router::new().route("/v1/probe", get(|| async { Json(about) })).fallback(|| async { refusal });
        let listener = TcpListener::bind((LOOPBACK, 0)).await.expect("a port");
        let far = FarClient::new(listener.local_addr().expect("its address"), None);
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut problems = Vec::new();
        let request = FarRequest { bulk_to: Duration::ZERO, ..FarRequest::default() };
        let note = |one: NotMeasured| problems.push(one.to_string());
        let measured = measure(far, request, note).await.expect("it answers");
        assert_eq!(problems.len(), 3, "{problems:?}");
        for text in problems.iter().chain([&measured.name]) {
            assert!(text.contains("]0;owned[2Jno") && text.len() < 1000, "{text:?}");
            assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
        }
    });
}

/// A far end sends a refusal whose body never ends.
#[test]
fn a_refusal_that_never_ends_is_not_waited_for() {
    run(async || {
        let listener = std::net::TcpListener::bind((LOOPBACK, 0)).expect("a port");
        let far =
            FarClient::new(listener.local_addr().expect("its address"), None).with_patience(Duration::from_millis(50));
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("called");
            let mut asked = [0; 1000];
            assert!(stream.read(&mut asked).is_ok_and(|bytes| bytes > 0));
            write!(stream, "HTTP/1.1 503 Later\r\nContent-Length: 1000\r\n\r\n{{").expect("answered");
            // Until the caller closes the connection.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let asked = tokio::time::timeout(PATIENCE, far.bulk_from(Duration::from_millis(10))).await;
        assert!(matches!(asked, Ok(Err(FarError::Unreachable { .. }))), "{asked:?}");
    });
}
