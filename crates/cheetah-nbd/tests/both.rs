//! The client against the server, over both kinds of socket.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod support;

use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Error};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::server::{Export, Exports, Listener, ServerConfig, serve};
use cheetah_nbd::{Address, NbdUri};
use support::{PATIENCE, behaves_like_memory};

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
async fn start(unix: Option<&std::path::Path>) -> Address {
    let exports = Arc::new(One(Arc::new(Memory::new(vec![0; SIZE]))));
    let (listener, address) = match unix {
        Some(path) => (Listener::unix(path).unwrap(), Address::Unix(path.to_owned())),
        None => {
            let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.unwrap();
            let port = listener.tcp_address().unwrap().port();
            (listener, Address::Tcp { host: "localhost".into(), port })
        }
    };
    tokio::spawn(serve(listener, exports, ServerConfig::default()));
    address
}

fn config(address: Address, connections: usize) -> ClientConfig {
    let uri = NbdUri { address, export: "drive".into() };
    ClientConfig {
        writable: true,
        contexts: vec![INSTANCE.into()],
        connections,
        timeout: PATIENCE,
        ..ClientConfig::new(uri)
    }
}

#[tokio::test]
async fn over_tcp() {
    let client = Client::connect(config(start(None).await, 4)).await.unwrap();
    behaves_like_memory(&client, 60).await;
    assert_eq!(client.stats().reconnects, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::connect(config(start(Some(&dir.path().join("s"))).await, 1)).await.unwrap();
    behaves_like_memory(&client, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once() {
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
