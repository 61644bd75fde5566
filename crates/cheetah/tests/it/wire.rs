//! Strangers at the ports of a room's servers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cheetah_tls::Role;
use cheetah_tls::testing::Room;

use crate::secured::{acting, credential, node};
use crate::support::service::PATIENCE;
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
