//! The agent against clients that violate the protocol.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use cheetah_acquire::agent::{Agent, AgentConfig, Protection};
use cheetah_device::{ByteRange, Device as _};
use cheetah_image::Identity;
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::proto::{Command, CommandFlags, ErrorCode, Request, X_CHEETAH};
use cheetah_nbd::{Address, Method, NbdUri, Packing};

fn content() -> Vec<u8> {
    (0..1 << 20).map(|at: u32| (at % 251) as u8).collect()
}

async fn agent(file: &tempfile::NamedTempFile) -> (SocketAddr, Identity) {
    let listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    let agent = Agent::start(AgentConfig { listen, ..AgentConfig::new(file.path()) }).await.unwrap();
    assert!(matches!(agent.protection(), Protection::Not(_)));
    let (address, identity) = (agent.address().unwrap(), agent.identity().clone());
    tokio::spawn(agent.run());
    (address, identity)
}

fn source() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&content()).unwrap();
    file
}

/// Enters the default export with NBD_OPT_EXPORT_NAME, after which replies are simple. Returns whether its flags say
/// read-only.
fn enter(server: SocketAddr) -> (TcpStream, bool) {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let mut hello = 3u32.to_be_bytes().to_vec();
    hello.extend(b"IHAVEOPT");
    hello.extend(1u32.to_be_bytes());
    hello.extend(0u32.to_be_bytes());
    stream.write_all(&hello).unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    (stream, answer[9] & 2 != 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_writes_nonetheless_is_refused_and_the_source_untouched() {
    let file = source();
    let before = std::fs::metadata(file.path()).unwrap().modified().unwrap();
    let (address, _) = agent(&file).await;
    tokio::task::spawn_blocking(move || {
        let (mut stream, read_only) = enter(address);
        assert!(read_only);
        for (cookie, command) in [Command::Write, Command::WriteZeroes, Command::Trim].into_iter().enumerate() {
            for flags in [CommandFlags::NONE, CommandFlags::FUA] {
                let request = Request { flags, command, cookie: cookie as u64, offset: 4096, len: 8192 };
                let mut out = BytesMut::new();
                request.encode(&mut out);
                out.resize(out.len() + request.payload_len() as usize, 0xee);
                stream.write_all(&out).unwrap();
                let mut reply = [0; 16];
                stream.read_exact(&mut reply).unwrap();
                let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
                assert_eq!(ErrorCode::from_wire(error), Err(ErrorCode::Perm), "{command:?}");
                assert_eq!(reply[8..], (cookie as u64).to_be_bytes());
            }
        }
        // The connection continues to work.
        let mut out = BytesMut::new();
        Request { flags: CommandFlags::NONE, command: Command::Read, cookie: 9, offset: 4000, len: 9000 }
            .encode(&mut out);
        stream.write_all(&out).unwrap();
        let mut reply = vec![0; 16 + 9000];
        stream.read_exact(&mut reply).unwrap();
        assert!(reply[16..] == content()[4000..13_000]);
    })
    .await
    .unwrap();
    assert!(std::fs::read(file.path()).unwrap() == content());
    assert_eq!(std::fs::metadata(file.path()).unwrap().modified().unwrap(), before);
}

#[tokio::test]
async fn the_identity_of_the_source_is_the_description_of_the_export() {
    let file = source();
    let (address, identity) = agent(&file).await;
    let address = Address::Tcp { host: address.ip().to_string(), port: address.port() };
    let client = Client::connect(ClientConfig::new(NbdUri::new(address, ""))).await.unwrap();
    let description = client.description().unwrap().strip_prefix(X_CHEETAH).unwrap();
    assert_eq!(serde_json::from_str::<Identity>(description).unwrap(), identity);
    assert!(description.contains(r#""run":""#) && description.contains(r#""name":""#), "{description}");
    assert_eq!(identity.location, file.path().display().to_string());
}

#[tokio::test]
async fn digests_are_made_of_what_the_source_holds_now_and_no_content_is_sent() {
    let file = source();
    let (address, _) = agent(&file).await;
    let address = Address::Tcp { host: address.ip().to_string(), port: address.port() };
    let uri = NbdUri::new(address, "");
    let client = |packing| Client::connect(ClientConfig { packing, ..ClientConfig::new(uri.clone()) });
    let omitting = client(Packing::Wanted(Method::Omit)).await.unwrap();
    let digest = |content: &[u8]| *blake3::hash(content).as_bytes();
    let whole = ByteRange::new(0, 1 << 20);
    assert_eq!(omitting.digests(whole).await.unwrap(), [digest(&content())]);
    assert_eq!(omitting.digests(ByteRange::new(4000, 99)).await.unwrap(), [digest(&content()[4000..4099])]);
    std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"changed", 1 << 19).unwrap();
    let mut changed = content();
    changed[1 << 19..(1 << 19) + 7].copy_from_slice(b"changed");
    let (again, _) = agent(&file).await;
    let address = Address::Tcp { host: again.ip().to_string(), port: again.port() };
    let packing = Packing::Wanted(Method::Omit);
    let config = ClientConfig { packing, ..ClientConfig::new(NbdUri::new(address, "")) };
    let second = Client::connect(config).await.unwrap();
    assert_eq!(second.digests(whole).await.unwrap(), [digest(&changed)]);
    assert_ne!(second.description(), omitting.description(), "the descriptions of two processes differ");
    assert!(omitting.stats().received_bytes < 4096, "{:?}", omitting.stats());
    assert!(omitting.read(whole).await.is_err(), "a digest is no content");
    assert!(omitting.digests(ByteRange::new(1 << 20, 1)).await.is_err());
    let reading = client(Packing::Wanted(Method::Auto)).await.unwrap();
    let refused = reading.digests(whole).await.unwrap_err();
    assert!(matches!(refused, cheetah_device::Error::Unsupported(_)), "{refused}");
}
