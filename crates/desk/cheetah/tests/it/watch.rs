//! The room on one page.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::lab::Lab;
use crate::support::run::cheetah_plain;
use crate::support::{Desk, MIB, Node, Peer, Service, cheetah, need, node, noise, number, text, three, tool, until};

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

/// Serves a file. Each read runs a line of shell before: it begins at $4 and has $3 bytes.
fn serving(desk: &Desk, file: &str, before: &str) -> Peer {
    let size = format!("get_size=echo {}", std::fs::metadata(file).unwrap().len());
    let read = format!("pread={before}; dd if={file} iflag=skip_bytes,count_bytes skip=$4 count=$3 bs=1M status=none");
    Peer::nbdkit_unix(desk, &["eval", &size, &read])
}

/// A text whose lines were wrapped.
fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_load_shows_how_far_it_is_with_its_rate_and_its_process_until_it_is_done() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let (desk, node) = (Desk::new(), Node::start("80MiB"));
    let (image, _) = desk.image("disk.raw", 64 * MIB);
    let (drive, go) = (desk.arg("case.drive"), desk.arg("go"));
    // The second half is read once a file is there.
    let wait = format!("if [ $(($4 + $3)) -gt {} ]; then until [ -e {go} ]; do sleep 0.05; done; fi", 32 * MIB);
    let source = serving(&desk, &image, &wait);
    cheetah(&["create", &drive, "--nodes", node.address(), "--size", "64MiB"]).ok();
    let mut command = crate::support::run::program();
    command.args(["--json", "load", &drive, &source.uri, "--timeout", "600"]);
    let mut load = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let page = Page::open(&[&drive, "--timeout", "60"]);
    let known = page.known();
    let job = || -> Value {
        let answer = page.get("/picture", &known);
        let picture: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_default();
        picture["jobs"][0].clone()
    };
    until("the load says how far it is", || job()["done_bytes"].as_u64().is_some_and(|done| done > 0));
    until("it has a rate", || job()["bytes_per_s"].is_u64());
    let now = job();
    assert_eq!((text(&now, "kind"), number(&now, "total_bytes")), ("load", 64 * MIB));
    assert!(number(&now, "done_bytes") <= 32 * MIB && text(&now, "writer").contains("process"), "{now}");
    assert_eq!((number(&now, "unreadable_bytes"), number(&now, "unreadable_ranges")), (0, 0));
    let shown = in_a_line(&cheetah_plain(&["status", &drive]).out());
    assert!(shown.contains("being loaded: PARTIAL") && shown.contains("of 64MiB, unreadable 0B"), "{shown}");
    std::fs::write(&go, "").unwrap();
    assert_eq!(load.0.wait().unwrap().code(), Some(0));
    until("there is no job", || job().is_null());
}

#[test]
fn a_load_that_failed_stands_still_and_shows_how_far_it_came() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let (desk, node) = (Desk::new(), Node::start("24MiB"));
    let (image, _) = desk.image("disk.raw", 16 * MIB);
    let drive = desk.arg("case.drive");
    let bad = 12 * MIB;
    let fail = format!("if [ $4 -le {bad} ] && [ $(($4 + $3)) -gt {bad} ]; then echo 'EIO scratched' >&2; exit 1; fi");
    let source = serving(&desk, &image, &fail);
    cheetah(&["create", &drive, "--nodes", node.address(), "--size", "16MiB"]).ok();
    cheetah(&["load", &drive, &source.uri]).says(3, &["unreadable"]);
    let picture = cheetah(&["watch", "--once", &drive]).ok().json();
    let job = &picture["jobs"][0];
    assert!(number(job, "done_bytes") <= bad && job["writer"].is_null() && job["left_s"].is_null(), "{job}");
    let shown = in_a_line(&cheetah_plain(&["watch", "--once", &drive]).out());
    assert!(shown.contains("NO PROCESS does it") && shown.contains(" of 16MiB"), "{shown}");
    let shown = in_a_line(&cheetah_plain(&["status", &drive]).out());
    assert!(shown.contains("load never finished: PARTIAL"), "{shown}");
}

#[test]
fn a_node_that_missed_writes_says_how_much_of_its_part_may_lack_them() {
    let (desk, [first, second, third]) = (Desk::new(), three("32MiB"));
    let (image, _) = desk.image("disk.raw", 12 * MIB);
    let drive = desk.drive("case", &[&first, &second, &third], &image, &["--layout", "parity"]);
    let node = || -> Value {
        let out = cheetah(&["status", &drive]).out();
        let status: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
        status["nodes"][1].clone()
    };
    assert_eq!(node()["behind_bytes"], Value::Null);
    second.kill();
    cheetah(&["load", &drive, &image, "--force"]).ok();
    let node = node();
    assert_eq!(node["sync"], "stale", "{node}");
    assert!((1..=number(&node, "size_bytes")).contains(&number(&node, "behind_bytes")), "{node}");
    drop((first, third));
}

