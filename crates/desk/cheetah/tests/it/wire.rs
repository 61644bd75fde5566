//! Clients without a credential at the ports of a room's servers, and replayed messages.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use cheetah_control::ControlClient;
use cheetah_control::api::{LeaseRequest, NewExport};
use cheetah_device::{ByteRange, Data, Device as _};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::{Address, NbdUri};
use cheetah_tls::testing::Room;
use cheetah_tls::{Expected, Role};

use crate::secured::{acting, credential, node};
use crate::support::service::PATIENCE;
use crate::support::tap::Tap;
use crate::support::{Desk, MIB};

/// The resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

/// Whether the server has closed a connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn handshakes_that_never_end_keep_no_member_out_and_are_cut() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let handles = usize::try_from(limit.maximum.unwrap_or(1 << 20)).unwrap();
    let count = std::env::var("CHEETAH_STRANGERS").ok().and_then(|count| count.parse().ok()).unwrap_or(2_000);
    let each = handles.saturating_sub(2_000).min(count) / 2;
    let desk = Desk::new();
    let room = Room::new();
    let examiner = credential(&desk, &room, "desk", Role::Examiner);
    let pc = node(&credential(&desk, &room, "pc1", Role::Node));
    let (image, _) = desk.image("disk.raw", 8 * MIB);
    let drive = desk.arg("case.drive");
    acting(&examiner, &["create", &drive, "--nodes", pc.address(), "--from", &image]).ok();
    let before = resident(pc.service.pid());
    // Silence, half an option, STARTTLS and nothing, and the beginning of a handshake.
    let starttls = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 5, 0, 0, 0, 0]].concat();
    let hello = [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 100]].concat();
    let mut strangers = Vec::new();
    for (to, says) in [
        (&pc.nbd, [&b""[..], &starttls[..9], &starttls, &[&starttls[..], &hello].concat()]),
        (&pc.http, [b"", &hello[..1], &hello[..20], &hello]),
    ] {
        for number in 0..each {
            let mut stream = TcpStream::connect(to).unwrap();
            // A connection that is evicted at once may be closed already.
            let _ = stream.write_all(says[number % 4]);
            stream.set_nonblocking(true).unwrap();
            strangers.push(stream);
        }
    }
    let after = resident(pc.service.pid());
    assert!(after < before + 64 * MIB, "{} strangers take {} KiB", 2 * each, (after - before) >> 10);
    acting(&examiner, &["verify", &drive]).ok();
    acting(&examiner, &["status", &drive]).ok();
    // One goes on, a byte at a time.
    let started = Instant::now();
    let mut slow = TcpStream::connect(&pc.http).unwrap();
    slow.set_nonblocking(true).unwrap();
    let mut rest = hello.iter().cycle();
    while !is_closed(&mut slow) {
        assert!(started.elapsed() < PATIENCE, "a slow handshake is not cut");
        let _ = slow.write(&[*rest.next().unwrap()]);
        std::thread::sleep(Duration::from_millis(50));
    }
    while let Some(mut stream) = strangers.pop() {
        while !is_closed(&mut stream) {
            assert!(started.elapsed() < PATIENCE, "{} are not cut", strangers.len());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    acting(&examiner, &["destroy", &drive]).ok();
}

/// Replays a client's bytes, and returns the server's answer until it closes the connection.
fn replay(said: &[u8], to: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut saying = stream.try_clone().unwrap();
    let said = said.to_vec();
    let saying = std::thread::spawn(move || {
        // The server closes the connection in the middle of it.
        let _ = saying.write_all(&said);
        let _ = saying.shutdown(Shutdown::Write);
    });
    let (mut answer, started) = (Vec::new(), Instant::now());
    let _ = stream.read_to_end(&mut answer);
    assert!(started.elapsed() < PATIENCE, "the server does not close the connection");
    saying.join().unwrap();
    answer
}

#[test]
fn replayed_leases_and_writes_change_nothing() {
    const EXPORT: &str = "case42";
    let desk = Desk::new();
    let room = Room::new();
    let pc = node(&credential(&desk, &room, "pc1", Role::Node));
    let examiner = room.credential("desk", Role::Examiner);
    let (nbd, http) = (Tap::new(&pc.nbd), Tap::new(&pc.http));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let control = |at: String| ControlClient::new(at, Some(&examiner)).with_timeout(PATIENCE);
    let (tapped, direct) = (control(http.address.to_string()), control(pc.http.clone()));
    let lease = LeaseRequest { holder: "test".into(), ttl_s: 300, force: false };
    let write = async |port: u16, token: &str, byte: u8| {
        let config = ClientConfig {
            credentials: Some(examiner.clone()).into(),
            expected: Expected::role(Role::Node),
            writable: true,
            contexts: vec![format!("x-cheetah:lease/{token}")],
            timeout: PATIENCE,
            ..ClientConfig::new(NbdUri::new(Address::Tcp { host: "127.0.0.1".into(), port }, EXPORT))
        };
        let client = Client::connect(config).await.unwrap();
        client.write(0, Data::from(vec![byte; 1 << 16]), false).await.unwrap();
        client.flush().await.unwrap();
        client
    };
    let port = |at: &str| at.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let (client, token) = runtime.block_on(async {
        direct.create_export(&NewExport::reserved(EXPORT, MIB)).await.unwrap();
        let token = tapped.acquire_lease(EXPORT, &lease).await.unwrap().token;
        drop(write(nbd.address.port(), &token, 7).await);
        tapped.release_lease(EXPORT, &token).await.unwrap();
        // Another writer, whose messages were not recorded.
        let token = direct.acquire_lease(EXPORT, &lease).await.unwrap().token;
        (write(port(&pc.nbd), &token, 9).await, token)
    });
    let (writes, calls) = (nbd.said(), http.said());
    assert!(writes.iter().map(Vec::len).sum::<usize>() > 1 << 16 && calls.len() == 2, "{}", calls.len());
    for (said, to) in [(&writes, &pc.nbd), (&calls, &pc.http)] {
        for said in said {
            // The greeting and the beginning of a new handshake, which the old answer does not fit.
            let answer = replay(said, to);
            assert!(answer.len() < 4096, "{} bytes in answer to what was played again", answer.len());
        }
    }
    runtime.block_on(async {
        let read = client.read(ByteRange::new(0, 1 << 16)).await.unwrap().into_bytes();
        assert!(read.iter().all(|byte| *byte == 9), "what was played again is written");
        // Neither was the lease taken, nor released.
        direct.renew_lease(EXPORT, &token).await.unwrap();
        assert_eq!(direct.status().await.unwrap().exports.len(), 1);
    });
}
