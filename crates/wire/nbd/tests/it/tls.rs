//! Connections with TLS, on the wire: members, clients without a credential, and men in the middle.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{PATIENCE, behaves_like_memory, pattern};
use bytes::BufMut as _;
use cheetah_device::error::{EACCES, ENOKEY, EPROTONOSUPPORT};
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Error};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::server::{Export, Exports, Listener, Server, ServerConfig, serve};
use cheetah_nbd::{Address, Inbox, NbdUri};
use cheetah_testing::programs;
use cheetah_tls::testing::Room;
use cheetah_tls::{Credential, Expected, Role};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const SIZE: usize = 8 << 20;

struct One(Arc<Memory>);

impl Exports for One {
    fn list(&self) -> Vec<String> {
        vec!["secret-case".into()]
    }

    fn open(&self, _name: &str, contexts: &[String]) -> Result<Export, Error> {
        let device = self.0.clone();
        Ok(Export { device, description: "a drive".into(), contexts: contexts.to_vec(), packer: None })
    }
}

fn exports() -> Arc<One> {
    Arc::new(One(Arc::new(Memory::new(pattern(SIZE, 1)))))
}

/// Starts a server with this credential, or without encryption.
async fn start(credential: Option<&Credential>, config: ServerConfig) -> SocketAddr {
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.tcp_address().unwrap();
    let tls = credential.map(|credential| credential.server().unwrap());
    tokio::spawn(serve(listener, exports(), ServerConfig { tls, ..config }));
    address
}

fn config(to: SocketAddr, credential: &Credential, role: Role) -> ClientConfig {
    let address = Address::Tcp { host: to.ip().to_string(), port: to.port() };
    ClientConfig {
        credentials: Some(credential.clone()).into(),
        expected: Expected::role(role),
        timeout: PATIENCE,
        ..ClientConfig::new(NbdUri::new(address, ""))
    }
}

