//! Tasks that panic: a connection's panic ends that connection, any other ends the process in order. No server remains
//! in a state in which it runs but does not serve.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::node::http_get;
use crate::support::run::program;
use crate::support::service::PATIENCE;
use crate::support::{Desk, MIB, Node, Service, cheetah, text};

const NODE: [&str; 5] = ["node", "--memory", "16MiB", "--listen", "127.0.0.1:0"];
/// The first bytes an NBD server sends.
const GREETING: &[u8] = b"NBDMAGICIHAVEOPT";

/// Starts a service in which `place` panics once.
#[track_caller]
fn panicking(place: &str, args: &[&str]) -> Service {
    let mut command = program();
    command.arg("--json").args(args).env("CHEETAH_TEST_PANIC", place);
    Service::spawn(command, "ready").unwrap()
}

/// Whether an NBD server greets there.
fn greets(address: &str) -> bool {
    let mut greeting = [0; 16];
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut greeting).is_ok() && greeting == GREETING
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn panics(node: &Node) -> u64 {
    let metrics = http_get(&node.http, "/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix("cheetah_panics_total ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn a_panic_in_a_worker_thread_wipes_the_node_and_ends_it_with_an_error() {
    let mut node = panicking("nbd-worker", &NODE);
    let receipt: serde_json::Value = serde_json::from_str(&node.next_line().unwrap()).unwrap();
    assert_eq!(text(&receipt, "event"), "wiped", "{receipt} {}", node.stderr());
    assert_eq!(node.wait().0, Some(1), "{}", node.stderr());
    assert!(node.stderr().contains("this is a defect of cheetah"), "{}", node.stderr());
}

#[test]
fn a_panic_while_a_client_is_accepted_or_served_ends_that_connection_only() {
    for place in ["nbd-accept", "nbd-connection"] {
        let node = Node::of(panicking(place, &NODE));
        assert!(!greets(&node.nbd), "{place}");
        assert!(greets(&node.nbd), "{place}: another client is served");
        eventually("the panic is counted", || panics(&node) == 1);
        node.stop();
    }
    for place in ["http-accept", "http-connection"] {
        let node = Node::of(panicking(place, &NODE));
        let mut nothing = String::new();
        TcpStream::connect(&node.http).unwrap().read_to_string(&mut nothing).unwrap_or(0);
        assert_eq!(nothing, "", "{place}");
        eventually("the panic is counted", || panics(&node) == 1);
        node.stop();
    }
}

#[test]
fn joining_goes_on_after_a_panic() {
    let node = Node::of(panicking("join", &[&NODE[..], &["--join", "127.0.0.1:9"]].concat()));
    eventually("the panic is counted", || panics(&node) == 1);
    assert!(greets(&node.nbd));
    node.stop();
}

#[test]
fn a_drive_that_waits_for_nodes_gets_them_after_a_panic() {
    let desk = Desk::new();
    let drive = desk.arg("a.drive");
    let mut command = program();
    command.args(["--json", "create", &drive, "--wait", "1", "--listen", "127.0.0.1:0", "--size", "1MiB"]);
    command.env("CHEETAH_TEST_PANIC", "gather");
    let mut create = Service::spawn(command, "waiting").unwrap();
    // Its first offer to join panics; it repeats it.
    let node = Node::start_with("16MiB", "127.0.0.1:0", &["--join", text(&create.ready, "listen")]);
    assert_eq!(create.wait().0, Some(0), "{}", create.stderr());
    assert!(create.stderr().contains("asked for by CHEETAH_TEST_PANIC=gather"), "{}", create.stderr());
    cheetah(&["destroy", &drive]).ok();
    node.stop();
}

#[test]
fn an_export_and_an_agent_go_on_serving_after_a_panic() {
    let desk = Desk::new();
    let (image, _) = desk.image("disk.raw", MIB);
    for verb in ["export", "serve"] {
        let service = panicking("nbd-accept", &[verb, &image, "--listen", "127.0.0.1:0"]);
        let address = text(&service.ready, "uri").trim_start_matches("nbd://").split('/').next().unwrap().to_owned();
        assert!(!greets(&address), "{verb}");
        assert!(greets(&address), "{verb}");
    }
}

#[test]
fn a_node_without_file_handles_serves_clients_again_once_there_are_some() {
    let mut command = Command::new("sh");
    let program = program().get_program().to_owned();
    command.args(["-c", "ulimit -n 48; exec \"$0\" --json \"$@\""]).arg(program).args(NODE);
    let node = Node::of(Service::spawn(command, "ready").unwrap());
    let clients: Vec<_> = (0..96).map(|_| TcpStream::connect(&node.nbd).unwrap()).collect();
    eventually("the node runs out of file handles", || node.service.stderr().contains("could not accept a client"));
    drop(clients);
    eventually("the node greets again", || greets(&node.nbd));
    node.stop();
}
