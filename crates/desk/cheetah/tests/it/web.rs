//! Images on web servers.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::support::run::{program, run};
use crate::support::{Desk, MIB, Service, cheetah, need, noise, text, tool, until};

/// A web server that answers requests for ranges, or redirects to what the file `NAME.location` holds. It replaces `changing.raw` after the first request for it.
/// Requests for bytes from 128 KiB to 1 MiB of a file wait while there is a file `NAME.wait`.
const SERVER: &str = r#"
import http.server, os, re, ssl, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = set()

    def do_GET(self):
        open("authorizations", "a").write("%s\n" % self.headers["Authorization"])
        try:
            to = open(os.path.basename(self.path.split("?")[0]) + ".location").read()
            self.send_response(302)
            self.send_header("Location", to)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        except OSError:
            pass
        try:
            content = open(os.path.basename(self.path.split("?")[0]), "rb").read()
        except OSError:
            self.send_error(404)
            return
        version = '"%d-%d"' % (len(content), "changing" in self.path and self.path in self.asked)
        self.asked.add(self.path)
        if self.headers["If-Match"] not in (None, version):
            self.send_response(412)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        while 128 << 10 <= first < 1 << 20 and os.path.exists(os.path.basename(self.path) + ".wait"):
            time.sleep(0.02)
        body = content[first : last + 1]
        self.send_response(206)
        self.send_header("ETag", version)
        self.send_header("Content-Range", "bytes %d-%d/%d" % (first, first + len(body) - 1, len(content)))
        self.send_header("Content-Length", str(len(body)))
        try:
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 1:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A running server of the files of a desk.
struct Web {
    child: Child,
    port: String,
}

