//! The server against clients that behave badly, and stock clients that behave well.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Geometry, Io};
use cheetah_nbd::proto::{Command as Op, CommandFlags, Request};
use cheetah_nbd::server::{Export, Exports, Listener, Server, ServerConfig, serve};
use proptest::prelude::*;

const SIZE: u64 = 3 << 20;
/// Nothing here takes this long, unless the machine stalls.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device that answers only after a trip through the executor, as one behind a network does.
struct Slowly(Memory);

impl Device for Slowly {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            tokio::task::yield_now().await;
            self.0.read(range).await
        })
    }
    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        Io::later(async move {
            tokio::task::yield_now().await;
            self.0.write(offset, data, fua).await
        })
    }
}

/// Fails for every range that touches the second MiB.
struct HalfBroken(Memory);

impl Device for HalfBroken {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match range.intersection(ByteRange::new(1 << 20, 1 << 20)) {
            Some(range) => Io::fail(Error::Corrupt { device: "half".into(), range }),
            None => self.0.read(range),
        }
    }
    fn answers_at_once(&self) -> bool {
        true
    }
}

struct Named(Vec<(&'static str, DynDevice)>);

impl Exports for Named {
    fn list(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
    }
    fn open(&self, name: &str, _contexts: &[String]) -> Result<Export, Error> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        let (_, device) = found.ok_or_else(|| Error::Invalid(format!("no export is named '{name}'").into()))?;
        Ok(Export { device: Arc::clone(device), description: "a test".into(), contexts: Vec::new(), packer: None })
    }
}

fn content() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..SIZE).map(|i| (i * 7 % 251) as u8).collect();
    bytes[1 << 19..1 << 20].fill(0);
    bytes
}

/// A server on threads of its own; it ends with the test.
fn start(config: ServerConfig) -> SocketAddr {
    let exports = Named(vec![
        ("fast", Arc::new(Memory::new(content()))),
        ("slow", Arc::new(Slowly(Memory::new(content())))),
        ("half", Arc::new(HalfBroken(Memory::new(content())))),
    ]);
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.unwrap();
            send.send(listener.tcp_address().unwrap()).unwrap();
            serve(listener, Arc::new(exports), config).await;
        });
    });
    receive.recv().unwrap()
}

/// Opens `export` with `NBD_OPT_EXPORT_NAME`, after which replies are simple.
fn enter(server: SocketAddr, export: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let mut hello = 3u32.to_be_bytes().to_vec();
    hello.extend(b"IHAVEOPT");
    hello.extend(1u32.to_be_bytes());
    hello.extend((export.len() as u32).to_be_bytes());
    hello.extend(export.as_bytes());
    stream.write_all(&hello).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

fn request(command: Op, cookie: u64, offset: u64, len: u32) -> BytesMut {
    let mut out = BytesMut::new();
    Request { flags: CommandFlags::NONE, command, cookie, offset, len }.encode(&mut out);
    out
}

/// Reads one simple reply with `len` bytes of data, if it went well.
fn reply(stream: &mut TcpStream, len: usize) -> (u32, u64, Vec<u8>) {
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    let error = u32::from_be_bytes(header[4..8].try_into().unwrap());
    let mut data = vec![0; if error == 0 { len } else { 0 }];
    stream.read_exact(&mut data).unwrap();
    (error, u64::from_be_bytes(header[8..].try_into().unwrap()), data)
}

fn assert_serves(server: SocketAddr) {
    for export in ["fast", "slow"] {
        let mut stream = enter(server, export);
        stream.write_all(&request(Op::Read, 9, 1000, 5000)).unwrap();
        assert_eq!(reply(&mut stream, 5000), (0, 9, content()[1000..6000].to_vec()));
    }
}

#[test]
fn requests_sent_in_one_write_are_each_answered() {
    let server = start(ServerConfig::default());
    for export in ["fast", "slow"] {
        let mut stream = enter(server, export);
        let mut all = BytesMut::new();
        for i in 0..300 {
            all.extend(request(Op::Read, i, i * 100, 10_000));
        }
        stream.write_all(&all).unwrap();
        let mut seen = Vec::new();
        for _ in 0..300 {
            let (error, cookie, data) = reply(&mut stream, 10_000);
            let at = cookie as usize * 100;
            assert_eq!((error, &data[..]), (0, &content()[at..at + 10_000]));
            seen.push(cookie);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..300).collect::<Vec<_>>());
    }
}

