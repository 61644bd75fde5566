//! Requests when connections are lost, and when servers are silent or return as other instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use cheetah_device::memory::Memory;
use cheetah_device::prefetch::{Prefetch, PrefetchConfig};
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::handshake::BlockSizes;
use cheetah_nbd::handshake::server::{ExportLookup, Offer, Refusal, ServerHandshake, Step};
use cheetah_nbd::proto::{Command, Request, TransmissionFlags, reply};
use futures::future::join_all;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

const SIZE: u64 = 1 << 20;
/// The paused clock of these tests advances whenever all tasks wait, even if only for a socket. That happens about a
/// thousand times and takes no real time, so the tests pass on slow machines, too.
const TIMEOUT: Duration = Duration::from_secs(500);
const INSTANCE: &str = "x-cheetah:instance/1";
const LEASE: &str = "x-cheetah:lease/1";

/// How a server treats one connection.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Correctly.
    Well,
    /// Cuts the connection after that number of bytes of replies.
    CutAfter(usize),
    /// Reads requests, and never replies.
    Silent,
    /// Sends no greeting.
    Mute,
    /// Replies with invalid bytes.
    Mad,
    /// Says that it is shutting down.
    Leaving,
    /// Closes it at once.
    Refuse,
    /// Never replies to reads from the start, and replies to all others.
    Forget,
}

/// A server whose behaviour can be changed.
#[derive(Clone)]
struct Server {
    device: Arc<Memory>,
    state: Arc<Mutex<State>>,
    connections: Arc<AtomicUsize>,
    dir: Arc<TempDir>,
}

struct State {
    name: String,
    flags: TransmissionFlags,
    grants: Vec<String>,
    /// For the next connections; the last stays.
    manners: Vec<Manner>,
    /// The state of the server as a whole, beside the behaviour of its connections.
    life: Life,
}

/// The state of a server's process.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Awake,
    /// Stopped: connections exist and can be made, but are not served.
    Stopped,
    /// Killed: all connections end, and new ones fail.
    Killed,
}

impl State {
    /// Every connection may replace an earlier one.
    fn grants(&self, context: &String) -> bool {
        self.grants.contains(context) || context.starts_with("x-cheetah:connection/")
    }
}

impl ExportLookup for Server {
    type Export = ();

    fn list(&self) -> Vec<String> {
        vec![self.state.lock().name.clone()]
    }

    fn open(&self, name: &str, contexts: &[String]) -> Result<Offer<()>, Refusal> {
        let state = self.state.lock();
        if name != state.name {
            return Err(Refusal::unknown("no such export"));
        }
        let flags = state.flags;
        let contexts = contexts.iter().filter(|context| state.grants(context)).cloned().collect();
        let blocks = BlockSizes::default();
        Ok(Offer { export: (), size: SIZE, flags, description: String::new(), blocks, contexts })
    }
}