/// The error of a client that is refused.
async fn refused(config: ClientConfig) -> Error {
    match Client::connect(config).await {
        Ok(_) => panic!("it was accepted"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_examiner_reads_and_writes() {
    let room = Room::new();
    let server = start(Some(&room.credential("pc7", Role::Node)), ServerConfig::default()).await;
    for connections in [1, 4] {
        let examiner = config(server, &room.credential("desk", Role::Examiner), Role::Node);
        let client = Client::connect(ClientConfig { connections, writable: true, ..examiner }).await.unwrap();
        behaves_like_memory(&client, 60).await;
        let large = ByteRange::new(1000, 5 << 20);
        let content = pattern(5 << 20, 9);
        client.write(large.offset, Data::from(content.clone()), false).await.unwrap();
        assert!(client.read(large).await.unwrap().into_bytes() == content);
        assert_eq!(client.stats().reconnects, 0);
    }
}

#[tokio::test]
async fn an_analyst_reads_and_gets_no_lease_and_others_get_nothing() {
    let room = Room::new();
    let server = start(Some(&room.credential("pc7", Role::Node)), ServerConfig::default()).await;
    let analyst = room.credential("ann", Role::Analyst);
    let reader = config(server, &analyst, Role::Node);
    let client = Client::connect(reader.clone()).await.unwrap();
    assert!(!client.geometry().writable);
    let range = ByteRange::new(0, 1 << 20);
    assert!(client.read(range).await.unwrap().into_bytes()[..] == pattern(SIZE, 1)[..1 << 20]);
    assert!(client.write(0, Data::from(vec![1; 512]), false).await.is_err());
    refused(ClientConfig { writable: true, ..reader.clone() }).await;
    let lease = vec!["x-cheetah:lease/4711".into()];
    let error = refused(ClientConfig { contexts: lease, ..reader }).await;
    assert!(matches!(error, Error::Fenced(_)), "{error}");
    for role in [Role::Node, Role::Agent] {
        let error = refused(config(server, &room.credential("pc8", role), Role::Node)).await;
        assert_eq!(error.errno(), EACCES, "{error}");
    }
}

#[tokio::test]
async fn another_rooms_member_and_a_server_of_another_role_key_or_room_are_refused() {
    let (room, other) = (Room::new(), Room::new());
    let node = room.credential("pc7", Role::Node);
    let server = start(Some(&node), ServerConfig::default()).await;
    let examiner = room.credential("desk", Role::Examiner);
    refused(config(server, &other.credential("desk", Role::Examiner), Role::Node)).await;
    let other_key = examiner.identity().unwrap().key;
    for expected in
        [Expected::role(Role::Agent), Expected::role(Role::Examiner), Expected::role(Role::Node).with_key(other_key)]
    {
        refused(ClientConfig { expected, ..config(server, &examiner, Role::Node) }).await;
    }
    // A man in the middle with a credential of its own room: it can only forward bytes that it cannot read.
    let impostor = start(Some(&other.credential("pc7", Role::Node)), ServerConfig::default()).await;
    refused(config(impostor, &examiner, Role::Node)).await;
}

const PAGE: ByteRange = ByteRange::new(0, 4096);

/// A node, and an examiner that has read from it.
struct Reading {
    room: Room,
    node: Credential,
    examiner: Credential,
    wanted: ClientConfig,
    client: Client,
}

impl Reading {
    async fn start() -> Self {
        let room = Room::new();
        let node = room.credential("pc7", Role::Node);
        let server = start(Some(&node), ServerConfig::default()).await;
        let examiner = room.credential("desk", Role::Examiner);
        let wanted = ClientConfig { timeout: Duration::from_secs(2), ..config(server, &examiner, Role::Node) };
        let client = Client::connect(wanted.clone()).await.unwrap();
        client.read(PAGE).await.unwrap();
        Self { room, node, examiner, wanted, client }
    }
}

#[tokio::test]
async fn a_revoked_member_loses_its_connection_at_the_next_request() {
    let Reading { room, node, examiner, wanted, client } = Reading::start().await;
    node.replace_revocations(&room.revocations(&[&examiner])).unwrap();
    assert!(matches!(client.read(PAGE).await, Err(Error::Lost { .. })));
    refused(wanted).await;
}

#[tokio::test]
async fn a_revoked_server_is_read_no_more_over_a_connection_that_is_open() {
    let Reading { room, node, examiner, wanted, client } = Reading::start().await;
    examiner.replace_revocations(&room.revocations(&[&node])).unwrap();
    let error = client.read(PAGE).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    refused(wanted).await;
}

#[tokio::test]
async fn a_member_that_is_revoked_while_it_negotiates_gets_no_further_answer() {
    let named = [&0u32.to_be_bytes()[..], &0u16.to_be_bytes()].concat();
    // LIST, INFO, GO, STRUCTURED_REPLY, EXPORT_NAME
    for (number, data) in [(3, &[][..]), (6, &named), (7, &named), (8, &[]), (1, &[])] {
        let room = Room::new();
        let (node, analyst) = (room.credential("pc7", Role::Node), room.credential("ann", Role::Analyst));
        let server = start(Some(&node), ServerConfig::default()).await;
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(&[&3u32.to_be_bytes()[..], &option(STARTTLS, &[])].concat()).await.unwrap();
        stream.read_exact(&mut [0; 18 + 20]).await.unwrap();
        let tls = analyst.client(Expected::role(Role::Node)).unwrap();
        let (mut secured, _) = tls.connect("127.0.0.1", server.port(), stream).await.unwrap();
        // While it is a member, it is answered.
        secured.write_all(&option(3, &[])).await.unwrap();
        secured.flush().await.unwrap();
        let mut answer = vec![0; 20];
        secured.read_exact(&mut answer).await.unwrap();
        let len = u32::from_be_bytes(answer[16..20].try_into().unwrap()) as usize;
        secured.read_exact(&mut vec![0; len + 20]).await.unwrap();

        node.replace_revocations(&room.revocations(&[&analyst])).unwrap();
        secured.write_all(&option(number, data)).await.unwrap();
        secured.flush().await.unwrap();
        let mut rest = Vec::new();
        // It ends, in whichever way.
        let _ = tokio::time::timeout(PATIENCE, secured.read_to_end(&mut rest)).await.expect("the server hangs up");
        assert!(rest.is_empty(), "option {number}: {rest:?}");
    }
}

/// An unencrypted server that refuses TLS, or a man in the middle that pretends to be one.
#[tokio::test]
async fn a_client_of_a_room_never_falls_back_to_clear() {
    let server = start(None, ServerConfig::default()).await;
    let error = refused(config(server, &Room::new().credential("desk", Role::Examiner), Role::Node)).await;
    assert_eq!(error.errno(), EPROTONOSUPPORT, "{error}");
}

#[tokio::test]
async fn an_unencrypted_client_learns_that_the_server_needs_a_member() {
    let server = start(Some(&Room::new().credential("pc7", Role::Node)), ServerConfig::default()).await;
    let address = Address::Tcp { host: server.ip().to_string(), port: server.port() };
    let error = Client::connect(ClientConfig::new(NbdUri::new(address, ""))).await.err().unwrap();
    assert_eq!(error.errno(), ENOKEY, "{error}");
}

/// An option, as a client sends it.
fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.put_u32(number);
    bytes.put_u32(data.len() as u32);
    bytes.put_slice(data);
    bytes
}

/// Sends bytes behind the greeting, and returns all that the server answers before it closes or waits.
async fn say(to: SocketAddr, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(&[&3u32.to_be_bytes()[..], bytes].concat()).await.unwrap();
    let mut answer = Vec::new();
    let reading = async {
        // A server that discards unread bytes resets the connection.
        while stream.read_buf(&mut answer).await.is_ok_and(|len| len > 0) {}
    };
    let closed = tokio::time::timeout(Duration::from_secs(3), reading).await.is_ok();
    (answer, closed)
}

const STARTTLS: u32 = 5;

#[tokio::test]
async fn before_tls_every_option_is_refused_and_nothing_is_disclosed() {
    let server = start(Some(&Room::new().credential("pc7", Role::Node)), ServerConfig::default()).await;
    let named = [&0u32.to_be_bytes()[..], &0u16.to_be_bytes()].concat();
    // LIST, INFO, GO, STRUCTURED_REPLY, LIST_META_CONTEXT, SET_META_CONTEXT, EXTENDED_HEADERS
    for number in [3, 6, 7, 8, 9, 10, 11] {
        let (answer, closed) = say(server, &option(number, &named)).await;
        let kind = u32::from_be_bytes(answer[18 + 12..18 + 16].try_into().unwrap());
        assert_eq!((kind, closed), (0x8000_0005, false), "option {number}");
        assert!(!answer.windows(6).any(|part| part == b"secret"));
    }
    let (answer, closed) = say(server, &option(1, b"secret-case")).await;
    assert_eq!((answer.len(), closed), (18, true), "EXPORT_NAME");
}

#[tokio::test]
async fn plaintext_behind_the_request_for_tls_ends_the_connection() {
    let server = start(Some(&Room::new().credential("pc7", Role::Node)), ServerConfig::default()).await;
    let injected = [option(STARTTLS, &[]), option(3, &[])].concat();
    let (answer, closed) = say(server, &injected).await;
    assert_eq!((answer.len(), closed), (18, true), "no acknowledgement, no list");
}

/// A man in the middle that speaks first, and then passes on the client's TLS.
#[tokio::test]
async fn negotiation_before_tls_is_discarded() {
    let room = Room::new();
    let server = start(Some(&room.credential("pc7", Role::Node)), ServerConfig::default()).await;
    let mut stream = TcpStream::connect(server).await.unwrap();
    // It asks for structured replies in the name of the client. The refusal is all that remains of it.
    stream.write_all(&[&3u32.to_be_bytes()[..], &option(8, &[])].concat()).await.unwrap();
    let mut header = vec![0; 18 + 20];
    stream.read_exact(&mut header).await.unwrap();
    let mut refusal = vec![0; u32::from_be_bytes(header[34..38].try_into().unwrap()) as usize];
    stream.read_exact(&mut refusal).await.unwrap();
    stream.write_all(&option(STARTTLS, &[])).await.unwrap();
    let mut acknowledged = [0; 20];
    stream.read_exact(&mut acknowledged).await.unwrap();
    let tls = room.credential("desk", Role::Examiner).client(Expected::role(Role::Node)).unwrap();
    let (mut secured, _) = tls.connect("127.0.0.1", server.port(), stream).await.unwrap();
    // SET_META_CONTEXT needs structured replies, which were not negotiated on this side of TLS.
    let query = [&0u32.to_be_bytes()[..], &1u32.to_be_bytes(), &15u32.to_be_bytes(), b"base:allocation"].concat();
    secured.write_all(&option(10, &query)).await.unwrap();
    secured.flush().await.unwrap();
    let mut header = [0; 20];
    secured.read_exact(&mut header).await.unwrap();
    assert_eq!(u32::from_be_bytes(header[12..16].try_into().unwrap()), 0x8000_0003, "invalid");
    // Nor does TLS start twice.
    let mut rest = vec![0; u32::from_be_bytes(header[16..20].try_into().unwrap()) as usize];
    secured.read_exact(&mut rest).await.unwrap();
    secured.write_all(&option(STARTTLS, &[])).await.unwrap();
    secured.flush().await.unwrap();
    secured.read_exact(&mut header).await.unwrap();
    assert_eq!(u32::from_be_bytes(header[12..16].try_into().unwrap()), 0x8000_0003, "invalid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_that_never_finish_a_handshake_take_no_members_place() {
    let count = std::env::var("CHEETAH_STRANGERS").ok().and_then(|count| count.parse().ok()).unwrap_or(600);
    let room = Room::new();
    let limits = ServerConfig { connections_max: 4, ..ServerConfig::default() };
    let server = start(Some(&room.credential("pc7", Role::Node)), limits).await;
    let examiner = config(server, &room.credential("desk", Role::Examiner), Role::Node);
    let client = Client::connect(examiner.clone()).await.unwrap();
    let range = ByteRange::new(0, 1 << 20);
    let mut strangers = Vec::new();
    for number in 0..count {
        let Ok(mut stream) = TcpStream::connect(server).await else { break };
        // Some are silent, some ask for TLS and go no further.
        if number % 2 == 0 {
            let asked = [&3u32.to_be_bytes()[..], &option(STARTTLS, &[])].concat();
            let _ = stream.write_all(&asked).await;
        }
        // The client's end stays open as far as this process has handles.
        strangers.push(stream);
        if strangers.len() > 800 {
            strangers.remove(0);
        }
        if number % 100 == 0 {
            client.read(range).await.unwrap();
        }
    }
    assert_eq!(client.stats().reconnects, 0);
    let other = Client::connect(examiner).await.unwrap();
    other.read(range).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_calls_and_its_client_verify_each_other() {
    let (room, other) = (Room::new(), Room::new());
    let examiner = room.credential("desk", Role::Examiner);
    let agents_only = |credential: &Credential| credential.client(Expected::role(Role::Agent)).unwrap();
    let listen = async |credential: &Credential| {
        Inbox::listen(([127, 0, 0, 1], 0).into(), Some(agents_only(credential))).await.unwrap()
    };
    let call = |credential: Credential, inbox: &Inbox| {
        let (tls, to) = (Some(credential.server().unwrap()), inbox.address().to_string());
        tokio::spawn(
            async move { Server::new(exports(), ServerConfig { tls, ..ServerConfig::default() }).call(&to).await },
        )
    };
    let inbox = listen(&examiner).await;
    // The client accepts neither another room's agent, nor a node, nor an agent without TLS.
    let strangers = [
        call(other.credential("suspect", Role::Agent), &inbox),
        call(room.credential("pc7", Role::Node), &inbox),
        tokio::spawn({
            let to = inbox.address().to_string();
            async move { Server::new(exports(), ServerConfig::default()).call(&to).await }
        }),
    ];
    let wanted = ClientConfig { connections: 2, ..ClientConfig::new(NbdUri::new(Address::Inbound(inbox.clone()), "")) };
    let early = tokio::time::timeout(Duration::from_secs(1), Client::connect(wanted.clone())).await;
    assert!(early.is_err(), "a stranger was taken for the agent");
    let agent = call(room.credential("suspect", Role::Agent), &inbox);
    let client = tokio::time::timeout(PATIENCE, Client::connect(wanted)).await.unwrap().unwrap();
    assert!(client.read(ByteRange::new(0, SIZE as u64)).await.unwrap().into_bytes()[..] == pattern(SIZE, 1)[..]);
    // An agent called a node that pretends to be the examiner: it serves nothing.
    let node = listen(&room.credential("pc7", Role::Node)).await;
    let _misled = call(room.credential("suspect", Role::Agent), &node);
    let wanted = ClientConfig::new(NbdUri::new(Address::Inbound(node.clone()), ""));
    let error = refused(wanted).await;
    assert_eq!(error.errno(), EACCES, "{error}");
    agent.abort();
    strangers.iter().for_each(|task| task.abort());
}

/// Passes bytes on, and keeps them.
async fn tap(to: SocketAddr) -> (SocketAddr, Arc<parking_lot::Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(to).await.unwrap();
            let ((mut a, mut b), (mut c, mut d)) = (near.into_split(), far.into_split());
            let (one, two) = (Arc::clone(&kept), Arc::clone(&kept));
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(len @ 1..) = a.read(&mut buffer).await {
                    one.lock().extend_from_slice(&buffer[..len]);
                    d.write_all(&buffer[..len]).await.unwrap();
                }
            });
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(len @ 1..) = c.read(&mut buffer).await {
                    two.lock().extend_from_slice(&buffer[..len]);
                    b.write_all(&buffer[..len]).await.unwrap();
                }
            });
        }
    });
    (address, seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_the_content_is_on_the_wire_with_tls_and_all_of_it_in_clear() {
    let room = Room::new();
    let node = room.credential("pc7", Role::Node);
    for secured in [true, false] {
        let (tap, seen) = tap(start(secured.then_some(&node), ServerConfig::default()).await).await;
        let examiner = config(tap, &room.credential("desk", Role::Examiner), Role::Node);
        let credentials = examiner.credentials.acting_as().filter(|_| secured).cloned().into();
        let client = Client::connect(ClientConfig { credentials, writable: true, ..examiner }).await.unwrap();
        let content = pattern(1 << 20, 77);
        client.write(0, Data::from(content.clone()), false).await.unwrap();
        assert!(client.read(ByteRange::new(0, 1 << 20)).await.unwrap().into_bytes()[..] == content[..]);
        let seen = seen.lock();
        let found = content.chunks_exact(4096).filter(|page| {
            let part = &page[1000..1032];
            seen.windows(32).step_by(1).any(|window| window == part)
        });
        let found = found.take(3).count();
        assert_eq!(found > 0, !secured);
    }
}

/// Runs a program that connects; whether it succeeds.
async fn runs(program: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = tokio::process::Command::new(program);
    let output = tokio::time::timeout(PATIENCE, command.args(arguments).kill_on_drop(true).output()).await;
    let output = output.unwrap().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_clients_connect_with_the_right_certificates_only() {
    let (room, other) = (Room::new(), Room::new());
    let server = start(Some(&room.credential("pc7", Role::Node)), ServerConfig::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str, room: &Room, role| {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        room.member(name, role).write_to(&folder);
        folder.to_str().unwrap().to_owned()
    };
    let ours = folder("desk", &room, Role::Examiner);
    let (node, theirs) = (folder("pc8", &room, Role::Node), folder("stranger", &other, Role::Examiner));
    let out = dir.path().join("copy.raw").to_str().unwrap().to_owned();
    for (certificates, accepted) in [(&ours, true), (&node, false), (&theirs, false)] {
        if programs(&["nbdcopy"]) {
            let uri = format!("nbds://localhost:{}/?tls-certificates={certificates}", server.port());
            let (copied, why) = runs("nbdcopy", &[&uri, &out]).await;
            assert_eq!(copied, accepted, "nbdcopy: {why}");
            assert!(!copied || std::fs::read(&out).unwrap() == pattern(SIZE, 1));
            let _ = std::fs::remove_file(&out);
        }
        if programs(&["qemu-img"]) {
            let tls = format!("tls-creds-x509,id=t,endpoint=client,dir={certificates}");
            let source = format!("driver=nbd,host=localhost,port={},tls-creds=t", server.port());
            let arguments = ["convert", "--object", &tls, "--image-opts", &source, "-O", "raw", &out];
            let (copied, why) = runs("qemu-img", &arguments).await;
            assert_eq!(copied, accepted, "qemu-img: {why}");
            assert!(!copied || std::fs::read(&out).unwrap() == pattern(SIZE, 1));
            let _ = std::fs::remove_file(&out);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_others_with_tls_are_read_with_the_right_certificates_only() {
    if !programs(&["nbdkit"]) {
        return;
    }
    let (room, other) = (Room::new(), Room::new());
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str, room: &Room| {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        room.member_with(name, "", 2020..2030).write_to(&folder);
        folder
    };
    let (ours, theirs) = (folder("localhost", &room), folder("stranger", &other));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut nbdkit = Command::new("nbdkit")
        .args(["-f", "-i", "127.0.0.1", "-p", &port.to_string(), "--tls=require", "--tls-verify-peer"])
        .arg(format!("--tls-certificates={}", ours.display()))
        .args(["pattern", "8M"])
        .spawn()
        .unwrap();
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let uri = |dir: &std::path::Path| format!("nbds://localhost:{port}/?tls-certificates={}", dir.display());
    let config = |uri: String| ClientConfig::new(uri.parse().unwrap());
    let client = Client::connect(ClientConfig { connections: 2, ..config(uri(&ours)) }).await.unwrap();
    let read = client.read(ByteRange::new(0, SIZE as u64)).await.unwrap().into_bytes();
    assert!(read.chunks_exact(8).enumerate().all(|(index, word)| word == (8 * index as u64).to_be_bytes()));
    refused(config(uri(&theirs))).await;
    refused(config(format!("nbd://localhost:{port}/"))).await;
    // A member of a room accepts no server outside of the room.
    let member = room.credential("desk", Role::Examiner);
    let usual = ClientConfig { credentials: Some(member).into(), ..config(format!("nbd://localhost:{port}/")) };
    refused(usual).await;
    nbdkit.kill().unwrap();
    nbdkit.wait().unwrap();
}