#[test]
fn a_large_write_is_executed_and_an_oversized_one_is_refused() {
    let server = start(ServerConfig::default());
    for export in ["fast", "slow"] {
        let mut stream = enter(server, export);
        let bytes: Vec<u8> = (0..2_500_000u32).map(|i| (i % 253) as u8).collect();
        let mut all = request(Op::Write, 1, 12_345, 2_500_000);
        all.extend(&bytes);
        all.extend(request(Op::Write, 2, SIZE - 10, 300_000));
        all.extend(&bytes[..300_000]);
        stream.write_all(&all).unwrap();
        let mut replies: Vec<_> = (0..2).map(|_| reply(&mut stream, 0)).collect();
        replies.sort_by_key(|reply| reply.1);
        assert_eq!((replies[0].0, replies[1].0), (0, 28), "no space beyond the end");
        stream.write_all(&request(Op::Read, 3, 12_345, 2_500_000)).unwrap();
        let (error, cookie, data) = reply(&mut stream, 2_500_000);
        assert_eq!((error, cookie), (0, 3));
        assert!(data == bytes);
    }
}

/// A write and the lengths of the pieces in which it is sent.
fn sent_write() -> impl Strategy<Value = (u64, usize, Vec<usize>)> {
    let len = prop_oneof![1usize..9000, 200_000usize..700_000, Just(262_144), Just(524_288)];
    let piece = prop_oneof![1usize..200, 3000usize..6000, 50_000usize..400_000];
    (0u64..1 << 21, any::<bool>(), len, prop::collection::vec(piece, 1..6)).prop_map(|(at, aligned, len, pieces)| {
        let at = if aligned { at / 4096 * 4096 } else { at };
        (at, len.min((SIZE - at) as usize), pieces)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn writes_that_arrive_in_any_pieces_are_written_as_they_were_sent(writes in prop::collection::vec(sent_write(), 1..6)) {
        let server = start(ServerConfig::default());
        let (mut stream, mut model) = (enter(server, "fast"), content());
        stream.set_nodelay(true).unwrap();
        for (index, (at, len, pieces)) in writes.iter().enumerate() {
            let bytes: Vec<u8> = (0..*len).map(|i| (i / 3 + index * 31) as u8).collect();
            model[*at as usize..][..*len].copy_from_slice(&bytes);
            let mut rest = &[&request(Op::Write, index as u64, *at, *len as u32)[..], &bytes[..]].concat()[..];
            for piece in pieces.iter().cycle() {
                let (now, later) = rest.split_at((*piece).min(rest.len()));
                stream.write_all(now).unwrap();
                rest = later;
                if rest.is_empty() {
                    break;
                }
                // So that pieces arrive apart; any other order is right, too.
                std::thread::yield_now();
            }
        }
        for _ in &writes {
            prop_assert_eq!(reply(&mut stream, 0).0, 0);
        }
        stream.write_all(&request(Op::Read, 99, 0, SIZE as u32)).unwrap();
        let (error, _, data) = reply(&mut stream, SIZE as usize);
        prop_assert!(error == 0 && data == model, "other bytes are read than were written");
    }
}

#[test]
fn hostile_clients_do_not_affect_other_clients() {
    let server = start(ServerConfig { connections_max: 40, ..ServerConfig::default() });
    let mut greedy = Vec::new();
    for _ in 0..12 {
        // Asks for far more than it takes, and announces payloads that never come.
        let mut stream = enter(server, "slow");
        for i in 0..50 {
            stream.write_all(&request(Op::Read, i, 0, SIZE as u32)).unwrap();
        }
        greedy.push(stream);
        let mut stream = enter(server, "fast");
        stream.write_all(&request(Op::Write, 1, 0, SIZE as u32)).unwrap();
        greedy.push(stream);
    }
    let mut wrong = enter(server, "fast");
    wrong.write_all(&[0x55; 64]).unwrap();
    assert_eq!(wrong.read(&mut [0; 1]).unwrap_or(0), 0, "a wrong magic number ends the connection");
    let mut huge = enter(server, "fast");
    huge.write_all(&request(Op::Write, 1, 0, u32::MAX)).unwrap();
    assert_eq!(huge.read(&mut [0; 1]).unwrap_or(0), 0, "4 GiB of payload end the connection");
    assert_serves(server);
}

#[test]
fn clients_beyond_the_limit_are_refused_and_later_ones_served() {
    let server = start(ServerConfig { connections_max: 2, ..ServerConfig::default() });
    let first = enter(server, "fast");
    let second = enter(server, "fast");
    let mut third = TcpStream::connect(server).unwrap();
    assert_eq!(third.read(&mut [0; 1]).unwrap_or(0), 0);
    drop((first, second));
    // The server may take a while to detect the closed connections.
    let began = Instant::now();
    while TcpStream::connect(server).unwrap().read_exact(&mut [0; 18]).is_err() {
        assert!(began.elapsed() < PATIENCE, "seats of clients that left were not given to others");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A device that answers only once it is permitted to.
struct Held(Memory, Arc<tokio::sync::Semaphore>);

impl Device for Held {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            let _leave = self.1.acquire().await;
            self.0.read(range).await
        })
    }
}

#[test]
fn a_stopped_server_closes_its_connections_and_releases_its_devices() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    for round in 0..20 {
        let leave = Arc::new(tokio::sync::Semaphore::new(0));
        let fast: DynDevice = Arc::new(Memory::new(content()));
        let held: DynDevice = Arc::new(Held(Memory::new(content()), Arc::clone(&leave)));
        let exports = Arc::new(Named(vec![("fast", Arc::clone(&fast)), ("held", Arc::clone(&held))]));
        // No other test listens at this address.
        let listener = runtime.block_on(Listener::tcp(([127, 0, 0, 83], 0).into())).unwrap();
        let address = listener.tcp_address().unwrap();
        assert!(listens(address.port()));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = runtime.spawn(async move {
            let stopped = async { _ = stopped.await };
            Server::new(exports, ServerConfig::default()).listen_until(stopped, listener).await
        });
        let mut waiting = enter(address, "held");
        waiting.write_all(&request(Op::Read, 1, 0, 512)).unwrap();
        let busy: Vec<_> = (0..4).map(|_| keep_reading(enter(address, "fast"))).collect();
        drop(stop);
        runtime.block_on(serving).unwrap();
        assert_eq!((Arc::strong_count(&fast), Arc::strong_count(&held)), (1, 1), "round {round}: still held");
        leave.add_permits(1);
        assert_eq!(waiting.read(&mut [0; 1]).unwrap_or(0), 0, "round {round}: answered");
        assert!(busy.into_iter().all(|client| client.join().unwrap() > 0));
        // A program that another test is starting just then has a copy of the socket until it is executed.
        let began = Instant::now();
        while listens(address.port()) {
            assert!(began.elapsed() < PATIENCE, "round {round}: still listens");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Whether a socket listens at this port of 127.0.0.83. Connecting does not tell: another program may listen at the port of all addresses.
fn listens(port: u16) -> bool {
    // The address as the kernel stores it, any peer, and the state LISTEN.
    let listener = format!(" 5300007F:{port:04X} 00000000:0000 0A ");
    std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(|socket| socket.contains(&listener))
}

/// Reads until the server closes the connection; returns the replies.
fn keep_reading(mut stream: TcpStream) -> std::thread::JoinHandle<u64> {
    // One reply has arrived before the caller continues.
    stream.write_all(&request(Op::Read, 0, 0, 512)).unwrap();
    reply(&mut stream, 512);
    std::thread::spawn(move || {
        let (mut replies, mut answer) = (1, [0; 16 + 512]);
        while stream.write_all(&request(Op::Read, replies, 0, 512)).is_ok() && stream.read_exact(&mut answer).is_ok() {
            replies += 1;
        }
        replies
    })
}

/// Runs a stock tool; `None`, visibly, where it is not installed.
fn tool(program: &str, arguments: &[&str]) -> Option<(bool, String)> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(_) => {
            cheetah_testing::skip(&format!("needs {program}"));
            None
        }
    }
}

#[test]
fn stock_clients_read_the_content() {
    let server = start(ServerConfig::default());
    let folder = tempfile::tempdir().unwrap();
    for export in ["fast", "slow"] {
        let uri = format!("nbd://{server}/{export}");
        let copy = folder.path().join(export);
        let copy = copy.to_str().unwrap();
        if let Some((well, printed)) = tool("nbdcopy", &[&uri, copy]) {
            assert!(well, "{printed}");
            assert!(std::fs::read(copy).unwrap() == content());
        }
        let copy = format!("{copy}.qemu");
        if let Some((well, printed)) = tool("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, &copy]) {
            assert!(well, "{printed}");
            assert!(std::fs::read(&copy).unwrap() == content());
        }
    }
    if let Some((well, printed)) = tool("nbdinfo", &["--list", &format!("nbd://{server}")]) {
        assert!(well && printed.contains("fast") && printed.contains("slow"), "{printed}");
    }
}

#[test]
fn an_error_in_the_middle_of_a_large_read_fails_that_read_only() {
    let server = start(ServerConfig::default());
    let uri = format!("nbd://{server}/half");
    let read = |range: &str| tool("qemu-io", &["-r", "-f", "raw", "-c", &format!("read {range}"), &uri]);
    if let Some((_, printed)) = read("0 3M") {
        assert!(printed.contains("Input/output error"), "{printed}");
    }
    if let Some((_, printed)) = read("2M 1M") {
        assert!(printed.contains("read 1048576/1048576"), "{printed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn arbitrary_bytes_after_the_handshake_never_stop_the_server(bytes in prop::collection::vec(any::<u8>(), 0..300), magic: bool) {
        let server = *SHARED.get_or_init(|| start(ServerConfig::default()));
        let mut stream = enter(server, "fast");
        let mut all = if magic { 0x2560_9513u32.to_be_bytes().to_vec() } else { Vec::new() };
        all.extend(bytes);
        let _ = stream.write_all(&all);
        drop(stream);
        assert_serves(server);
    }
}

static SHARED: std::sync::OnceLock<SocketAddr> = std::sync::OnceLock::new();
