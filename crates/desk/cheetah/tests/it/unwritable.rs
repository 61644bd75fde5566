//! Output that cannot be written: a missing log makes no verb end, hang or report a different result.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::run::{Ran, program, run};
use crate::support::service::{PATIENCE, is_mounted};
use crate::support::stderr::Unwritable;
use crate::support::{Desk, MIB, Node, Service, cheetah, need, number, text};

/// More than any server of ours admits.
const CONNECTIONS: usize = 140;

/// Clients that are let in at once when a flood is over: more than a command connects.
const LET_IN: usize = 16;

/// Connects until the server has turned clients away, each with a warning; returns when it lets clients in again.
fn flood(address: &str) {
    let clients: Vec<_> = (0..CONNECTIONS).filter_map(|_| TcpStream::connect(address).ok()).collect();
    let started = Instant::now();
    // The greeting is 18 bytes; a client that is turned away gets none, or the end of the stream after it.
    let turned_away = |mut client: &TcpStream| {
        client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut greeting = [0; 64];
        match client.read(&mut greeting) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    };
    while !clients.iter().any(turned_away) {
        assert!(started.elapsed() < PATIENCE, "{address} refuses no client");
    }
    drop(clients);
    while !lets_in(address) {
        assert!(started.elapsed() < PATIENCE, "{address} still refuses clients");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the server answers each of several clients' first option, while all of them are connected.
fn lets_in(address: &str) -> bool {
    // The client's flags, and NBD_OPT_ABORT without data.
    let request = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &2u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
    let connect = || {
        let mut client = TcpStream::connect(address)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.write_all(&request)?;
        std::io::Result::Ok(client)
    };
    let Ok(clients) = (0..LET_IN).map(|_| connect()).collect::<Result<Vec<_>, _>>() else { return false };
    let mut greeting_and_reply = [0; 18 + 20];
    clients.iter().all(|mut client| client.read_exact(&mut greeting_and_reply).is_ok())
}

#[test]
fn node_under_a_flood_keeps_serving_its_drives() {
    let desk = Desk::new();
    let (image, _) = desk.image("a.raw", 2 * MIB);
    for stderr in Unwritable::ALL {
        let (service, _reader) = stderr.start(&["node", "--memory", "16MiB", "--listen", "127.0.0.1:0"]);
        let node = Node::of(service);
        let name = format!("{stderr:?}");
        let drive = desk.drive(&name, &[&node], &image, &[]);
        flood(&node.nbd);
        cheetah(&["verify", &drive, "--timeout", "60"]).ok();
        cheetah(&["destroy", &drive]).ok();
        assert_eq!(node.stop()["verified_zero"], true, "{name}");
    }
}

#[test]
fn export_and_serve_under_a_flood_keep_serving() {
    let desk = Desk::new();
    let (image, content) = desk.image("a.raw", 2 * MIB);
    for verb in ["export", "serve"] {
        for stderr in Unwritable::ALL {
            let (service, _reader) = stderr.start(&[verb, &image, "--listen", "127.0.0.1:0"]);
            let uri = text(&service.ready, "uri").to_owned();
            flood(uri.trim_start_matches("nbd://").trim_end_matches('/').split('/').next().unwrap());
            let copy = format!("{verb}-{stderr:?}.raw");
            cheetah(&["acquire", &uri, &desk.arg(&copy), "--timeout", "60"]).ok();
            assert!(std::fs::read(desk.at(&copy)).unwrap() == content, "{copy}");
            assert_eq!(service.stop(Signal::TERM).0, Some(0), "{verb}, {stderr:?}");
        }
    }
}

#[test]
fn mount_survives_a_read_that_fails() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    for stderr in Unwritable::ALL {
        let (image, _) = desk.image(&format!("{stderr:?}.raw"), 4 * MIB);
        let dir = desk.dir(&format!("{stderr:?}"));
        let (service, _reader) = stderr.start(&["mount", &image, &dir]);
        let file = File::open(text(&service.ready, "file")).unwrap();
        // Each read of an image that has changed fails, with a warning.
        File::options().write(true).open(&image).unwrap().set_len(MIB).unwrap();
        for offset in [3 * MIB, 2 * MIB] {
            let refused = file.read_exact_at(&mut [0; 4096], offset).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{stderr:?}");
        }
        drop(file);
        assert_eq!(service.stop(Signal::TERM).0, Some(0), "{stderr:?}");
        assert!(!is_mounted(&desk.at(&format!("{stderr:?}"))), "{stderr:?}: a stale mount is left");
    }
}

#[test]
fn acquire_gives_up_on_a_lost_source_when_it_was_told_to() {
    let desk = Desk::new();
    let (image, _) = desk.image("a.raw", 24 * MIB);
    for stderr in Unwritable::ALL {
        let agent = Service::start(&["serve", &image, "--listen", "127.0.0.1:0", "--rate-max", "1MiB"]);
        let uri = text(&agent.ready, "uri").to_owned();
        let copy = desk.arg(&format!("{stderr:?}.raw"));
        let journal = desk.at(&format!("{stderr:?}.raw.acquire"));
        let args = ["acquire", &uri, &copy, "--timeout", "1", "--retry-for", "1", "--checkpoint", "1MiB"];
        let ran = std::thread::scope(|scope| {
            let ran = scope.spawn(|| stderr.run(&args));
            let started = Instant::now();
            while !journal.exists() && !ran.is_finished() && started.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(10));
            }
            agent.kill();
            ran.join().unwrap()
        });
        assert_eq!(number(&ran.ended_with(1).json(), "exit_code"), 1, "{stderr:?}");
    }
}

