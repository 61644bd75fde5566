//! A server with clients that send large requests and read no replies still answers its other clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::proto::{Command, CommandFlags, Request};
use cheetah_nbd::server::{Export, Exports, Listener, MEMORY_BYTES_LEAST, ServerConfig, serve};

const REQUEST_BYTES: u32 = 32 << 20;
const GREEDY_CLIENTS: usize = 40;
const GREEDY_REQUESTS: u64 = 100;
const READS: u64 = 20;
/// No answer takes this long, unless the machine stalls.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device that answers after a trip through the executor, as one behind a network does, or at once.
struct Shared(Bytes, bool);

impl Device for Shared {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.0.len() as u64, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let data = self.0.slice(range.offset as usize..range.end() as usize);
        if self.1 {
            return Io::ok(data.into());
        }
        Io::later(async move {
            tokio::task::yield_now().await;
            Ok(data.into())
        })
    }

    fn answers_at_once(&self) -> bool {
        self.1
    }
}

struct Only(Arc<Shared>);

impl Exports for Only {
    fn list(&self) -> Vec<String> {
        vec![String::new()]
    }

    fn open(&self, _name: &str, _contexts: &[String]) -> Result<Export, Error> {
        Ok(Export { device: self.0.clone(), description: String::new(), contexts: Vec::new(), packer: None })
    }
}

/// A server on a thread of its own; it ends with the test.
fn start(at_once: bool) -> SocketAddr {
    let content: Bytes = (0..REQUEST_BYTES).map(|i| (i >> 9) as u8 | 1).collect::<Vec<_>>().into();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.unwrap();
            send.send(listener.tcp_address().unwrap()).unwrap();
            let config = ServerConfig { memory_bytes_max: MEMORY_BYTES_LEAST, ..ServerConfig::default() };
            serve(listener, Arc::new(Only(Arc::new(Shared(content, at_once)))), config).await;
        });
    });
    receive.recv().unwrap()
}

fn option(stream: &mut TcpStream, number: u32, content: &[u8]) {
    let mut option = b"IHAVEOPT".to_vec();
    option.extend(number.to_be_bytes());
    option.extend((content.len() as u32).to_be_bytes());
    option.extend(content);
    stream.write_all(&option).unwrap();
}

/// Enters the export the old way, with structured replies or simple ones.
fn enter(server: SocketAddr, structured: bool) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    if structured {
        option(&mut stream, 8, &[]);
        stream.read_exact(&mut [0; 20]).unwrap();
    }
    option(&mut stream, 1, &[]);
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

fn read_request(cookie: u64, offset: u64, len: u32) -> BytesMut {
    let mut out = BytesMut::new();
    Request { flags: CommandFlags::NONE, command: Command::Read, cookie, offset, len }.encode(&mut out);
    out
}

/// Clients that request the maximum and read nothing. Returns once the server has begun to answer each client for which
/// it has memory.
fn greedy_clients(server: SocketAddr) -> Vec<TcpStream> {
    let clients: Vec<_> = (0..GREEDY_CLIENTS).map(|number| enter(server, number % 2 == 0)).collect();
    for mut client in &clients {
        let mut all = BytesMut::new();
        for cookie in 0..GREEDY_REQUESTS {
            all.extend_from_slice(&read_request(cookie, 0, REQUEST_BYTES));
        }
        client.write_all(&all).unwrap();
    }
    // The first has got the beginning of its answer.
    clients[0].peek(&mut [0]).unwrap();
    clients
}

fn are_connected(clients: Vec<TcpStream>) -> bool {
    clients.into_iter().all(|client| {
        client.set_nonblocking(true).unwrap();
        match client.peek(&mut [0]) {
            Ok(len) => len > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    })
}

fn simple_client_is_served_beside_greedy_ones(at_once: bool, len: u32) {
    let server = start(at_once);
    let greedy = greedy_clients(server);
    let mut stream = enter(server, false);
    for cookie in 0..READS {
        stream.write_all(&read_request(cookie, cookie * 512, len)).unwrap();
        let mut reply = vec![0; 16 + len as usize];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[16], cookie as u8 | 1);
    }
    assert!(are_connected(greedy));
}

#[test]
fn small_simple_reads_are_answered_beside_greedy_clients() {
    simple_client_is_served_beside_greedy_ones(false, 4096);
    simple_client_is_served_beside_greedy_ones(true, 4096);
}

#[test]
fn large_simple_reads_are_answered_beside_greedy_clients() {
    simple_client_is_served_beside_greedy_ones(false, 1 << 20);
    simple_client_is_served_beside_greedy_ones(true, 1 << 20);
}

#[tokio::test]
async fn structured_reads_of_any_size_are_answered_beside_greedy_clients() {
    for at_once in [false, true] {
        let server = start(at_once);
        let greedy = tokio::task::spawn_blocking(move || greedy_clients(server)).await.unwrap();
        let uri = format!("nbd://{server}").parse().unwrap();
        let client = Client::connect(ClientConfig { timeout: PATIENCE, ..ClientConfig::new(uri) }).await.unwrap();
        for len in [4096, 1 << 20, 8 << 20, 32 << 20] {
            let reads = (0..READS.min((64 << 20) / len))
                .map(|number| client.read(ByteRange::new(number * 512 % (REQUEST_BYTES as u64 - len + 1), len)));
            for data in futures::future::join_all(reads).await {
                assert_eq!(data.unwrap().len(), len);
            }
        }
        assert!(are_connected(greedy));
    }
}
