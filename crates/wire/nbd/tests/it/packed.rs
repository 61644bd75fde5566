//! Packed reads between our client and our server: the same bytes, however they travel; and servers that call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cheetah_device::memory::Memory;
use cheetah_device::readonly::ReadOnly;
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::packing::{Packer, PackerConfig};
use cheetah_nbd::server::{Export, Exports, Listener, Server, ServerConfig};
use cheetah_nbd::{Address, Inbox, Method, NbdUri, Packing};
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

const MIB: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Answers only after a trip through the executor, as a disk does; fails beyond what it holds.
struct Disk {
    memory: Memory,
    bad: Option<ByteRange>,
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            tokio::task::yield_now().await;
            match self.bad.and_then(|bad| bad.intersection(range)) {
                Some(range) => Err(Error::Unreadable { device: "disk".into(), range, why: "a scratch".into() }),
                None => self.memory.read(range).await,
            }
        })
    }
}

struct One {
    device: Arc<ReadOnly>,
    packer: Option<Arc<Packer>>,
    description: String,
}

impl Exports for One {
    fn list(&self) -> Vec<String> {
        vec!["disk".into()]
    }
    fn open(&self, _name: &str, contexts: &[String]) -> Result<Export, Error> {
        let contexts = contexts.iter().filter(|context| Method::of_context(context).is_some()).take(1).cloned();
        let contexts = if self.packer.is_some() { contexts.collect() } else { Vec::new() };
        let (description, packer) = (self.description.clone(), self.packer.clone());
        Ok(Export { device: self.device.clone(), description, contexts, packer })
    }
}

/// Zeros, noise, text, and a bit of each.
fn content() -> Vec<u8> {
    let mut state = 7u64;
    let mut noise = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    let mut content = vec![0; 3 * MIB];
    content.extend((0..3 * MIB).map(|_| noise()));
    content.extend(b"It is a truth universally acknowledged, ".iter().cycle().take(3 * MIB));
    for block in 0..3 * MIB / 5000 {
        content.extend(match block % 3 {
            0 => vec![0; 5000],
            1 => vec![block as u8; 5000],
            _ => (0..5000).map(|_| noise()).collect(),
        });
    }
    content
}

fn serving(content: Vec<u8>, packs: bool, bad: Option<ByteRange>, config: ServerConfig) -> Server {
    let device = Arc::new(ReadOnly::new(Arc::new(Disk { memory: Memory::new(content), bad })));
    let packer = packs.then(|| Packer::start(PackerConfig::default()).unwrap());
    Server::new(Arc::new(One { device, packer, description: "x-cheetah:{\"size\":1}".into() }), config)
}

async fn listening(server: Server) -> SocketAddr {
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.tcp_address().unwrap();
    tokio::spawn(async move { server.listen(listener).await });
    address
}

fn config(address: Address, packing: Packing, connections: usize) -> ClientConfig {
    let uri = NbdUri::new(address, "");
    ClientConfig { packing, connections, timeout: TIMEOUT, name: "disk".into(), ..ClientConfig::new(uri) }
}

fn tcp(address: SocketAddr) -> Address {
    Address::Tcp { host: address.ip().to_string(), port: address.port() }
}