#[test]
fn verify_of_a_lost_drive_ends_with_its_exit_code() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("a.raw", 2 * MIB);
    let drive = desk.drive("a", &[&node], &image, &[]);
    node.kill();
    for stderr in Unwritable::ALL {
        stderr.run(&["verify", &drive, "--timeout", "1"]).ended_with(3);
    }
    // As in `cheetah verify 2>&1 | head`, once head has ended.
    let mut command = program();
    let (stdout, stderr) = (std::io::pipe().unwrap().1, std::io::pipe().unwrap().1);
    command.args(["verify", &drive, "--timeout", "1"]).stdout(stdout).stderr(stderr).stdin(Stdio::null());
    assert_eq!(command.status().unwrap().code(), Some(3));
}

#[test]
fn a_reader_that_leaves_after_the_first_line_is_no_failure() {
    let mut command = program();
    let args = ["--json", "node", "--memory", "16MiB", "--listen", "127.0.0.1:0", "--room", "none"];
    let mut node = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("nbd"), "{line}");
    // The receipt cannot be written.
    rustix::process::kill_process(rustix::process::Pid::from_child(&node), Signal::TERM).unwrap();
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

#[test]
fn answer_that_cannot_be_written_is_a_failure() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("a.raw", 2 * MIB);
    let drive = desk.drive("a", &[&node], &image, &[]);
    for verb in ["status", "verify"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let without_reader = std::io::pipe().unwrap().1;
        for stdout in [Stdio::from(full), Stdio::from(without_reader)] {
            let mut command = program();
            let ran = command.args([verb, &drive]).stdout(stdout).output().unwrap();
            let said = String::from_utf8(ran.stderr).unwrap();
            assert!(ran.status.code() == Some(1) && said.contains("stdout"), "{verb}: {:?} {said}", ran.status);
        }
    }
    let mut command = program();
    command.arg("--help").stdout(std::io::pipe().unwrap().1).stderr(std::io::pipe().unwrap().1);
    assert_eq!(command.status().unwrap().code(), Some(0));
    let mut command = program();
    command.arg("--no-such").stderr(std::io::pipe().unwrap().1);
    assert_eq!(command.status().unwrap().code(), Some(2));
}

#[test]
fn a_stdout_that_is_closed_from_the_start_is_a_failure_and_dev_null_is_none() {
    let desk = Desk::new();
    let (image, _) = desk.image("a.raw", MIB);
    let copy = desk.arg("copy.raw");
    // The last one would start Python.
    let closed =
        [&["acquire", &image, &copy][..], &["generate", "man"], &["--version"], &["bench", "storage", "--help"]];
    for args in closed {
        let ran = redirected(args, ">&-");
        ran.says(1, &["cannot be written to stdout: it is closed"]);
    }
    std::fs::remove_file(&copy).unwrap();
    for args in &closed[1..3] {
        for null in [">/dev/null", "<>/dev/null 1<&0"] {
            redirected(args, null).ok();
        }
    }
}

/// `cheetah ARGS…` with a redirection of the shell.
fn redirected(args: &[&str], redirection: &str) -> Ran {
    let cheetah = program();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}")]).arg(cheetah.get_program()).args(args);
    command.envs(cheetah.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run(command)
}
