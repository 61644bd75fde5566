//! The room on one page.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::lab::Lab;
use crate::support::run::cheetah_plain;
use crate::support::{Desk, MIB, Node, Service, cheetah, node, number, text, three, until};

/// The rows of the only drive's chart.
fn chart(picture: &Value) -> Vec<&str> {
    let rows = picture["drives"][0]["chart"].as_array().unwrap();
    rows.iter().map(|row| row["cells"].as_str().unwrap()).collect()
}

/// The machine that was asked at an address.
fn machine<'a>(picture: &'a Value, address: &str) -> &'a Value {
    let machines = picture["machines"].as_array().unwrap();
    machines.iter().find(|machine| machine["address"] == address).unwrap_or_else(|| panic!("no {address}: {picture}"))
}

#[test]
fn the_picture_of_a_room_agrees_with_what_its_nodes_say() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let invitation = lab.invite(&["--role", "node", "--uses", "2"]);
    let nodes = ["one", "two"].map(|name| lab.node(name, name, &["--room", &invitation]));
    let (image, _) = lab.0.image("disk.raw", 4 * MIB);
    let drive = lab.0.arg("case.drive");
    let list = node::list(&nodes.each_ref());
    lab.at("examiner", &["create", &drive, "--nodes", &list, "--from", &image]).ok();
    let all_known = |picture: &Value| picture["totals"]["answering"] == 2 && picture["totals"]["machines"] == 2;
    let ran = lab.eventually("examiner", &["watch", "--once", &drive], |ran| all_known(&ran.json()));
    let picture = ran.json();
    assert_eq!(text(&picture, "room"), "lab");
    let lent: u64 = picture["machines"].as_array().unwrap().iter().map(|one| number(&one["lends"], "lent_bytes")).sum();
    assert_eq!(number(&picture["totals"], "lent_bytes"), lent);
    let status = lab.at("examiner", &["status", &drive]).ok().json();
    let seen = &picture["drives"][0]["status"];
    for key in ["id", "size_bytes", "survives_losses", "content", "healthy"] {
        assert_eq!(seen[key], status[key], "{key}");
    }
    assert!(chart(&picture).iter().all(|cells| *cells == "r".repeat(64)), "{picture}");
    // The log beside the drive.
    assert!(picture["custody"].as_array().unwrap().iter().all(|log| log["problems"] == serde_json::json!([])));
    drop(server);
}

#[test]
fn a_killed_node_is_named_first_and_its_part_of_the_chart_is_lost() {
    let (desk, [first, second, third]) = (Desk::new(), three("32MiB"));
    let (image, _) = desk.image("disk.raw", 4 * MIB);
    let drive = desk.drive("case", &[&first, &second, &third], &image, &["--layout", "parity"]);
    let whole = cheetah(&["watch", "--once", &drive]).ok().json();
    assert_eq!(whole["drives"][0]["status"]["survives_losses"], 1);
    let at = second.http.clone();
    second.kill();
    let ran = cheetah(&["watch", "--once", &drive]).says(3, &["redundancy"]);
    let picture: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert_eq!((text(&picture, "state"), &picture["machines"][0]["address"]), ("attention", &at.as_str().into()));
    assert_eq!(picture["machines"][0]["state"], "lost", "{picture}");
    let sentence = text(&picture, "sentence");
    assert!(sentence.contains("case has lost nothing, and the loss of one more node may lose content"), "{sentence}");
    assert!(sentence.contains("1 of 3 machines runs no node any more"), "{sentence}");
    assert_eq!(chart(&picture), ["r".repeat(64), "l".repeat(64), "r".repeat(64)]);
    let shown = cheetah_plain(&["watch", "--once", &drive]).ended_with(3).out();
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains("DEGRADED") && shown.contains(&"L".repeat(64)), "{shown}");
    drop((first, third));
}

#[test]
fn a_drive_that_fills_shows_what_is_not_read_yet_as_a_job() {
    let (desk, node) = (Desk::new(), Node::start("32MiB"));
    let (image, _) = desk.image("disk.raw", 8 * MIB);
    let drive = desk.arg("lazy.drive");
    cheetah(&["create", &drive, "--nodes", node.address(), "--from", &image, "--lazy"]).ok();
    let picture = cheetah(&["watch", "--once", &drive]).ok().json();
    assert_eq!(chart(&picture), ["u".repeat(64)]);
    let sentence = text(&picture, "sentence");
    assert!(
        sentence.contains("NOT WHOLE YET: 8MiB of the source are not read") && !sentence.contains("whole"),
        "{sentence}"
    );
    let job = &picture["jobs"][0];
    assert_eq!((text(job, "kind"), number(job, "total_bytes"), number(job, "done_bytes")), ("fill", 8 * MIB, 0));
    assert_eq!((&job["writer"], &job["left_s"]), (&Value::Null, &Value::Null));
}

