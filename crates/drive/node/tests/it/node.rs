//! A whole node: its control API over real sockets, leases, refusals, and its end.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use cheetah_control::api::{
    LeaseRequest, MAP_BYTES_MAX, NOTE_BYTES_MAX, NOTES_MAX, NewExport, NewMap, NewNote, StoredMap,
};
use cheetah_control::receipt::Asked;
use cheetah_control::{ControlClient, ControlError};
use cheetah_device::{ByteRange, Device, Error};
use cheetah_nbd::server::Exports as _;
use cheetah_node::{Node, NodeConfig, NodeError};
use futures::executor::block_on;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MIB: u64 = 1 << 20;

pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub fn start() -> (Node, ControlClient) {
    let node = Node::start(NodeConfig { name: "desk-7".into(), ..NodeConfig::new(8 * MIB, loopback(0)) }).unwrap();
    let client = ControlClient::new(node.http_address(), None);
    (node, client)
}

fn lease(holder: &str, force: bool) -> LeaseRequest {
    LeaseRequest { holder: holder.into(), ttl_s: 60, force }
}

pub fn refusal(error: ControlError) -> (u16, String) {
    match error {
        ControlError::Refused { status, error, .. } => (status, error),
        other => panic!("expected a refusal, got: {other}"),
    }
}

#[tokio::test]
async fn exports_are_created_listed_and_deleted() {
    let (node, client) = start();
    let status = client.status().await.unwrap();
    assert_eq!((status.name.as_str(), status.exports.len()), ("desk-7", 0));
    assert_eq!((status.nbd_port, status.http_port), (node.nbd_address().port(), node.http_address().port()));
    assert_eq!(status.instance.len(), 32);

    let made = client.create_export(&NewExport::reserved("case42", 2 * MIB)).await.unwrap();
    assert_eq!((made.size_bytes, made.used_bytes, made.reserved, made.connections), (2 * MIB, 0, true, 0));
    let again = refusal(client.create_export(&NewExport::thin("case42", MIB)).await.unwrap_err());
    assert_eq!(again, (409, "export 'case42' exists already".into()));
    let big = client.create_export(&NewExport::reserved("big", 64 * MIB)).await.unwrap_err();
    assert!(big.is_full(), "{big}");
    for name in ["", "a/b", "..\n", "ä", &"x".repeat(256)] {
        assert_eq!(refusal(client.create_export(&NewExport::thin(name, MIB)).await.unwrap_err()).0, 400, "{name}");
    }

    let export = node.exports().open("case42", &[]).unwrap();
    export.device.write(0, vec![1; 100_000].into(), false).await.unwrap();
    let status = client.status().await.unwrap();
    assert_eq!((status.exports[0].used_bytes, status.exports[0].connections), (128 << 10, 1));
    assert_eq!((status.memory.used_bytes, status.memory.reserved_bytes), (128 << 10, 2 * MIB));

    let receipt = client.delete_export("case42", None, &Asked::default()).await.unwrap();
    assert_eq!((receipt.statement.wiped_bytes, receipt.statement.verified_zero), (128 << 10, true));
    assert!(matches!(export.device.read(ByteRange::new(0, 1)).await, Err(Error::Lost { .. })));
    assert!(client.delete_export("case42", None, &Asked::default()).await.unwrap_err().is_not_found());
    assert_eq!(node.status().memory.free_bytes, node.status().memory.usable_bytes);
}