impl Server {
    /// Starts one that holds a pattern.
    fn start(manners: &[Manner]) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let listener = UnixListener::bind(dir.path().join("nbd.sock")).unwrap();
        let content = (0..SIZE).map(|at| (at % 251) as u8).collect();
        let grants = vec![INSTANCE.to_owned(), LEASE.to_owned()];
        let flags = TransmissionFlags::CAN_MULTI_CONN | TransmissionFlags::SEND_FLUSH;
        let state = State { name: "drive".into(), flags, grants, manners: manners.to_vec(), life: Life::Awake };
        let server = Self {
            device: Arc::new(Memory::new(content)),
            state: Arc::new(Mutex::new(state)),
            connections: Arc::default(),
            dir,
        };
        let accepting = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let server = accepting.clone();
                tokio::spawn(async move { server.serve(stream).await });
            }
        });
        server
    }

    async fn serve(&self, mut stream: UnixStream) -> std::io::Result<()> {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let manner = {
            let manners = &mut self.state.lock().manners;
            if manners.len() > 1 { manners.remove(0) } else { manners[0] }
        };
        let life = self.state.lock().life;
        if life == Life::Killed || matches!(manner, Manner::Refuse) {
            return Ok(());
        }
        if life == Life::Stopped || matches!(manner, Manner::Mute) {
            return std::future::pending().await;
        }
        let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
        let mut handshake = ServerHandshake::new(&mut out);
        loop {
            let step = handshake.advance(&mut input, self, &mut out);
            stream.write_all_buf(&mut out).await?;
            match step {
                Step::Again => {}
                Step::Read if stream.read_buf(&mut input).await? == 0 => return Ok(()),
                Step::Read => {}
                Step::Enter(_) => break,
                Step::StartTls | Step::Close(_) => return Ok(()),
            }
        }
        let mut left = if let Manner::CutAfter(len) = manner { len } else { usize::MAX };
        loop {
            match self.state.lock().life {
                Life::Awake => {}
                Life::Stopped => break,
                Life::Killed => return Ok(()),
            }
            while let Some(()) = self.answer(manner, &mut input, &mut out).await {}
            out.truncate(left);
            left -= out.len();
            stream.write_all_buf(&mut out).await?;
            if left == 0 || stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
        }
        std::future::pending().await
    }

    /// Carries out one request of those received.
    async fn answer(&self, manner: Manner, input: &mut BytesMut, out: &mut BytesMut) -> Option<()> {
        let request = Request::parse(input.first_chunk()?).unwrap();
        let len = Request::LEN + request.payload_len() as usize;
        if input.len() < len {
            return None;
        }
        let message = input.split_to(len);
        match manner {
            Manner::Silent => return Some(()),
            Manner::Forget if request.offset == 0 => return Some(()),
            Manner::Mad => out.extend_from_slice(b"!!!!!!!!!!!!!!!!!!!!!!!!"),
            Manner::Leaving => {
                reply::error(out, request.cookie, true, cheetah_nbd::proto::ErrorCode::Shutdown, "good night");
            }
            _ => match request.command {
                Command::Read => {
                    let bytes = self.device.read(request.range()).await.unwrap().into_bytes();
                    reply::offset_data(out, request.cookie, true, request.offset, request.len);
                    out.extend_from_slice(&bytes);
                }
                Command::Write => {
                    let data = Data::from(message.freeze().split_off(Request::LEN));
                    self.device.write(request.offset, data, false).await.unwrap();
                    reply::none(out, request.cookie);
                }
                _ => reply::none(out, request.cookie),
            },
        }
        Some(())
    }

    fn config(&self) -> ClientConfig {
        let contexts = vec![INSTANCE.to_owned(), LEASE.to_owned()];
        let config = crate::support::config(&self.dir.path().join("nbd.sock"), "drive");
        ClientConfig { contexts, timeout: TIMEOUT, ..config }
    }

    async fn connect(&self) -> Client {
        Client::connect(self.config()).await.unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
    }
}

async fn check(client: &Client, range: ByteRange) {
    let bytes = client.read(range).await.unwrap().into_bytes();
    assert!(bytes.iter().zip(range.offset..).all(|(byte, at)| u64::from(*byte) == at % 251), "{range}");
    assert_eq!(bytes.len() as u64, range.len);
}