#[test]
fn of_each_machine_the_text_says_what_was_wiped_and_which_disks_it_sees() {
    let node = Node::start("16MiB");
    let args = ["watch", "--once", "--nodes", node.address()];
    let disks = cheetah(&args).ok().json()["machines"][0]["lends"]["disks_visible"].as_u64();
    let shown = cheetah_plain(&args).ok().out();
    let row = shown.lines().find(|line| line.contains(" own system ")).unwrap_or_else(|| panic!("{shown}"));
    let figures: Vec<_> = row.split_whitespace().rev().take(2).collect();
    let disks = disks.map_or_else(|| "-".to_owned(), |disks| disks.to_string());
    assert_eq!(figures, ["0B", &disks], "{shown}");
    assert!(["started from", "disks visible", "wiped"].iter().all(|word| shown.contains(word)), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn zeros_are_known_from_the_digests_and_verified_content_from_the_signed_log_alone() {
    let (desk, nodes) = (Desk::new(), [Node::start("32MiB"), Node::start("32MiB")]);
    let content = [vec![0; MIB as usize], noise(3 * MIB, 7)].concat();
    let image = desk.file("disk.raw", &content);
    let drive = desk.drive("case", &nodes.each_ref(), &image, &[]);
    let watched = || cheetah(&["watch", "--once", &drive]).ok().json();
    // What any of the nodes shows of a slice.
    let shown = |picture: &Value| -> String {
        let rows = chart(picture);
        let cell = |slice: usize| rows.iter().map(|row| row.as_bytes()[slice]).find(|cell| *cell != b'.');
        (0..64).filter_map(|slice| cell(slice).map(char::from)).collect()
    };
    let loaded = watched();
    assert_eq!(shown(&loaded), "z".repeat(16) + &"r".repeat(48));
    assert_eq!(loaded["drives"][0]["verification"], Value::Null);
    cheetah(&["verify", "--no-log", &drive]).ok();
    assert_eq!(watched()["drives"][0]["verification"], Value::Null, "it left no record");
    cheetah(&["verify", &drive]).ok();
    let verified = watched();
    assert_eq!(shown(&verified), "z".repeat(16) + &"v".repeat(48));
    let verification = &verified["drives"][0]["verification"];
    assert_eq!((&verification["ok"], &verification["holds"]), (&true.into(), &true.into()));
    let plain = cheetah_plain(&["watch", "--once", &drive]).ended_with(0).out();
    assert!(plain.contains("content verified 20") && plain.contains("✓·✓·✓") && plain.contains("0·0·0"), "{plain}");
    // An altered log is not believed.
    let log = format!("{drive}.custody");
    let altered = std::fs::read_to_string(&log).unwrap().replacen("\"ok\":true", "\"ok\":true ", 1);
    std::fs::write(&log, altered).unwrap();
    let ran = cheetah(&["watch", "--once", &drive]).ended_with(1);
    let picture: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert_eq!(picture["drives"][0]["verification"], Value::Null);
    assert_eq!(shown(&picture), "z".repeat(16) + &"r".repeat(48));
}

#[test]
fn nodes_of_a_redundant_drive_are_verified_once_its_redundancy_was_compared_and_a_new_node_is_not() {
    let (desk, [first, second, third]) = (Desk::new(), three("32MiB"));
    let image = desk.file("disk.raw", &noise(4 * MIB, 7));
    let drive = desk.drive("case", &[&first, &second, &third], &image, &["--layout", "parity"]);
    let shown = || -> Vec<String> {
        let picture = cheetah(&["watch", "--once", &drive]).ok().json();
        chart(&picture).iter().map(|cells| cells.chars().take(1).collect()).collect()
    };
    cheetah(&["verify", &drive]).ok();
    assert_eq!(shown(), ["r", "r", "r"], "no parity was read");
    cheetah(&["repair", &drive, "--check"]).ok();
    assert_eq!(shown(), ["v", "v", "v"]);
    second.kill();
    let spare = Node::start("32MiB");
    cheetah(&["repair", &drive, "--nodes", spare.address()]).ok();
    assert_eq!(shown(), ["v", "r", "v"], "its part was computed, and compared with nothing");
    drop((first, third));
}

#[test]
fn a_verification_that_found_problems_is_in_the_sentence() {
    if !need::programs(&["qemu-io"]) {
        return;
    }
    let (desk, node) = (Desk::new(), Node::start("32MiB"));
    let (image, _) = desk.image("disk.raw", 4 * MIB);
    let drive = desk.drive("case", &[&node], &image, &[]);
    let uri = format!("nbd://{}/{}", node.nbd, text(&node.status()["exports"][0], "name"));
    tool("qemu-io", &["-f", "raw", "-c", "write -P 7 1M 64k", &uri]).ok();
    cheetah(&["verify", &drive]).ended_with(3);
    let ran = cheetah(&["watch", "--once", &drive]).says(3, &["last verification"]);
    let picture: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert_eq!(text(&picture, "state"), "bad");
    assert!(text(&picture, "sentence").contains("found problems"), "{picture}");
    assert_eq!(chart(&picture), ["r".repeat(64)]);
}

/// What `probe --json` writes of a path on which the far end sent trains at this rate; `None`: nothing was measured.
fn probed(bits_per_s: Option<f64>) -> String {
    let far = bits_per_s.map(|rate| serde_json::json!({"name": "node (1)", "from_bits_per_s": rate}));
    let trains = serde_json::json!({"sent": 0, "spoiled": 0, "packets": 0});
    let report = serde_json::json!({
        "format": 1, "host": "localhost", "address": "127.0.0.1", "started": "2026-11-28T07:40:00Z", "hops": [],
        "far": far, "trains": trains, "problems": [],
    });
    report.to_string()
}

#[test]
fn a_link_is_drawn_beside_the_capacity_that_was_measured_and_otherwise_says_that_none_was() {
    let (desk, node) = (Desk::new(), Node::start("16MiB"));
    let plain = cheetah(&["watch", "--once", "--nodes", node.address()]).ok().json();
    let link = &plain["links"][0];
    assert_eq!((text(link, "host"), &link["capacity"], &link["most"]), ("127.0.0.1", &Value::Null, &Value::Null));
    let file = desk.file("path.json", probed(Some(8e8)).as_bytes());
    let args = ["watch", "--once", "--nodes", node.address(), "--probed", &file];
    let capacity = &cheetah(&args).ok().json()["links"][0]["capacity"];
    assert_eq!((number(capacity, "bytes_per_s"), text(capacity, "method")), (100_000_000, "trains"));
    assert_eq!((text(capacity, "at"), &capacity["at_least"]), ("2026-11-28T07:40:00Z", &false.into()));
    let shown = cheetah_plain(&args).ok().out();
    assert!(
        shown.contains("of 95.4MiB/s, measured") && shown.contains("2026-11-28T07:40:00Z by trains that it sent"),
        "{shown}"
    );
    let nothing = desk.file("none.json", probed(None).as_bytes());
    cheetah(&["watch", "--once", "--nodes", node.address(), "--probed", &nothing])
        .says(2, &["no capacity", "probe it again"]);
    cheetah(&["watch", "--once", "--probed", &desk.file("x", b"x")]).says(2, &["--probed", "not a report"]);
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
fn a_killed_node_is_in_the_sentence_of_the_first_picture_in_which_it_does_not_answer_and_the_command_ends_in_order() {
    let nodes = [Node::start("16MiB"), Node::start("16MiB")];
    let list = node::list(&nodes.each_ref());
    // A killed node refuses at once. That this machine is busy must not look like silence.
    let page = Page::open(&["--nodes", &list, "--timeout", "60"]);
    let known = page.known();
    let mut events = page.send("/events", &known);
    let [first, second] = nodes;
    let name = second.address().to_owned();
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
    let (mut seen_ms, mut was_gone) = (0, false);
    until("it runs no node", || {
        let picture = next();
        assert!(number(&picture, "at_ms") >= seen_ms, "an older picture follows: {picture}");
        seen_ms = number(&picture, "at_ms");
        let (is_gone, sentence) = (picture["totals"]["answering"] == 1, text(&picture, "sentence"));
        assert!(is_gone || !was_gone, "it answers again: {picture}");
        was_gone = is_gone;
        // It answers, or it is in the first row and in the sentence: nothing is between the two. If its last answer is cut off,
        // that says only that it cannot be reached.
        let state = text(&picture["machines"][0], "state");
        assert_eq!(["lost", "unreachable"].contains(&state), is_gone, "{picture}");
        assert_eq!(sentence.contains("1 of 2 machines") && sentence.contains(&name), is_gone, "{picture}");
        state == "lost"
    });
    assert_eq!(next()["totals"]["answering"], 1, "it stays gone");
    let answer = page.get("/picture", &known);
    let picture: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert!(machine(&picture, &first.http)["lends"].is_object());
    assert_eq!(page.service.stop(rustix::process::Signal::INT).0, Some(0));
}