#[tokio::test]
async fn a_lease_fences_the_writer_before() {
    let (node, client) = start();
    client.create_export(&NewExport::reserved("e", MIB)).await.unwrap();
    let exports = node.exports();
    let write = |export: &cheetah_nbd::server::Export| block_on(export.device.write(0, vec![1].into(), false));
    let with = |token: &str| exports.open("e", &[format!("x-cheetah:lease/{token}")]).unwrap();

    let stock = exports.open("e", &[]).unwrap();
    write(&stock).unwrap();
    let first = client.acquire_lease("e", &lease("Ada", false)).await.unwrap();
    let ada = with(&first.token);
    assert_eq!(ada.contexts.len(), 1);
    write(&ada).unwrap();
    assert!(matches!(write(&stock), Err(Error::Fenced(_))), "a client without a lease, connected before");
    let late = exports.open("e", &[]).unwrap();
    assert!(!late.device.geometry().writable && stock.device.read(ByteRange::new(0, 1)).await.is_ok());

    let held = refusal(client.acquire_lease("e", &lease("Bob", false)).await.unwrap_err());
    assert_eq!(held.0, 409);
    assert!(held.1.starts_with("held by Ada for another "), "{}", held.1);
    let second = client.acquire_lease("e", &lease("Bob", true)).await.unwrap();
    let bob = with(&second.token);
    write(&bob).unwrap();
    assert!(matches!(write(&ada), Err(Error::Fenced(_))));
    assert!(client.renew_lease("e", &first.token).await.unwrap_err().is_conflict());
    assert!(client.release_lease("e", &first.token).await.unwrap_err().is_conflict());
    assert!(with(&first.token).contexts.is_empty(), "a dead lease is not granted");

    assert_eq!(client.renew_lease("e", &second.token).await.unwrap().ttl_s, 60);
    assert!(client.delete_export("e", None, &Asked::default()).await.unwrap_err().is_conflict());
    assert!(client.delete_export("e", Some(&first.token), &Asked::default()).await.unwrap_err().is_conflict());
    client.release_lease("e", &second.token).await.unwrap();
    write(&stock).unwrap();
    assert!(matches!(write(&ada), Err(Error::Fenced(_))), "fenced for good, although the lease is free");
    assert!(!with(&first.token).device.geometry().writable);
    client.delete_export("e", Some(&second.token), &Asked::default()).await.unwrap();
}

#[tokio::test]
async fn a_note_is_stored_without_a_lease_and_ends_with_the_export() {
    let (_node, client) = start();
    client.create_export(&NewExport::reserved("e", 4096)).await.unwrap();
    let note = |name: &str, text: String| NewNote { name: name.to_owned(), text };
    assert!(client.notes("e").await.unwrap().notes.is_empty());
    client.store_note("e", &note("repair-request", "first".into())).await.unwrap();
    client.store_note("e", &note("repair-request", "second \"\\\n".into())).await.unwrap();
    assert_eq!(client.notes("e").await.unwrap().notes["repair-request"], "second \"\\\n");
    let long = note("long", "x".repeat(NOTE_BYTES_MAX + 1));
    assert_eq!(refusal(client.store_note("e", &long).await.unwrap_err()).0, 413);
    assert_eq!(refusal(client.store_note("e", &note("No", String::new())).await.unwrap_err()).0, 400);
    for len in 1..NOTES_MAX {
        client.store_note("e", &note(&"n".repeat(len), "x".repeat(NOTE_BYTES_MAX))).await.unwrap();
    }
    assert_eq!(refusal(client.store_note("e", &note("d", String::new())).await.unwrap_err()).0, 507);
    client.delete_export("e", None, &Asked::default()).await.unwrap();
    assert_eq!(refusal(client.notes("e").await.unwrap_err()).0, 404);
    client.create_export(&NewExport::reserved("e", 4096)).await.unwrap();
    assert!(client.notes("e").await.unwrap().notes.is_empty());
}

fn new_map(token: &str, epoch: u64, map: impl Into<String>) -> NewMap {
    NewMap { token: token.to_owned(), epoch, map: map.into() }
}

#[tokio::test]
async fn a_map_is_stored_under_the_lease_and_only_a_later_epoch_replaces_it() {
    let (_node, client) = start();
    let unknown = refusal(client.map("e").await.unwrap_err());
    assert_eq!(unknown, (404, "this node has no export 'e'".into()));
    client.create_export(&NewExport::thin("e", MIB)).await.unwrap();
    assert_eq!(client.map("e").await.unwrap(), None);
    assert_eq!(client.status().await.unwrap().exports[0].map_epoch, None);

    let never = format!("{:032x}", 7);
    let ended = "this lease has ended: it expired, or another writer took it over";
    assert_eq!(refusal(client.store_map("e", &new_map(&never, 1, "a")).await.unwrap_err()), (409, ended.into()));
    assert_eq!(refusal(client.store_map("e", &new_map("", 1, "a")).await.unwrap_err()).0, 400);
    let ada = client.acquire_lease("e", &lease("Ada", false)).await.unwrap().token;
    assert_eq!(refusal(client.store_map("e", &new_map(&never, 1, "a")).await.unwrap_err()), (409, ended.into()));
    client.store_map("e", &new_map(&ada, 7, "sieben \"\\\n\u{1}\u{e4}")).await.unwrap();
    let stored = StoredMap { epoch: 7, map: "sieben \"\\\n\u{1}\u{e4}".into() };
    assert_eq!(client.map("e").await.unwrap(), Some(stored.clone()));
    assert_eq!(client.status().await.unwrap().exports[0].map_epoch, Some(7));

    client.store_map("e", &new_map(&ada, 7, &*stored.map)).await.unwrap();
    for (epoch, map) in [(6, "a"), (7, "a"), (6, &stored.map)] {
        let outdated = refusal(client.store_map("e", &new_map(&ada, epoch, map)).await.unwrap_err());
        assert_eq!(outdated, (409, "the export holds a map of epoch 7: a new one must have a later epoch".into()));
    }

    // After a takeover and a release, both tokens have ended. Neither may store, not even the map that is stored already.
    let bob = client.acquire_lease("e", &lease("Bob", true)).await.unwrap().token;
    assert_eq!(refusal(client.store_map("e", &new_map(&ada, 8, "a")).await.unwrap_err()), (409, ended.into()));
    client.store_map("e", &new_map(&bob, 8, "eight")).await.unwrap();
    client.release_lease("e", &bob).await.unwrap();
    for (epoch, map) in [(8, "eight"), (9, "nine")] {
        let refused = client.store_map("e", &new_map(&bob, epoch, map)).await.unwrap_err();
        assert_eq!(refusal(refused), (409, ended.into()));
    }
    assert_eq!(client.map("e").await.unwrap(), Some(StoredMap { epoch: 8, map: "eight".into() }));
}