fn why(error: &Error) -> &str {
    match error {
        Error::Lost { device, why, .. } if &**device == "node1" => why,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_repeated_wherever_the_connection_is_cut() {
    for at in [0, 1, 10, 27, 28, 29, 5000, 99_999, 100_028, 100_040, 300_000] {
        let server = Server::start(&[Manner::CutAfter(at), Manner::Well]);
        let client = server.connect().await;
        let reads = (0..8).map(|n| check(&client, ByteRange::new(n * 1000, 100_000)));
        join_all(reads).await;
        assert_eq!(client.stats().reconnects, 1, "cut at {at}");
        assert_eq!(client.stats().in_flight, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn writes_in_flight_are_repeated() {
    let server = Server::start(&[Manner::CutAfter(30), Manner::CutAfter(7), Manner::Well]);
    let client = server.connect().await;
    let writes = (0..8u8).map(|n| client.write(u64::from(n) * 70_000, Data::from(vec![n; 70_000]), true));
    assert!(join_all(writes).await.iter().all(Result::is_ok));
    let content = server.device.snapshot();
    assert!((0..8usize).all(|n| content[n * 70_000..][..70_000].iter().all(|byte| usize::from(*byte) == n)));
    assert_eq!(client.stats().reconnects, 2);
}

#[tokio::test(start_paused = true)]
async fn a_protocol_violation_closes_the_connection_and_requests_are_repeated() {
    let server = Server::start(&[Manner::Mad, Manner::Leaving, Manner::Well]);
    let client = server.connect().await;
    check(&client, ByteRange::new(5, 5000)).await;
    assert_eq!(client.stats().reconnects, 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_breaking_the_protocol_is_lost_at_once_and_its_ranges_are_not_blamed() {
    let server = Server::start(&[Manner::Mad]);
    let client = server.connect().await;
    for _ in 0..3 {
        let error = client.read(ByteRange::new(0, 64 << 10)).await.unwrap_err();
        assert!(matches!(&error, Error::Lost { device, .. } if &**device == "node1"), "{error}");
    }
    assert!(client.stats().reconnects < 10, "{}", client.stats().reconnects);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_shutting_down_is_retried_with_pauses_and_lost_after_the_timeout() {
    let server = Server::start(&[Manner::Leaving]);
    let timeout = Duration::from_secs(10);
    let client = Client::connect(ClientConfig { timeout, ..server.config() }).await.unwrap();
    let start = Instant::now();
    why(&client.read(ByteRange::new(512, 512)).await.unwrap_err());
    assert!(start.elapsed() < 2 * timeout);
    assert!(client.stats().reconnects < 50, "{}", client.stats().reconnects);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_fails_reads_after_the_timeout_and_later_ones_at_once() {
    for connections in [1, 4] {
        let server = Server::start(&[Manner::Silent]);
        let client = Client::connect(ClientConfig { connections, ..server.config() }).await.unwrap();
        server.change(|state| state.manners = vec![Manner::Mute]);
        let start = Instant::now();
        let lost = client.read(ByteRange::new(512, 512)).await.unwrap_err();
        assert_eq!(lost.to_string(), "node1: 512+512 not available: no answer for 500s");
        assert!(start.elapsed() < TIMEOUT + TIMEOUT / 2);
        // Wait until all connections are given up.
        tokio::time::sleep(TIMEOUT / 2).await;
        let start = Instant::now();
        for _ in 0..100 {
            why(&client.read(ByteRange::new(0, 1)).await.unwrap_err());
            why(&client.flush().await.unwrap_err());
        }
        assert!(start.elapsed() < TIMEOUT, "later requests fail at once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_waits_for_a_prefetch_times_out_once() {
    let timeout = TIMEOUT;
    let cases = [(Life::Stopped, 1), (Life::Stopped, 3), (Life::Killed, 1), (Life::Killed, 3)];
    join_all(cases.map(|(life, connections)| async move {
        let server = Server::start(&[Manner::Well]);
        let config = ClientConfig { connections, timeout, ..server.config() };
        let client: DynDevice = Arc::new(Client::connect(config).await.unwrap());
        let prefetch = Prefetch::new(client, PrefetchConfig { budget_bytes: 256 << 10, ..PrefetchConfig::default() });
        let read = |n: u64| prefetch.read(ByteRange::new(n * 4096, 4096));
        for n in 0..32 {
            read(n).await.unwrap();
        }
        assert!(prefetch.stats().prefetched_bytes > 0);
        server.change(|state| state.life = life);
        let start = Instant::now();
        // Prefetched data is still valid; the next fetch is in flight, and fails.
        let mut n = 32;
        let lost = loop {
            match read(n).await {
                Ok(_) => n += 1,
                Err(error) => break error,
            }
        };
        why(&lost);
        assert!(start.elapsed() < timeout * 3 / 2, "{life:?}: {:?}", start.elapsed());
        assert!(prefetch.stats().failures > 0, "{life:?}: nothing was in flight");
        let start = Instant::now();
        why(&read(n).await.unwrap_err());
        assert!(start.elapsed() < timeout / 2, "{life:?}: {:?}", start.elapsed());
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_recovers_is_used_again() {
    let server = Server::start(&[Manner::Silent, Manner::Silent, Manner::Well]);
    let client = server.connect().await;
    let mut tries = 0;
    while client.read(ByteRange::new(0, 10)).await.is_err() {
        tries += 1;
        assert!(tries < 1000);
        tokio::time::sleep(TIMEOUT / 20).await;
    }
    assert!(tries > 0);
    check(&client, ByteRange::new(0, 70_000)).await;
}

#[tokio::test(start_paused = true)]
async fn another_instance_is_refused_as_empty() {
    for wait_for_replacement in [true, false] {
        refused_as_empty(wait_for_replacement).await;
    }
}

async fn refused_as_empty(wait_for_replacement: bool) {
    let server = Server::start(&[Manner::CutAfter(100), Manner::Well]);
    let client = Client::connect(ClientConfig { wait_for_replacement, ..server.config() }).await.unwrap();
    server.change(|state| state.grants = vec![LEASE.into(), "x-cheetah:instance/2".into()]);
    let start = Instant::now();
    for _ in 0..3 {
        let lost = client.read(ByteRange::new(0, 1000)).await.unwrap_err();
        assert_eq!(why(&lost), "it came back empty: another instance answers");
    }
    assert!(start.elapsed() < TIMEOUT, "no point in waiting");
    // Not even if the right instance returns: later writes did not reach it.
    server.change(|state| state.grants.push(INSTANCE.into()));
    assert!(client.read(ByteRange::new(0, 1000)).await.is_err());
    let connections = server.connections.load(Ordering::SeqCst);
    tokio::time::sleep(TIMEOUT).await;
    assert_eq!(server.connections.load(Ordering::SeqCst), connections, "nor does it try");
}

#[tokio::test(start_paused = true)]
async fn a_removed_export_is_lost_for_good() {
    let server = Server::start(&[Manner::CutAfter(100), Manner::Well]);
    let client = server.connect().await;
    server.change(|state| state.name = "other".into());
    let lost = client.read(ByteRange::new(0, 1000)).await.unwrap_err();
    assert_eq!(why(&lost), "it came back, but the server has no export 'drive'; it has 'other'");
}

#[tokio::test(start_paused = true)]
async fn a_writer_whose_lease_was_taken_is_fenced() {
    let server = Server::start(&[Manner::CutAfter(0), Manner::Well]);
    let client = server.connect().await;
    server.change(|state| state.grants.retain(|context| context == INSTANCE));
    let fenced = client.write(0, Data::from(vec![1; 10]), false).await.unwrap_err();
    assert_eq!(fenced.to_string(), "write refused: node1: the write lease is not ours any more");
    let refused = Client::connect(server.config()).await.err().unwrap();
    assert!(matches!(refused, Error::Fenced(_)), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_reconnects_to_an_export_that_is_read_only_meanwhile_and_a_writer_does_not() {
    for writable in [false, true] {
        let server = Server::start(&[Manner::CutAfter(100), Manner::Well]);
        let client = Client::connect(ClientConfig { writable, ..server.config() }).await.unwrap();
        // As while another writer holds the lease.
        server.change(|state| state.flags = TransmissionFlags::CAN_MULTI_CONN | TransmissionFlags::READ_ONLY);
        let read = client.read(ByteRange::new(0, 1000)).await;
        assert_eq!(read.is_ok(), !writable, "{:?}", read.err());
    }
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_one_connection_of_several_fails_no_request() {
    let server = Server::start(&[Manner::CutAfter(10_000), Manner::Well]);
    let client = Client::connect(ClientConfig { connections: 3, ..server.config() }).await.unwrap();
    join_all((0..64).map(|n| check(&client, ByteRange::new(n * 1000, 4096)))).await;
    assert_eq!(client.connections(), 3);
}

#[tokio::test(start_paused = true)]
async fn cancelled_requests_leave_the_client_usable() {
    let server = Server::start(&[Manner::Well]);
    let client = server.connect().await;
    for n in 0..50 {
        let read = client.read(ByteRange::new(n, 100_000));
        // Polled once, so that it is made, and dropped.
        assert!(futures::FutureExt::now_or_never(read).is_none());
    }
    check(&client, ByteRange::new(3, 300_000)).await;
    assert_eq!(client.stats().reconnects, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_client_closes_its_connections() {
    let server = Server::start(&[Manner::Well]);
    let client = server.connect().await;
    check(&client, ByteRange::new(0, 10)).await;
    assert_eq!(Arc::strong_count(&server.connections), 3, "the listener's, the connection's, ours");
    drop(client);
    while Arc::strong_count(&server.connections) > 2 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn operations_need_no_runtime_of_their_own() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (server, client) = runtime.block_on(async {
        let server = Server::start(&[Manner::Well, Manner::Silent]);
        let client = server.connect().await;
        (server, client)
    });
    futures::executor::block_on(check(&client, ByteRange::new(0, 200_000)));
    server.change(|state| state.name = "gone".into());
    drop(server);
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// Writes the pattern, as soon as the server is back.
async fn write_in_the_end(client: &Client) {
    let pattern: Vec<u8> = (0..1000u64).map(|at| (at % 251) as u8).collect();
    let mut tries = 0;
    while let Err(error) = client.write(0, Data::from(pattern.clone()), false).await {
        why(&error);
        tries += 1;
        assert!(tries < 10_000, "{error}");
        tokio::time::sleep(TIMEOUT / 1000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_wait_fails_while_the_server_is_gone_and_works_again_after() {
    for connections in [1, 4] {
        let server = Server::start(&[Manner::Well]);
        let config = ClientConfig { connections, wait_for_replacement: false, ..server.config() };
        let client = Client::connect(config).await.unwrap();
        check(&client, ByteRange::new(0, 4096)).await;
        server.change(|state| state.life = Life::Killed);
        let start = Instant::now();
        for lost in join_all((0..8).map(|n| client.read(ByteRange::new(n * 1000, 4096)))).await {
            why(&lost.unwrap_err());
        }
        for _ in 0..100 {
            why(&client.read(ByteRange::new(0, 1)).await.unwrap_err());
            why(&client.write(0, Data::from(vec![0]), false).await.unwrap_err());
            why(&client.flush().await.unwrap_err());
        }
        assert!(start.elapsed() < TIMEOUT / 2, "{:?}", start.elapsed());
        server.change(|state| state.life = Life::Awake);
        write_in_the_end(&client).await;
        check(&client, ByteRange::new(0, 100_000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_wait_repeats_requests_on_a_new_connection_all_the_same() {
    let server = Server::start(&[Manner::CutAfter(100), Manner::Well]);
    let client = Client::connect(ClientConfig { wait_for_replacement: false, ..server.config() }).await.unwrap();
    join_all((0..8).map(|n| check(&client, ByteRange::new(n * 1000, 100_000)))).await;
    assert_eq!(client.stats().reconnects, 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_wait_fails_when_the_server_says_again_that_it_leaves() {
    let server = Server::start(&[Manner::Leaving]);
    let client = Client::connect(ClientConfig { wait_for_replacement: false, ..server.config() }).await.unwrap();
    let start = Instant::now();
    assert_eq!(why(&client.read(ByteRange::new(512, 512)).await.unwrap_err()), "good night");
    assert!(start.elapsed() < TIMEOUT / 2);
}

#[tokio::test(start_paused = true)]
async fn changes_that_wait_for_a_refused_connection_fail_and_reads_take_another() {
    let server = Server::start(&[Manner::Well, Manner::CutAfter(1), Manner::Refuse]);
    let config = ClientConfig { connections: 2, wait_for_replacement: false, ..server.config() };
    let client = Client::connect(config).await.unwrap();
    let start = Instant::now();
    let writes = join_all((0..8).map(|_| client.write(0, Data::from(vec![1; 1000]), false))).await;
    let lost: Vec<_> = writes.iter().filter_map(|write| write.as_ref().err()).map(why).collect();
    assert!(!lost.is_empty());
    why(&client.write(0, Data::from(vec![1; 1000]), false).await.unwrap_err());
    check(&client, ByteRange::new(1000, 4096)).await;
    assert!(start.elapsed() < TIMEOUT / 2, "{:?}", start.elapsed());
    server.change(|state| state.manners = vec![Manner::Well]);
    write_in_the_end(&client).await;
    check(&client, ByteRange::new(0, 4096)).await;
}

#[tokio::test(start_paused = true)]
async fn silence_grows_while_an_answer_is_owed_and_any_answer_ends_it() {
    let server = Server::start(&[Manner::Forget]);
    let client = Arc::new(server.connect().await);
    let part = TIMEOUT / 20;
    assert_eq!(client.silent_for(), None);
    check(&client, ByteRange::new(512, 512)).await;
    tokio::time::sleep(part).await;
    assert_eq!(client.silent_for(), None, "nothing is owed");

    let reader = Arc::clone(&client);
    let forgotten = tokio::spawn(async move { reader.read(ByteRange::new(0, 512)).await });
    tokio::time::sleep(part).await;
    let first = client.silent_for().unwrap();
    tokio::time::sleep(part).await;
    let second = client.silent_for().unwrap();
    assert!(first >= part / 2 && first <= part && second >= first + part, "{first:?} {second:?}");

    check(&client, ByteRange::new(512, 512)).await;
    let third = client.silent_for().unwrap();
    assert!(third < first, "{third:?}");
    forgotten.abort();
    tokio::time::sleep(part).await;
    assert!(client.silent_for().unwrap() >= third + part, "the answer is still owed");
}

#[tokio::test(start_paused = true)]
async fn silence_grows_while_a_request_waits_for_a_connection() {
    let server = Server::start(&[Manner::Well]);
    let client = Arc::new(server.connect().await);
    check(&client, ByteRange::new(0, 512)).await;
    server.change(|state| state.life = Life::Killed);
    let reader = Arc::clone(&client);
    let waiting = tokio::spawn(async move { reader.read(ByteRange::new(0, 512)).await });
    tokio::time::sleep(TIMEOUT / 4).await;
    let silent = client.silent_for().unwrap();
    assert!(silent >= TIMEOUT / 8 && silent <= TIMEOUT / 4, "{silent:?}");
    why(&waiting.await.unwrap().unwrap_err());
    assert_eq!(client.silent_for(), None, "it was given up");
}