#[test]
fn nothing_to_watch_and_an_address_of_others_without_a_room_are_misuse() {
    let desk = Desk::new();
    let mut command = crate::support::run::program();
    command.env("XDG_CONFIG_HOME", desk.path()).args(["--json", "watch", "--once"]);
    crate::support::run::run(command).says(2, &["nothing to watch"]);
    cheetah(&["watch", "--once", "--custody", "/nonexistent"]).says(2, &["custody log"]);
    let node = Node::start("16MiB");
    cheetah(&["--room", "none", "watch", "--nodes", node.address(), "--listen", "0.0.0.0:0"]).says(2, &["room"]);
    let gone = cheetah(&["watch", "--once", "--nodes", "127.0.0.1:1"]).says(1, &["see above"]);
    let picture: Value = serde_json::from_str(gone.out().lines().next().unwrap()).unwrap();
    assert_eq!(picture["totals"]["answering"], 0);
}

/// The page, served by a process of its own.
struct Page {
    service: Service,
    at: String,
    secret: String,
}

impl Page {
    fn open(args: &[&str]) -> Self {
        let service = Service::start(&[&["watch", "--listen", "127.0.0.1:0"], args].concat());
        let url = text(&service.ready, "url").to_owned();
        let (at, secret) = url.strip_prefix("http://").unwrap().split_once("/#").unwrap();
        Self { at: at.to_owned(), secret: secret.to_owned(), service }
    }

    fn send(&self, path: &str, more: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        let host = if more.contains("Host:") { String::new() } else { format!("Host: {}\r\n", self.at) };
        write!(stream, "GET {path} HTTP/1.1\r\n{host}{more}\r\n").unwrap();
        BufReader::new(stream)
    }

    fn get(&self, path: &str, more: &str) -> String {
        let mut answer = String::new();
        self.send(path, &format!("{more}Connection: close\r\n")).read_to_string(&mut answer).unwrap();
        answer
    }

    fn known(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.secret)
    }
}

#[test]
fn the_page_shows_nothing_without_the_secret_and_runs_its_own_script_alone() {
    let node = Node::start("16MiB");
    let page = Page::open(&["--nodes", node.address()]);
    let (head, body) = {
        let answer = page.get("/", "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.to_owned())
    };
    let policy = head.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
    let nonce = policy.split_once("script-src 'nonce-").unwrap().1.split_once('\'').unwrap().0;
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(body.contains(&format!("<script nonce=\"{nonce}\">")) && !body.contains("NONCE"));
    assert!(!body.contains(&page.secret) && !body.contains("http://127"), "the page itself says nothing");
    let other = page.get("/", "");
    assert!(!other.contains(nonce), "each answer has a nonce of its own");
    for wrong in ["", "Authorization: Bearer 0123\r\n", "Authorization: Basic x\r\n"] {
        for path in ["/picture", "/events"] {
            assert!(page.get(path, wrong).starts_with("HTTP/1.1 401"), "{path} {wrong}");
        }
    }
    assert!(page.get("/picture", &format!("{}Host: evil.example\r\n", page.known())).starts_with("HTTP/1.1 403"));
    assert!(page.get("/else", &page.known()).starts_with("HTTP/1.1 404"));
}

#[test]
fn the_stream_tells_of_a_node_that_is_killed_and_the_command_ends_in_order() {
    let nodes = [Node::start("16MiB"), Node::start("16MiB")];
    let list = node::list(&nodes.each_ref());
    let page = Page::open(&["--nodes", &list]);
    let known = page.known();
    let mut events = page.send("/events", &known);
    let [first, second] = nodes;
    let mut killed = Some(second);
    let mut next = || loop {
        let mut line = String::new();
        assert!(events.read_line(&mut line).unwrap() > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data:") {
            break serde_json::from_str::<Value>(data).unwrap();
        }
    };
    until("both answer", || next()["totals"]["answering"] == 2);
    killed.take().unwrap().kill();
    until("one is gone", || {
        let picture = next();
        picture["totals"]["answering"] == 1 && picture["machines"][0]["state"] == "lost"
    });
    let answer = page.get("/picture", &known);
    let picture: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert!(machine(&picture, &first.http)["lends"].is_object());
    assert_eq!(page.service.stop(rustix::process::Signal::INT).0, Some(0));
}