#[tokio::test]
async fn a_map_is_gone_with_its_export() {
    let (node, client) = start();
    client.create_export(&NewExport::thin("e", MIB)).await.unwrap();
    let token = client.acquire_lease("e", &lease("Ada", false)).await.unwrap().token;
    client.store_map("e", &new_map(&token, 7, "a")).await.unwrap();
    // A connection keeps the deleted export, not its map.
    let _connected = node.exports().open("e", &[]).unwrap();
    client.delete_export("e", Some(&token), &Asked::default()).await.unwrap();
    assert!(client.map("e").await.unwrap_err().is_not_found());
    assert!(client.store_map("e", &new_map(&token, 8, "b")).await.unwrap_err().is_not_found());
    client.create_export(&NewExport::thin("e", MIB)).await.unwrap();
    assert_eq!(client.map("e").await.unwrap(), None);
    assert!(client.store_map("e", &new_map(&token, 8, "b")).await.unwrap_err().is_conflict());
    let token = client.acquire_lease("e", &lease("Bob", false)).await.unwrap().token;
    client.store_map("e", &new_map(&token, 1, "c")).await.unwrap();
}

#[tokio::test]
async fn maps_are_limited_each_and_together() {
    let (_node, client) = start();
    let mut tokens = Vec::new();
    for index in 0..33 {
        client.create_export(&NewExport::thin(format!("e{index}"), MIB)).await.unwrap();
        tokens.push(client.acquire_lease(&format!("e{index}"), &lease("Ada", false)).await.unwrap().token);
    }
    // In JSON, each of these takes two bytes.
    let longest = "\"".repeat(MAP_BYTES_MAX);
    for len in [MAP_BYTES_MAX + 1, 3 * MAP_BYTES_MAX] {
        let refused = client.store_map("e0", &new_map(&tokens[0], 1, "x".repeat(len))).await.unwrap_err();
        assert_eq!(refusal(refused).0, 413, "{len}");
    }
    for (index, token) in tokens[..32].iter().enumerate() {
        client.store_map(&format!("e{index}"), &new_map(token, 1, &*longest)).await.unwrap();
    }
    assert_eq!(client.map("e31").await.unwrap().unwrap().map, longest);
    let refused = client.store_map("e32", &new_map(&tokens[32], 1, "x")).await.unwrap_err();
    assert!(refused.is_full(), "{refused}");
    client.delete_export("e0", Some(&tokens[0]), &Asked::default()).await.unwrap();
    client.store_map("e32", &new_map(&tokens[32], 1, "x")).await.unwrap();
}

#[tokio::test]
async fn only_the_requested_instance_grants_its_context() {
    let (node, client) = start();
    client.create_export(&NewExport::thin("e", MIB)).await.unwrap();
    let own = format!("x-cheetah:instance/{}", node.status().instance);
    let other = format!("x-cheetah:instance/{:032x}", 7);
    let unknown = "x-cheetah:something".to_owned();
    let granted = node.exports().open("e", &[other, own.clone(), unknown]).unwrap().contexts;
    assert_eq!(granted, [own]);
    assert!(matches!(node.exports().open("f", &[]), Err(Error::Invalid(_))));
}

