//! The client against the server, over both kinds of socket.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, behaves_like_memory};
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Error};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::server::{Export, Exports, Listener, ServerConfig, serve};
use cheetah_nbd::{Address, NbdUri};
use tokio::task::JoinHandle;

const SIZE: usize = 8 << 20;
const INSTANCE: &str = "x-cheetah:instance/1";

struct One(Arc<Memory>);

impl Exports for One {
    fn list(&self) -> Vec<String> {
        vec!["drive".into()]
    }

    fn open(&self, name: &str, contexts: &[String]) -> Result<Export, Error> {
        if name != "drive" {
            return Err(Error::Invalid("no such export".into()));
        }
        let grants = |context: &&String| *context == INSTANCE || context.starts_with("x-cheetah:connection/");
        let contexts = contexts.iter().filter(grants).cloned().collect();
        Ok(Export { device: self.0.clone(), description: "a drive".into(), contexts, packer: None })
    }
}

/// Starts a server on TCP or a Unix socket.
async fn start(unix: Option<&Path>) -> Address {
    start_with(unix, Arc::new(Memory::new(vec![0; SIZE]))).await.0
}

/// The same over this memory; aborting its task kills it.
async fn start_with(unix: Option<&Path>, memory: Arc<Memory>) -> (Address, JoinHandle<Infallible>) {
    let (listener, address) = match unix {
        Some(path) => (Listener::unix(path).unwrap(), Address::Unix(path.to_owned())),
        None => {
            let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.unwrap();
            let port = listener.tcp_address().unwrap().port();
            (listener, Address::Tcp { host: "localhost".into(), port })
        }
    };
    let exports = Arc::new(One(memory));
    (address, tokio::spawn(serve(listener, exports, ServerConfig::default())))
}

fn config(address: Address, connections: usize) -> ClientConfig {
    let uri = NbdUri::new(address, "drive");
    ClientConfig {
        writable: true,
        contexts: vec![INSTANCE.into()],
        connections,
        timeout: PATIENCE,
        ..ClientConfig::new(uri)
    }
}

#[tokio::test]
async fn a_client_reads_and_writes_over_tcp() {
    let client = Client::connect(config(start(None).await, 4)).await.unwrap();
    behaves_like_memory(&client, 60).await;
    assert_eq!(client.stats().reconnects, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_reads_and_writes_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::connect(config(start(Some(&dir.path().join("s"))).await, 1)).await.unwrap();
    behaves_like_memory(&client, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_fails_a_client_that_does_not_wait_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    for (unix, connections) in [(Some(&*path), 1), (Some(&*path), 4), (None, 4)] {
        let memory = Arc::new(Memory::new(vec![7; SIZE]));
        let (address, server) = start_with(unix, Arc::clone(&memory)).await;
        let config = ClientConfig { wait_for_replacement: false, ..config(address, connections) };
        let client = Client::connect(config).await.unwrap();
        client.read(ByteRange::new(0, 4096)).await.unwrap();
        server.abort();
        assert!(server.await.unwrap_err().is_cancelled());
        // Until all connections are cut.
        while client.read(ByteRange::new(0, 4096)).await.is_ok() {}
        for _ in 0..10 {
            let lost = client.write(0, vec![7; 4096].into(), false).await.unwrap_err();
            assert!(matches!(lost, Error::Lost { .. }), "{lost}");
        }
        // Another program may have taken a TCP port meanwhile.
        if let Some(path) = unix {
            let (_, server) = start_with(Some(path), memory).await;
            let began = Instant::now();
            while let Err(lost) = client.write(0, vec![7; 4096].into(), false).await {
                assert!(matches!(lost, Error::Lost { .. }) && began.elapsed() < PATIENCE, "{lost}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(client.read(ByteRange::new(0, 4096)).await.unwrap(), [7; 4096][..]);
            server.abort();
            assert!(server.await.unwrap_err().is_cancelled());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_are_each_answered() {
    let client = Arc::new(Client::connect(config(start(None).await, 2)).await.unwrap());
    let tasks: Vec<_> = (0..64u8)
        .map(|task| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                for round in 0..50u8 {
                    let len = [4096, 512, 100_000, 17][usize::from(task ^ round) % 4];
                    let data = Data::from(vec![task ^ round; len]);
                    client.write(u64::from(task) << 17, data.clone(), false).await.unwrap();
                    let read = client.read(ByteRange::new(u64::from(task) << 17, len as u64)).await.unwrap();
                    assert!(read.into_bytes() == data.into_bytes());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_reads_in_a_queue_are_each_answered() {
    let client = Arc::new(Client::connect(config(start(None).await, 1)).await.unwrap());
    let content: Vec<u8> = (0..SIZE).map(|i| (i % 251) as u8).collect();
    client.write(0, Data::from(content.clone()), false).await.unwrap();
    let content = Arc::new(content);
    // Longer than the server deals with at once, and many of them, so that some wait while others are being sent.
    let len = (SIZE / 2).min(3 << 20);
    let tasks: Vec<_> = (0..200)
        .map(|task| {
            let (client, content) = (Arc::clone(&client), Arc::clone(&content));
            tokio::spawn(async move {
                let at = task * 7919 % (SIZE - len);
                let read = client.read(ByteRange::new(at as u64, len as u64)).await.unwrap();
                assert!(read.into_bytes() == content[at..at + len]);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
