//! Measuring the path to a host, and the use of the results.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::node::http_get;
use crate::support::run::{cheetah_plain, program, run};
use crate::support::{Desk, MIB, Node, Service, cheetah, need, number, text, tool};

const FAR_OFF: [&str; 2] = ["--far", "none"];

/// Two machines on one cable, gone when dropped.
struct Cable {
    near: String,
    far: String,
}

impl Cable {
    const NEAR: &str = "10.99.0.1/24";
    const FAR: &str = "10.99.0.2";

    /// `None`, and it says so, where there can be none.
    fn new(name: &str) -> Option<Self> {
        if !need::is_root() || !need::programs(&["ip", "nsenter"]) {
            need::skip("needs root, for network namespaces");
            return None;
        }
        let id = std::process::id();
        let cable = Self { near: format!("ct-{name}n-{id}"), far: format!("ct-{name}f-{id}") };
        let (near, far) = (cable.near.as_str(), cable.far.as_str());
        for machine in [near, far] {
            tool("ip", &["netns", "add", machine]).ok();
        }
        let ends = ["link", "add", "eth0", "netns", near, "type", "veth", "peer", "name", "eth0", "netns", far];
        tool("ip", &ends).ok();
        for (machine, address) in [(near, Self::NEAR), (far, "10.99.0.2/24")] {
            tool("ip", &["-n", machine, "addr", "add", address, "dev", "eth0"]).ok();
            tool("ip", &["-n", machine, "link", "set", "eth0", "up"]).ok();
            tool("ip", &["-n", machine, "link", "set", "lo", "up"]).ok();
        }
        Some(cable)
    }

    /// `cheetah --json ARGS…` on one of the machines, by way of `before`.
    fn command(machine: &str, before: &[&str], args: &[&str]) -> Command {
        let mut command = Command::new(need::find("nsenter").unwrap());
        command.arg(format!("--net=/run/netns/{machine}")).args(before);
        command.arg(program().get_program()).arg("--json").args(args);
        command
    }

    fn probe(&self, args: &[&str]) -> crate::support::run::Ran {
        run(Self::command(&self.near, &[], &[&["probe", Self::FAR], args].concat()))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for machine in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "delete", machine]).output();
        }
    }
}

fn far_port(address: &str) -> String {
    address.parse::<SocketAddr>().unwrap().port().to_string()
}