#[tokio::test]
async fn the_number_of_exports_is_limited() {
    let (node, client) = start();
    for i in 0..256 {
        node.exports().create(&NewExport::thin(format!("e{i}"), MIB)).unwrap();
    }
    let refused = client.create_export(&NewExport::thin("more", MIB)).await.unwrap_err();
    assert!(refused.is_full(), "{refused}");
    assert_eq!(client.status().await.unwrap().exports.len(), 256);
}

/// Sends `request` verbatim, and returns the response.
pub async fn raw(node: &Node, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(node.http_address()).await.unwrap();
    // A server may close while we still send; its response has arrived nevertheless.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn post(path: &str, kind: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: {kind}\r\n");
    format!("{head}content-length: {len}\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn malformed_requests_get_an_error() {
    let (node, client) = start();
    let json = "application/json";
    let deep = "[".repeat(60_000);
    let long_path = format!("/v1/exports/{}", "a".repeat(100_000));
    let cases: [(&str, Vec<u8>); 12] = [
        ("404", post("/nothing", json, "{}")),
        ("405", post("/v1/status", json, "{}")),
        ("415", post("/v1/exports", "text/plain", r#"{"name":"x","size_bytes":1}"#)),
        ("400", post("/v1/exports", json, "")),
        ("400", post("/v1/exports", json, &deep)),
        ("400", post("/v1/exports", json, r#"{"name":"x","size_bytes":-1}"#)),
        ("400", post("/v1/exports", json, r#"{"name":"x","size_bytes":1,"surprise":1}"#)),
        ("507", post("/v1/exports", json, r#"{"name":"x","size_bytes":18446744073709551615}"#)),
        ("413", post("/v1/exports", json, &" ".repeat(100_000))),
        ("404", post("/v1/exports/%00%0a/lease", json, r#"{"holder":"x","ttl_s":60}"#)),
        ("4", post(&long_path, json, "{}")),
        ("400", b"\x16\x03\x01 not even HTTP\r\n\r\n".to_vec()),
    ];
    for (status, request) in cases {
        let answer = raw(&node, &request).await;
        let what = String::from_utf8_lossy(&request[..request.len().min(120)]).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{what}\n{answer}");
    }
    let answer =
        raw(&node, b"DELETE /v1/exports/x?lease=zz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await;
    assert!(answer.contains(r#"{"error":"a lease token has 32 hex digits"}"#), "{answer}");
    assert_eq!(client.status().await.unwrap().exports, [], "nothing was made");
}

#[tokio::test]
async fn a_request_with_a_foreign_host_header_is_refused() {
    let (node, client) = start();
    let ask = async |version: &str, hosts: &str| {
        let request = format!("GET /v1/status {version}\r\n{hosts}connection: close\r\n\r\n");
        raw(&node, request.as_bytes()).await
    };
    for hosts in
        ["host: evil.example\r\n", "host: evil.example:10808\r\n", "", "host: 127.0.0.1\r\nhost: evil.example\r\n"]
    {
        let answer = ask("HTTP/1.1", hosts).await;
        assert!(
            answer.starts_with("HTTP/1.1 403") && answer.contains(r#"{"error":"call this machine by"#),
            "{hosts}{answer}"
        );
    }
    for (version, hosts) in [("HTTP/1.1", "host: localhost:1\r\n"), ("HTTP/1.1", "host: [::1]:1\r\n"), ("HTTP/1.0", "")]
    {
        let answer = ask(version, hosts).await;
        assert!(answer.starts_with(&format!("{version} 200")), "{hosts}{answer}");
    }
    // Cheetah's own client may know the node under any name.
    let port = node.http_address().port();
    assert!(
        client.status().await.is_ok() && ControlClient::new(format!("localhost:{port}"), None).status().await.is_ok()
    );
}

#[tokio::test]
async fn silent_callers_do_not_block_others() {
    let (_node, client) = start();
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(client.addr()).await.unwrap());
    }
    // Connections above the limit are closed at once; new ones are accepted as soon as some have ended.
    drop(idle);
    let began = Instant::now();
    while client.status().await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "the node never recovered");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn metrics_have_the_prometheus_format() {
    let (node, client) = start();
    client.create_export(&NewExport::thin("e", MIB)).await.unwrap();
    let export = node.exports().open("e", &[]).unwrap();
    export.device.write(0, vec![1; 5000].into(), false).await.unwrap();
    export.device.read(ByteRange::new(0, 3000)).await.unwrap();
    node.exports().export("e").unwrap().corrupt(0);
    assert!(export.device.read(ByteRange::new(0, 10)).await.is_err());
    let page = client.metrics().await.unwrap();
    for line in [
        "# TYPE cheetah_export_read_bytes_total counter",
        "cheetah_export_read_bytes_total{export=\"e\"} 3000",
        "cheetah_export_written_bytes_total{export=\"e\"} 5000",
        "cheetah_export_connections{export=\"e\"} 1",
        "cheetah_digest_errors_total 1",
        "cheetah_memory_lent_bytes 8388608",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} not in\n{page}");
    }
}

#[tokio::test]
async fn shutdown_wipes_the_memory_and_returns_a_receipt() {
    let (node, client) = start();
    let addresses = [node.nbd_address(), node.http_address()];
    client.create_export(&NewExport::thin("a", MIB)).await.unwrap();
    client.create_export(&NewExport::thin("gone", MIB)).await.unwrap();
    let export = node.exports().open("a", &[]).unwrap();
    export.device.write(0, vec![1; 200_000].into(), false).await.unwrap();
    let gone = node.exports().open("gone", &[]).unwrap();
    gone.device.write(0, vec![1].into(), false).await.unwrap();
    client.delete_export("gone", None, &Asked::default()).await.unwrap();
    let connected = TcpStream::connect(node.nbd_address()).await.unwrap();

    let receipt = node.shutdown().await;
    assert_eq!((receipt.wiped_bytes, receipt.wiped_total_bytes, receipt.verified_zero), (4 << 16, 5 << 16, true));
    assert_eq!(receipt.exports.len(), 1);
    assert!(matches!(export.device.read(ByteRange::new(0, 1)).await, Err(Error::Lost { .. })));
    let mut rest = Vec::new();
    let mut connected = connected;
    let _ = connected.read_to_end(&mut rest).await;
    for address in addresses {
        TcpListener::bind(address).unwrap();
    }
}

#[tokio::test]
async fn dropping_a_node_ends_it_too() {
    let (node, _) = start();
    node.exports().create(&NewExport::thin("a", MIB)).unwrap();
    let export = node.exports().open("a", &[]).unwrap();
    drop(node);
    assert!(matches!(export.device.read(ByteRange::new(0, 1)).await, Err(Error::Lost { .. })));
}

#[test]
fn a_node_that_cannot_start_gives_one_clear_error() {
    let holder = TcpListener::bind(loopback(0)).unwrap();
    let error = Node::start(NodeConfig::new(MIB, holder.local_addr().unwrap())).err().unwrap();
    assert!(matches!(error, NodeError::PortTaken { .. }), "{error}");

    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let error = Node::start(NodeConfig::new(MIB, open)).err().unwrap();
    assert!(matches!(error, NodeError::Exposed(_)), "{error}");
    Node::start(NodeConfig { insecure: true, ..NodeConfig::new(MIB, open) }).unwrap();

    let error = Node::start(NodeConfig::new(1 << 50, loopback(0))).err().unwrap();
    assert!(matches!(error, NodeError::Memory(_)), "{error}");
    assert!(Node::start(NodeConfig::new(1000, loopback(0))).is_err(), "too little to be of use");
    assert!(matches!(Node::start(NodeConfig::new(MIB, loopback(65535))).err().unwrap(), NodeError::NoHttpPort(_)));
}

#[test]
fn a_node_starts_outside_any_runtime() {
    let node = Node::start(NodeConfig::new(MIB, loopback(0))).unwrap();
    assert!(std::net::TcpStream::connect(node.http_address()).is_ok());
}

/// Takes one request on `listener`, answers it with `status`, and returns it.
async fn answer(listener: &tokio::net::TcpListener, status: &str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the request ended early");
    }
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(request).unwrap()
}

#[tokio::test]
async fn a_node_offers_itself_until_it_is_accepted() {
    let examiner = tokio::net::TcpListener::bind(loopback(0)).await.unwrap();
    let join = vec![examiner.local_addr().unwrap().to_string()];
    let node = Node::start(NodeConfig { join, ..NodeConfig::new(MIB, loopback(0)) }).unwrap();
    // The examiner first closes without an answer, then is not ready, and then accepts.
    drop(examiner.accept().await.unwrap());
    answer(&examiner, "503 Service Unavailable").await;
    let request = answer(&examiner, "200 OK").await;
    assert!(request.starts_with("POST /v1/join HTTP/1.1\r\n"), "{request}");
    let body = request.split("\r\n\r\n").nth(1).unwrap();
    let offer: cheetah_control::api::Join = serde_json::from_str(body).unwrap();
    let status = node.status();
    assert_eq!((offer.instance, offer.nbd_port, offer.http_port), (status.instance, status.nbd_port, status.http_port));
    assert_eq!(offer.free_bytes, status.memory.free_bytes);
}