impl Web {
    fn start(desk: &Desk, certificate: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).args(certificate).current_dir(desk.path()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, port: port.trim().to_owned() }
    }

    fn uri(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_image_on_a_web_server_is_exported_and_acquired() {
    if !need::programs(&["python3", "nbdcopy", "gzip"]) {
        return;
    }
    let desk = Desk::new();
    let (path, whole) = desk.image("disk.raw", 5 * MIB + 512);
    tool("gzip", &["-k", &path]).ok();
    let web = Web::start(&desk, &[]);
    for name in ["disk.raw", "disk.raw.gz"] {
        let served = Service::start(&["export", &web.uri(name), "--unix", &desk.arg("sock")]);
        tool("nbdcopy", &[text(&served.ready, "uri"), &desk.arg("exported.raw")]).ok();
        served.stop(Signal::INT);
        assert!(fs::read(desk.at("exported.raw")).unwrap() == whole, "{name}");
    }
    let copy = desk.arg("copy.raw");
    let source = &cheetah(&["acquire", &format!("{}?signature=secret", web.uri("disk.raw")), &copy]).ok().json()
        ["report"]["source"]
        .clone();
    assert!(fs::read(&copy).unwrap() == whole);
    assert_eq!((text(source, "kind"), text(source, "location")), ("http", web.uri("disk.raw").as_str()));
    assert_eq!(text(&source["server"], "description"), format!("ETag \"{}-0\"", whole.len()));
}

#[test]
fn a_file_that_changes_on_the_server_ends_the_acquisition() {
    if !need::programs(&["python3"]) {
        return;
    }
    let desk = Desk::new();
    desk.file("changing.raw", &noise(3 * MIB, 1));
    let web = Web::start(&desk, &[]);
    cheetah(&["acquire", &web.uri("changing.raw"), &desk.arg("copy.raw")]).says(1, &["changing.raw", "changed"]);
    assert!(!desk.at("copy.raw").exists());
    cheetah(&["acquire", &web.uri("absent.raw"), &desk.arg("copy.raw")]).says(1, &["absent.raw", "404"]);
}

#[test]
fn each_redirection_is_in_the_report_and_the_log_and_none_leads_to_an_object() {
    if !need::programs(&["python3"]) {
        return;
    }
    let desk = Desk::new();
    let (_, whole) = desk.image("disk.raw", MIB);
    let (web, other) = (Web::start(&desk, &[]), Web::start(&desk, &[]));
    // The user's credentials for an object store that is this server.
    let acquire = |name: &str, to: &str| {
        let mut command = program();
        command.envs([("AWS_ACCESS_KEY_ID", "AKIATEST"), ("AWS_SECRET_ACCESS_KEY", "x")]);
        command.env("AWS_ENDPOINT_URL", web.uri("").trim_end_matches('/'));
        command.args(["--json", "acquire", &web.uri(name), &desk.arg(to)]);
        run(command)
    };
    desk.file("first.raw.location", b"second.raw?signature=secret");
    desk.file("second.raw.location", other.uri("disk.raw").as_bytes());
    let acquired = acquire("first.raw", "copy.raw").ok().json();
    assert!(fs::read(desk.at("copy.raw")).unwrap() == whole);
    let hops = [web.uri("second.raw"), other.uri("disk.raw")];
    assert_eq!(acquired["report"]["source"]["server"]["redirections"], serde_json::json!(hops), "{acquired}");
    for file in ["copy.raw.report.txt", "copy.raw.custody"] {
        let text = fs::read_to_string(desk.at(file)).unwrap();
        assert!(hops.iter().all(|hop| text.contains(hop)) && !text.contains("secret"), "{file}: {text}");
    }
    let elsewhere = ["s3://private/key.raw", "file:///etc/hostname", "nbd://127.0.0.1/x", "http://192.0.2.1/d.raw"];
    for to in elsewhere.into_iter().chain(["ftp://127.0.0.1/d.raw", "https://user:secret@127.0.0.1/d.raw"]) {
        desk.file("away.raw.location", to.as_bytes());
        acquire("away.raw", "never.raw").says(1, &["away.raw", "redirects"]);
        assert!(!desk.at("never.raw").exists());
    }
    let sent = fs::read_to_string(desk.at("authorizations")).unwrap();
    assert!(sent.lines().all(|line| line == "None"), "no request was signed: {sent}");
}

/// Each file in the report has its own hash, that of sha256sum.
fn is_with_the_hash_of_each_file(desk: &Desk, report: &serde_json::Value, count: usize) {
    let files = report["files"].as_array().unwrap();
    assert!(files.len() == count, "{files:?}");
    for file in files {
        let (_, name) = text(file, "file").rsplit_once('/').unwrap();
        assert_eq!(text(file, "sha256"), &tool("sha256sum", &[&desk.arg(name)]).ok().out()[..64], "{file}");
    }
}

#[test]
fn a_raw_image_on_a_web_server_has_its_hash_whatever_hashes_of_the_content_are_made() {
    if !need::programs(&["python3", "sha256sum"]) {
        return;
    }
    let desk = Desk::new();
    desk.image("disk.raw", 2 * MIB + 512);
    let web = Web::start(&desk, &[]);
    for hash in ["md5", "sha256,md5"] {
        let words = ["acquire", &web.uri("disk.raw"), &desk.arg(&format!("{hash}.raw")), "--hash", hash];
        is_with_the_hash_of_each_file(&desk, &cheetah(&words).ok().json()["report"], 1);
    }
}

#[test]
fn an_e01_image_of_several_segments_on_a_web_server_is_the_image() {
    if !need::programs(&["python3", "nbdcopy"]) {
        return;
    }
    let desk = Desk::new();
    let (path, whole) = desk.image("disk.raw", 5 * MIB + 512);
    cheetah(&["acquire", &path, &desk.arg("case.E01"), "--segment-size", "1MiB", "--level", "none"]).ok();
    assert!(desk.at("case.E05").exists());
    let web = Web::start(&desk, &[]);
    let served = Service::start(&["export", &web.uri("case.E01"), "--unix", &desk.arg("sock")]);
    tool("nbdcopy", &[text(&served.ready, "uri"), &desk.arg("exported.raw")]).ok();
    served.stop(Signal::INT);
    assert!(fs::read(desk.at("exported.raw")).unwrap() == whole);
    let report = cheetah(&["acquire", &web.uri("case.E01"), &desk.arg("copy.raw")]).ok().json()["report"].clone();
    assert!(fs::read(desk.at("copy.raw")).unwrap() == whole);
    assert_eq!(text(&report["source"], "kind"), "e01");
    is_with_the_hash_of_each_file(&desk, &report, 5);
    // A set with a gap, or without its end, is not an image.
    let last = fs::read(desk.at("case.E05")).unwrap();
    fs::remove_file(desk.at("case.E03")).unwrap();
    cheetah(&["acquire", &web.uri("case.E01"), &desk.arg("gap.raw")]).says(3, &["case.E03 is missing", "case.E04"]);
    for name in ["case.E04", "case.E05", "case.E06"] {
        let _ = fs::remove_file(desk.at(name));
    }
    cheetah(&["acquire", &web.uri("case.E01"), &desk.arg("cut.raw")]).says(3, &["case.E03"]);
    // A signature holds for one file, so no other is looked for.
    cheetah(&["acquire", &format!("{}?signature=secret", web.uri("case.E01")), &desk.arg("one.raw")])
        .says(3, &["case.E02"]);
    assert!(!last.is_empty() && !desk.at("gap.raw").exists() && !desk.at("cut.raw").exists());
}

#[test]
fn segments_that_passed_before_an_acquisition_was_killed_have_their_hashes_in_the_report() {
    if !need::programs(&["python3", "sha256sum"]) {
        return;
    }
    let desk = Desk::new();
    let (path, whole) = desk.image("disk.raw", 9 * MIB);
    cheetah(&["acquire", &path, &desk.arg("case.E01"), "--segment-size", "2MiB", "--level", "none"]).ok();
    let web = Web::start(&desk, &[]);
    let words = ["acquire", &web.uri("case.E01"), &desk.arg("copy.raw"), "--checkpoint", "1MiB"];
    let wait = desk.file("case.E04.wait", b"");
    let mut command = program();
    let mut child = command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = || String::from_utf8_lossy(&fs::read(desk.at("copy.raw.acquire")).unwrap_or_default()).into_owned();
    until("the hash of the third segment is kept", || journal().contains(r#"{"file":2,"#));
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(wait).unwrap();
    let report = cheetah(&words).ok().json()["report"].clone();
    assert!(fs::read(desk.at("copy.raw")).unwrap() == whole);
    assert_eq!(report["interruptions"], 1);
    is_with_the_hash_of_each_file(&desk, &report, 4);
}

#[test]
fn a_split_image_on_a_web_server_is_the_image() {
    if !need::programs(&["python3"]) {
        return;
    }
    let desk = Desk::new();
    let (_, whole) = desk.image("disk.raw", 5 * MIB + 512);
    for (number, part) in whole.chunks(MIB as usize).enumerate() {
        desk.file(&format!("disk.{:03}", number + 1), part);
    }
    let web = Web::start(&desk, &[]);
    let acquired = cheetah(&["acquire", &web.uri("disk.001"), &desk.arg("copy.raw")]).ok().json();
    assert!(fs::read(desk.at("copy.raw")).unwrap() == whole);
    assert_eq!(text(&acquired["report"]["source"], "kind"), "split");
    let files = acquired["report"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 6);
    for (file, number) in files.iter().zip(1..) {
        let sum = tool("sha256sum", &[&desk.arg(&format!("disk.{number:03}"))]).ok().out();
        assert_eq!(text(file, "sha256"), &sum[..64], "{file}");
    }
    let refused = |name: &str, code, says: &[&str]| {
        cheetah(&["acquire", &web.uri(name), &desk.arg("refused.raw")]).says(code, says);
        assert!(!desk.at("refused.raw").exists());
    };
    refused("disk.002", 2, &["disk.002", "first part"]);
    refused("disk.001?signature=secret", 2, &["disk.001", "one file only"]);
    let third = fs::read(desk.at("disk.003")).unwrap();
    desk.file("disk.003", &third[1..]);
    refused("disk.001", 3, &["disk.003", "cut short"]);
    fs::remove_file(desk.at("disk.003")).unwrap();
    refused("disk.001", 3, &["disk.003 is missing", "disk.004"]);
}

#[test]
fn a_server_is_verified_by_its_certificate() {
    if !need::programs(&["python3", "openssl"]) {
        return;
    }
    let desk = Desk::new();
    let (_, whole) = desk.image("disk.raw", MIB);
    let (key, certificate) = (desk.arg("key.pem"), desk.arg("certificate.pem"));
    let request = ["req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=lab", "-days", "2"];
    let names = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
    tool("openssl", &[&request[..], &names, &["-keyout", &key, "-out", &certificate]].concat()).ok();
    let web = Web::start(&desk, &[&certificate, &key]);
    let acquire = |trusted: &str, to: &str| {
        let mut command = program();
        command.env("SSL_CERT_FILE", trusted).args(["acquire", &format!("https://localhost:{}/disk.raw", web.port)]);
        command.arg(desk.arg(to));
        run(command)
    };
    acquire(&certificate, "copy.raw").ok();
    assert!(fs::read(desk.at("copy.raw")).unwrap() == whole);
    let other = desk.arg("other.pem");
    tool("openssl", &[&request[..], &names, &["-keyout", &desk.arg("other.key"), "-out", &other]].concat()).ok();
    acquire(&other, "refused.raw").says(1, &["https://localhost", "certificate"]);
}
