//! The client against other implementations' servers.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{PATIENCE, Peer, behaves_like_memory, pattern};
use cheetah_device::{ByteRange, Data, Device, Error, Extent, Zeroing};
use cheetah_nbd::client::{Client, ClientConfig};

const SIZE: usize = 64 << 20;

fn nbdkit(arguments: &[&str]) -> Option<Peer> {
    Peer::start("nbdkit", &[&["-f", "-U", "{socket}"], arguments].concat())
}

#[tokio::test]
async fn nbdkit_memory_is_read_and_written() {
    let Some(peer) = nbdkit(&["memory", "64M"]) else { return };
    let client = Client::connect(ClientConfig { connections: 4, ..peer.config("") }).await.unwrap();
    assert_eq!((client.geometry().size, client.connections()), (SIZE as u64, 4));
    behaves_like_memory(&client, 60).await;
    let stats = client.stats();
    assert_eq!((stats.in_flight, stats.reconnects), (0, 0));
    assert!(stats.received_bytes > SIZE as u64 && stats.requests > 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdkit_answers_many_concurrent_requests() {
    let Some(peer) = nbdkit(&["memory", "64M"]) else { return };
    for connections in [1, 3] {
        let client = Client::connect(ClientConfig { connections, ..peer.config("") }).await.unwrap();
        let client = Arc::new(client);
        let tasks: Vec<_> = (0..64u64)
            .map(|task| {
                let client = Arc::clone(&client);
                tokio::spawn(async move {
                    for round in 0..30 {
                        // Each task has a place of its own, and sizes differ widely.
                        let len = [17, 4096, 100_000, 1 << 20][(task + round) as usize % 4];
                        let data = Data::from(pattern(len, task + round));
                        client.write(task << 20, data.clone(), false).await.unwrap();
                        let read = client.read(ByteRange::new(task << 20, len as u64)).await.unwrap();
                        assert!(read.into_bytes() == data.into_bytes());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test]
async fn nbdkit_without_structured_replies_or_with_nothing_but_reads_and_writes() {
    for arguments in [&["--no-sr", "memory", "8M"][..], &["--mask-handshake=0", "memory", "8M"]] {
        let Some(peer) = nbdkit(arguments) else { return };
        let client = Client::connect(peer.config("")).await.unwrap();
        behaves_like_memory(&client, 30).await;
        let extents = client.extents(ByteRange::new(1, 4 << 20)).await.unwrap();
        assert_eq!(extents, [Extent::data(4 << 20)]);
    }
    let Some(peer) = nbdkit(&["--filter=nozero", "--filter=fua", "memory", "8M"]) else { return };
    let client = Client::connect(peer.config("")).await.unwrap();
    behaves_like_memory(&client, 30).await;
    let fast = Zeroing { fast_only: true, ..Zeroing::default() };
    let refused = client.zero(ByteRange::new(0, 4096), fast).await;
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
}

#[tokio::test]
async fn requests_are_aligned_for_servers_with_large_blocks() {
    let policy = ["--filter=blocksize-policy", "memory", "8M", "blocksize-minimum=4096", "blocksize-preferred=8192"];
    let limits = ["blocksize-maximum=65536", "blocksize-error-policy=error"];
    let Some(peer) = nbdkit(&[&policy[..], &limits].concat()) else { return };
    let client = Client::connect(peer.config("")).await.unwrap();
    assert_eq!(client.geometry().block_preferred, 8192);
    behaves_like_memory(&client, 60).await;
}

#[tokio::test]
async fn qemu_nbd_is_read_and_written() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("raw")).unwrap().set_len(SIZE as u64).unwrap();
    let arguments = [
        "--socket={socket}",
        "--persistent",
        "--shared=0",
        "--format=raw",
        "--export-name=disk",
        "--discard=unmap",
        "{dir}/raw",
    ];
    let Some(peer) = Peer::start_in(dir, "qemu-nbd", &arguments) else { return };
    let client = Client::connect(ClientConfig { connections: 2, ..peer.config("disk") }).await.unwrap();
    behaves_like_memory(&client, 60).await;
    let hole = ByteRange::new(1 << 20, 4 << 20);
    client.trim(hole).await.unwrap();
    client.zero(hole, Zeroing::default()).await.unwrap();
    assert!(client.extents(hole).await.unwrap().iter().all(|extent| extent.zero));
    assert!(client.read(hole).await.unwrap().is_zero());
    let unknown = Client::connect(peer.config("dusk")).await.err().unwrap().to_string();
    assert!(unknown.contains("no export 'dusk'; it has 'disk'"), "{unknown}");
    let file = std::fs::read(peer.dir().join("raw")).unwrap();
    assert!(client.read(ByteRange::new(0, SIZE as u64)).await.unwrap().into_bytes() == file);
}

#[tokio::test]
async fn an_error_of_the_server_fails_only_its_own_request() {
    let Some(peer) = nbdkit(&["--filter=error", "memory", "8M", "error-pread=EIO", "error-pread-rate=50%"]) else {
        return;
    };
    let client = Client::connect(peer.config("")).await.unwrap();
    let (mut good, mut bad) = (0, 0);
    for round in 0..200 {
        match client.read(ByteRange::new(round * 512, 512)).await {
            Ok(data) => good += u64::from(data.is_zero()),
            Err(Error::Io { errno: 5, .. }) => bad += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(good > 0 && bad > 0 && good + bad == 200);
    assert_eq!(client.stats().reconnects, 0);
}

#[tokio::test]
async fn replies_out_of_order_reach_their_requests() {
    let delays = ["--filter=delay", "pattern", "8M", "delay-read=10ms"];
    let Some(peer) = nbdkit(&delays) else { return };
    let client = Client::connect(ClientConfig { writable: false, ..peer.config("") }).await.unwrap();
    let reads = (0..100u64).map(|at| {
        let client = &client;
        async move {
            let bytes = client.read(ByteRange::new(at * 8, 8)).await.unwrap().into_bytes();
            assert_eq!(u64::from_be_bytes(bytes[..].try_into().unwrap()), at * 8);
        }
    });
    futures::future::join_all(reads).await;
}

#[tokio::test]
async fn a_killed_server_is_lost_until_it_is_started_again() {
    let Some(mut peer) = nbdkit(&["memory", "8M"]) else { return };
    let timeout = Duration::from_secs(5);
    let config = ClientConfig { timeout, connections: 2, ..peer.config("") };
    let client = Client::connect(config).await.unwrap();
    client.read(ByteRange::new(0, 512)).await.unwrap();
    peer.kill();
    let lost = client.read(ByteRange::new(4096, 512)).await.unwrap_err();
    assert!(
        matches!(&lost, Error::Lost { device, range, .. } if &**device == "node1" && range.offset == 4096),
        "{lost}"
    );
    for _ in 0..100 {
        assert!(matches!(client.read(ByteRange::new(0, 1)).await, Err(Error::Lost { .. })));
    }
    // Another server on the same socket: without an instance id, the client cannot distinguish the two.
    std::fs::remove_file(peer.socket()).unwrap();
    let socket = peer.socket();
    let again =
        std::process::Command::new("nbdkit").args(["-f", "-U", socket.to_str().unwrap(), "memory", "8M"]).spawn();
    let mut again = again.unwrap();
    let mut read = client.read(ByteRange::new(0, 512)).await;
    let start = std::time::Instant::now();
    while read.is_err() && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
        read = client.read(ByteRange::new(0, 512)).await;
    }
    again.kill().unwrap();
    again.wait().unwrap();
    assert!(read.unwrap().is_zero());
    assert!(client.stats().reconnects >= 1);
}

#[tokio::test]
async fn a_failed_connection_is_explained_in_one_sentence() {
    let Some(peer) = nbdkit(&["-r", "--exportname", "x", "memory", "8M"]) else { return };
    let sentence = |config: ClientConfig| async { Client::connect(config).await.err().unwrap().to_string() };
    let text = sentence(peer.config("x")).await;
    assert!(text.ends_with("the server has it read-only"), "{text}");
    let contexts = vec!["x-cheetah:instance/0123".to_owned()];
    let text = sentence(ClientConfig { contexts, ..peer.config("x") }).await;
    assert!(text.ends_with("it was restarted and is empty"), "{text}");
    drop(peer);
    let nowhere = crate::support::config(std::path::Path::new("/nonexistent/socket"), "");
    let text = sentence(nowhere).await;
    assert!(text.contains("node1 (nbd+unix:///?socket=/nonexistent/socket): cannot connect: No such file"), "{text}");
    let refused = ClientConfig::new("nbd://127.0.0.1:1/x".parse().unwrap());
    let text = sentence(refused).await;
    assert!(text.contains("nbd://127.0.0.1:1/x: cannot connect: nothing listens there"), "{text}");
}
