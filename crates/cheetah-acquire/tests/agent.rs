//! The agent against clients that do not keep to what they were told.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use cheetah_acquire::agent::{Agent, AgentConfig, Protection};
use cheetah_image::Identity;
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::proto::{Command, CommandFlags, ErrorCode, Request, X_CHEETAH};
use cheetah_nbd::{Address, NbdUri};

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

/// Enters the default export the old way, after which replies are simple. Says whether it is called read-only.
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
        // The connection goes on.
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
async fn clients_of_ours_are_told_what_they_read() {
    let file = source();
    let (address, identity) = agent(&file).await;
    let address = Address::Tcp { host: address.ip().to_string(), port: address.port() };
    let client = Client::connect(ClientConfig::new(NbdUri { address, export: String::new() })).await.unwrap();
    let told = client.description().unwrap().strip_prefix(X_CHEETAH).unwrap();
    assert_eq!(serde_json::from_str::<Identity>(told).unwrap(), identity);
    assert!(told.contains(r#""run":""#) && told.contains(r#""name":""#), "{told}");
    assert_eq!(identity.location, file.path().display().to_string());
}