/// The status of the response to a request with the Host header `host`.
fn status_as(address: &str, host: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /v1/probe HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn round_trips_are_measured_without_root() {
    let report = cheetah(&[&["probe", "127.0.0.1", "--only", "rtt"][..], &FAR_OFF].concat()).ok().json();
    assert_eq!((number(&report, "format"), text(&report, "address")), (1, "127.0.0.1"));
    assert!(number(&report["round_trip"], "answered") > 0, "{report}");
    assert!(report["advice"].is_null(), "without a rate there is none: {report}");
    let shown = cheetah_plain(&[&["probe", "127.0.0.1", "--only", "rtt"][..], &FAR_OFF].concat()).ok().out();
    assert!(shown.contains("round trip"), "{shown}");
}

#[test]
fn a_node_on_the_host_takes_part_and_the_report_has_advice() {
    let node = Node::start("8MiB");
    let args = ["probe", "127.0.0.1", "--only", "far", "--far", &far_port(&node.http), "--disk", "4TiB"];
    let report = cheetah(&args).ok().json();
    for rate in ["tcp_to_bits_per_s", "tcp_from_bits_per_s"] {
        assert!(report["far"][rate].as_f64().is_some_and(|rate| rate > 1e7), "{report}");
    }
    assert_eq!(number(&report["advice"], "disk_bytes"), 4 << 40);
    assert!(report["advice"]["raw_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{report}");
    let shown = cheetah_plain(&args).ok().out();
    assert!(shown.contains("TCP back") && shown.contains("4TiB"), "{shown}");

    // The limit on packets sent is kept.
    let report = cheetah(&[&args[..], &["--packets-max", "500"]].concat()).ok().json();
    assert!(report["far"]["tcp_to_bits_per_s"].is_null() && report["far"]["to_bits_per_s"].is_null(), "{report}");
    assert!(report["problems"].as_array().is_some_and(|problems| !problems.is_empty()), "{report}");

    let silent = Node::start_with("8MiB", "127.0.0.1:0", &["--no-probe"]);
    let port = far_port(&silent.http);
    let ran = cheetah(&["probe", "127.0.0.1", "--only", "far", "--far", &port]).ended_with(1);
    assert!(ran.out().contains("takes part in measurements"), "{}", ran.out());
    assert_eq!(silent.exports(), 0, "and its control API is as ever");
}

#[test]
fn an_agent_answers_probes_unless_disabled() {
    let desk = Desk::new();
    let (disk, _) = desk.image("disk.raw", MIB);
    let serve = |more: &[&str]| Service::start(&[&["serve", &disk, "--listen", "127.0.0.1:0"], more].concat());
    let about = |agent: &Service| -> Value {
        serde_json::from_str(&http_get(text(&agent.ready, "probe"), "/v1/probe")).unwrap()
    };
    let agent = serve(&["--name", "sda"]);
    let report = about(&agent);
    assert_eq!((text(&report, "name"), &report["sends"]), ("sda", &true.into()));
    let at = text(&agent.ready, "probe");
    assert!(at.starts_with("127.0.0.1:"), "where it listens for clients, and nowhere else: {at}");
    assert_eq!(status_as(at, at), 200);
    assert_eq!(status_as(at, "evil.example"), 403, "a page in a browser may not use it");
    let report = cheetah(&["probe", "127.0.0.1", "--only", "far", "--far", &far_port(at)]).ok().json();
    assert!(report["far"]["tcp_from_bits_per_s"].as_f64().is_some(), "{report}");

    // Its rate limit is reserved for the evidence.
    assert_eq!(about(&serve(&["--rate-max", "1MiB"]))["sends"], false);

    let silent = serve(&["--no-probe"]);
    assert!(silent.ready["probe"].is_null());
}

#[test]
fn every_verb_that_opens_a_source_tunes_to_its_link() {
    let desk = Desk::new();
    let (disk, content) = desk.image("disk.raw", 3 * MIB);
    let agent = Service::start(&["serve", &disk, "--listen", "127.0.0.1:0"]);
    let uri = text(&agent.ready, "uri").to_owned();
    let copy = desk.arg("copy.raw");
    let ran = cheetah(&["acquire", &uri, &copy, "--tune", "auto", "--hash", "sha256"]).ok();
    assert!(ran.stderr.contains("tuned to 127.0.0.1") && ran.stderr.contains("bit/s"), "{}", ran.stderr);
    assert!(std::fs::read(&copy).unwrap() == content);

    // The report of probe is accepted by tune, wherever a source is opened.
    let port = far_port(text(&agent.ready, "probe"));
    let report = cheetah(&["probe", "127.0.0.1", "--only", "rtt,far", "--far", &port]).ok().out();
    let path = desk.file("path.json", report.as_bytes());
    let socket = desk.arg("disk.sock");
    let export = Service::start(&["export", &uri, "--unix", &socket, "--tune", &path]);
    assert!(export.stderr().contains("tuned to 127.0.0.1"), "{}", export.stderr());
    let node = Node::start("16MiB");
    for (name, more) in [("a.drive", &["--lazy"][..]), ("b.drive", &[])] {
        let drive = desk.arg(name);
        let create = ["create", &drive, "--nodes", node.address(), "--from", &uri, "--tune", &path, "--hash", "none"];
        let ran = cheetah(&[&create, more].concat()).ok();
        assert!(ran.stderr.contains("tuned to 127.0.0.1"), "{}", ran.stderr);
    }
    // The export fills the lazy drive over a link, too.
    let socket = desk.arg("drive.sock");
    let filling = Service::start(&["export", &desk.arg("a.drive"), "--unix", &socket, "--tune", "auto"]);
    assert!(filling.stderr().contains("tuned to 127.0.0.1"), "{}", filling.stderr());
    // A local image has no link, so there is nothing to tune.
    let copy = desk.arg("again.raw");
    let ran = cheetah(&["acquire", &disk, &copy, "--tune", "auto", "--hash", "none"]).ok();
    assert!(ran.stderr.contains("nothing to tune"), "{}", ran.stderr);
}

#[test]
fn tuning_by_a_file_that_is_no_report_is_refused() {
    let desk = Desk::new();
    let acquire = |tune: &str| cheetah(&["acquire", "nbd://127.0.0.1:1/x", &desk.arg("x.raw"), "--tune", tune]);
    acquire(&desk.arg("missing.json")).says(1, &["missing.json"]);
    acquire(&desk.file("bad.json", b"{}")).says(2, &["bad.json", "probe --json"]);
    let other = r#"{"format":99,"host":"127.0.0.1","address":"127.0.0.1","started":"","hops":[],
        "trains":{"sent":0,"spoiled":0,"packets":0},"problems":[]}"#;
    acquire(&desk.file("other.json", other.as_bytes())).says(2, &["format 99"]);
}

#[test]
fn invalid_command_lines_are_refused() {
    for (args, words) in [
        (&["127.0.0.1", "--send", "now"][..], &["now", "train:N@GAP"][..]),
        (&["127.0.0.1", "--send", "train:20000@1us"], &["10000"]),
        (&["127.0.0.1", "--send", "single", "--only", "rtt"], &["--only"]),
        (&["127.0.0.1", "--only", "speed"], &["speed", "rtt"]),
        (&["127.0.0.1", "--backend", "fast"], &["fast", "ring"]),
        (&["127.0.0.1", "--port", "80"], &["--method"]),
        (&["127.0.0.1", "-6"], &["IPv6"]),
        (&["fe80::1%lo"], &["one link"]),
        (&["127.0.0.1", "--repeat", "3"], &["--send"]),
    ] {
        cheetah(&[&["probe"], args].concat()).says(2, words);
    }
    cheetah(&["probe", "no-such-host.invalid"]).says(1, &["no-such-host.invalid"]);
}

#[test]
fn an_interrupted_probe_sends_nothing_more() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    far.set_nonblocking(true).unwrap();
    let port = far.local_addr().unwrap().port().to_string();
    let mut probe = program();
    probe.args(["--json", "probe", "127.0.0.1", "--only", "rtt,far", "--far", &port]).stdout(Stdio::piped());
    // Round trips take five seconds and more, before it would ask the far end.
    probe.args(["--rate-max", "4"]);
    let mut probe = probe.spawn().unwrap();
    let pid = Pid::from_child(&probe);
    let status = format!("/proc/{}/status", probe.id());
    let is_caught = |line: &str| {
        let mask = line.strip_prefix("SigCgt:").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & 1 << (Signal::INT.as_raw() - 1) != 0)
    };
    while !std::fs::read_to_string(&status).unwrap().lines().any(is_caught) {
        assert!(probe.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(pid, Signal::INT).unwrap();
    probe.wait().unwrap();
    assert_eq!(std::iter::from_fn(|| far.accept().ok()).count(), 0, "the far end was asked");
}

#[test]
fn each_train_sent_is_reported() {
    let Some(cable) = Cable::new("s") else { return };
    let send = ["--send", "train:5@2ms", "--packet-bytes", "500", "--repeat", "2", "--gap-error-max", "60s"];
    let ran = cable.probe(&send).ok();
    let lines: Vec<Value> = ran.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [first, second, last] = &lines[..] else { panic!("{}", ran.out()) };
    for train in [first, second] {
        assert_eq!((text(train, "event"), text(train, "verdict")), ("train", "accepted"));
        let due: Vec<u64> = serde_json::from_value(train["due_ns"].clone()).unwrap();
        assert!(due.len() == 5 && due.windows(2).all(|pair| pair[1] - pair[0] == 2_000_000), "{due:?}");
        assert_eq!(train["left_ns"].as_array().map(Vec::len), Some(5));
    }
    assert_eq!((number(&last["trains"], "accepted"), number(&last["trains"], "packets")), (2, 10));
    assert!(!text(last, "backend").is_empty());
    // A probe that waits for the next train can be stopped.
    let mut waiting = Service::spawn(
        Cable::command(
            &cable.near,
            &[],
            &["probe", Cable::FAR, "--send", "single", "--repeat", "2", "--interval", "3600s"],
        ),
        "train",
    )
    .unwrap();
    waiting.signal(Signal::INT);
    assert_eq!(waiting.wait().0, Some(1));
    // A gap that no interface can keep.
    let ran = cable.probe(&["--send", "train:50@0", "--gap-error-max", "0", "--again", "1"]).ended_with(1);
    assert_eq!(
        number(
            &ran.out().lines().rev().nth(1).map(serde_json::from_str::<Value>).unwrap().unwrap()["trains"],
            "spoiled"
        ),
        2
    );
    // There is a limit to how many.
    cable.probe(&["--send", "train:50@0", "--packets-max", "40"]).says(2, &["--packets-max"]);
}

#[test]
fn without_the_right_to_raw_sockets_trains_are_refused_and_the_rest_goes_on() {
    let Some(cable) = Cable::new("r") else { return };
    if !need::programs(&["setpriv"]) {
        return;
    }
    let lesser = ["setpriv", "--bounding-set", "-net_raw"];
    let probe = |args: &[&str]| run(Cable::command(&cable.near, &lesser, &[&["probe", Cable::FAR], args].concat()));
    probe(&["--send", "single"]).says(1, &["cap_net_raw", "setcap"]);
    let report = probe(&["--only", "rtt,capacity", "--far", "none"]).ok().json();
    assert!(number(&report["round_trip"], "answered") > 0, "{report}");
    assert!(report["problems"].as_array().is_some_and(|problems| !problems.is_empty()), "{report}");
}

#[test]
fn a_probe_measures_a_cable_between_two_machines() {
    let Some(cable) = Cable::new("m") else { return };
    let report = cable.probe(&["--only", "rtt,mtu", "--far", "none"]).ok().json();
    assert_eq!((text(&report, "interface"), number(&report["mtu"], "bytes")), ("eth0", 1500));
    assert!(number(&report["round_trip"], "answered") > 0, "{report}");
    // A missing host ends the probe after its time limit.
    let absent = ["probe", "10.99.0.77", "--only", "rtt", "--far", "none"];
    run(Cable::command(&cable.near, &[], &absent)).ended_with(1);
}

#[test]
fn a_host_with_a_port_or_without_an_address_is_refused_in_plain_words() {
    cheetah_plain(&["probe", "127.0.0.1:10809"]).says(2, &["cheetah probe 127.0.0.1"]);
    let unknown = cheetah_plain(&["probe", "no-such-host.invalid"]).says(1, &["no address is known for", "IP address"]);
    assert!(!unknown.stderr.contains("failed to lookup"), "{}", unknown.stderr);
}