async fn read_all(client: &Client, len: usize, step: usize) -> Vec<u8> {
    let ranges = ByteRange::new(0, len as u64).split_at_multiples(step as u64);
    let parts = join_all(ranges.map(|range| async move { client.read(range).await.unwrap() })).await;
    parts.into_iter().fold(Vec::with_capacity(len), |mut all, part| {
        all.extend_from_slice(&part.into_bytes());
        all
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_arrives_unchanged_with_every_method() {
    let content = content();
    let address = listening(serving(content.clone(), true, None, ServerConfig::default())).await;
    for method in Method::ALL {
        let client = Client::connect(config(tcp(address), Packing::Wanted(method), 2)).await.unwrap();
        assert_eq!(client.packed(), Some(method));
        assert_eq!(client.description(), Some("x-cheetah:{\"size\":1}"));
        for step in [content.len(), MIB, 100_001, 4096 * 3] {
            assert!(read_all(&client, content.len(), step).await == content, "{method}, {step} at a time");
        }
        let stats = client.stats();
        assert_eq!(stats.content_bytes, 4 * content.len() as u64);
        // Zeros never travel, and text shrinks, unless that takes longer than to send it.
        let packs = matches!(method, Method::Lz4 | Method::Zstd);
        let most = if packs { stats.content_bytes / 2 } else { stats.content_bytes * 4 / 5 };
        assert!(stats.received_bytes < most, "{method}: {stats:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_pack_is_read_without_packing() {
    let content = content();
    let address = listening(serving(content.clone(), false, None, ServerConfig::default())).await;
    let client = Client::connect(config(tcp(address), Packing::Wanted(Method::Auto), 1)).await.unwrap();
    assert_eq!(client.packed(), None);
    assert!(read_all(&client, content.len(), MIB).await == content);
    // A client that does not request packing reads a packing server without it.
    let address = listening(serving(content.clone(), true, None, ServerConfig::default())).await;
    let client = Client::connect(config(tcp(address), Packing::Off, 1)).await.unwrap();
    assert_eq!(client.packed(), None);
    assert!(read_all(&client, content.len(), 4 * MIB).await == content);
}

#[tokio::test]
async fn a_read_that_fails_in_part_fails_as_a_whole_and_disturbs_no_other() {
    let content = content();
    let bad = ByteRange::new(4 << 20, 512);
    let address = listening(serving(content.clone(), true, Some(bad), ServerConfig::default())).await;
    let client = Client::connect(config(tcp(address), Packing::Wanted(Method::Zstd), 1)).await.unwrap();
    let whole = client.read(ByteRange::new(0, content.len() as u64));
    let beside = client.read(ByteRange::new(5 << 20, 4 << 20));
    let (whole, beside) = tokio::join!(whole, beside);
    let error = whole.unwrap_err();
    assert_eq!(error.errno(), cheetah_device::error::EIO, "{error}");
    assert!(beside.unwrap().into_bytes() == content[5 * MIB..9 * MIB]);
    assert_eq!(client.stats().reconnects, 0);
}

/// A proxy between clients and a server that corrupts or cuts the server's bytes.
async fn meddler(server: SocketAddr, harm: impl Fn(usize, usize) -> Harm + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let harm = Arc::new(harm);
    let connections = AtomicUsize::new(0);
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let number = connections.fetch_add(1, Ordering::Relaxed);
            let harm = Arc::clone(&harm);
            tokio::spawn(async move {
                let server = TcpStream::connect(server).await?;
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let (mut passed, mut buffer) = (0, vec![0; 1 << 16]);
                loop {
                    let len = from_server.read(&mut buffer).await?;
                    match harm(number, passed + len) {
                        Harm::None => {}
                        Harm::Flip(at) => buffer[at - passed] ^= 0x10,
                        Harm::Cut => return Ok(()),
                    }
                    passed += len;
                    to_client.write_all(&buffer[..len]).await?;
                    if len == 0 {
                        return std::io::Result::Ok(());
                    }
                }
            });
        }
    });
    address
}

enum Harm {
    None,
    /// A bit of that byte, counted from the first.
    Flip(usize),
    Cut,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_byte_that_changes_in_transit_is_an_error() {
    // Incompressible, so that each byte on the wire is content.
    let content: Vec<u8> = content()[3 * MIB..4 * MIB].iter().map(|byte| byte & 0x3f).collect();
    let address = listening(serving(content.clone(), true, None, ServerConfig::default())).await;
    for method in Method::ALL {
        // Always the same byte of content, in any division of the stream: it must not be a byte of a header.
        const AT: usize = 300_000;
        let flipped = AtomicUsize::new(0);
        let harm = move |_, passed| {
            let now = passed > AT && flipped.fetch_add(1, Ordering::Relaxed) == 0;
            if now { Harm::Flip(AT) } else { Harm::None }
        };
        let through = meddler(address, harm).await;
        let client = Client::connect(config(tcp(through), Packing::Wanted(method), 1)).await.unwrap();
        let range = ByteRange::new(0, MIB as u64);
        let error = client.read(range).await.unwrap_err();
        assert_eq!(error, Error::Corrupt { device: "disk".into(), range }, "{method}");
        assert!(client.read(range).await.unwrap().into_bytes() == content, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_during_a_read_is_replaced() {
    let content = content();
    let address = listening(serving(content.clone(), true, None, ServerConfig::default())).await;
    let harm = |number, passed| if number < 4 && passed > 500_000 { Harm::Cut } else { Harm::None };
    let through = meddler(address, harm).await;
    let client = Client::connect(config(tcp(through), Packing::Wanted(Method::None), 2)).await.unwrap();
    assert!(read_all(&client, content.len(), MIB).await == content);
    assert!(client.stats().reconnects >= 2);
}

#[tokio::test]
async fn sent_bytes_stay_within_the_rate_limit() {
    let config_ = ServerConfig { rate_max: Some(4 << 20), ..ServerConfig::default() };
    let content = content();
    let address = listening(serving(content.clone(), true, None, config_)).await;
    let client = Client::connect(config(tcp(address), Packing::Wanted(Method::None), 2)).await.unwrap();
    let began = std::time::Instant::now();
    assert!(client.read(ByteRange::new(3 << 20, 2 << 20)).await.unwrap().into_bytes() == content[3 * MIB..5 * MIB]);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(400), "2 MiB at 4 MiB a second took {took:?}");
}

/// A server that calls an address for as long as the handle is not aborted.
fn calling(server: Server, to: SocketAddr) -> AbortHandle {
    tokio::spawn(async move { server.call(&to.to_string()).await }).abort_handle()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_connects_to_the_client_serves_several_connections_and_reconnects() {
    let content = content();
    let inbox = Inbox::listen(([127, 0, 0, 1], 0).into(), None).await.unwrap();
    let place = inbox.address();
    // Callers that are no NBD servers: one is silent, one speaks another protocol, one disconnects.
    let _silent = TcpStream::connect(place).await.unwrap();
    let mut other = TcpStream::connect(place).await.unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nHost: examiner\r\n\r\n").await.unwrap();
    drop(TcpStream::connect(place).await.unwrap());

    let agent = calling(serving(content.clone(), true, None, ServerConfig::default()), place);
    let wanted = Packing::Wanted(Method::Auto);
    let client = Client::connect(config(Address::Inbound(inbox), wanted, 3)).await.unwrap();
    assert_eq!(client.connections(), 3);
    assert!(read_all(&client, content.len(), MIB).await == content);

    // The far end is restarted: the client waits for its call.
    agent.abort();
    let agent = calling(serving(content.clone(), true, None, ServerConfig::default()), place);
    assert!(read_all(&client, content.len(), MIB).await == content);
    drop(client);

    // The examiner is restarted: the agent reconnects.
    let inbox = loop {
        match Inbox::listen(place, None).await {
            Ok(inbox) => break inbox,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let client = Client::connect(config(Address::Inbound(inbox), wanted, 2)).await.unwrap();
    assert!(read_all(&client, content.len(), 3 * MIB).await == content);
    agent.abort();
}

#[tokio::test]
async fn another_server_cannot_replace_the_one_that_connected_first() {
    let content = content();
    let inbox = Inbox::listen(([127, 0, 0, 1], 0).into(), None).await.unwrap();
    let place = inbox.address();
    let first = calling(serving(content.clone(), true, None, ServerConfig::default()), place);
    let client = Client::connect(config(Address::Inbound(inbox), Packing::Off, 1)).await.unwrap();
    first.abort();
    let stranger = calling(serving(vec![1; content.len() - 1], true, None, ServerConfig::default()), place);
    let again = calling(serving(content.clone(), true, None, ServerConfig::default()), place);
    assert!(read_all(&client, content.len(), MIB).await == content);
    stranger.abort();
    again.abort();
}
