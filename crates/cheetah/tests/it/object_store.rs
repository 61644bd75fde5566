//! Images in object stores.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::run::{Ran, program, run};
use crate::support::{Desk, MIB, cheetah, need, text};

/// A server of S3's protocol that verifies signatures. Its buckets are the folders in a desk's folder `store`.
struct Store {
    child: Child,
    endpoint: String,
    /// Closing it would end the server.
    _output: BufReader<ChildStdout>,
}

impl Store {
    fn start(desk: &Desk) -> Self {
        let mut command = Command::new("s3s-fs");
        command.args(["--host", "127.0.0.1", "--port", "0", "--access-key", "id", "--secret-key", "hidden"]);
        command.arg(desk.at("store")).env("RUST_LOG", "s3s_fs=info").env("NO_COLOR", "1");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let endpoint = loop {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "s3s-fs ended");
            if let Some((_, at)) = line.split_once("running at ") {
                break at.trim().to_owned();
            }
        };
        Self { child, endpoint, _output: output }
    }

    /// Runs an acquisition with these settings and no others.
    fn acquire(&self, settings: &[(&str, &str)], source: &str, to: &str) -> Ran {
        let mut command = program();
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
            command.env_remove(name);
        }
        command.env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null").env("AWS_CONFIG_FILE", "/dev/null");
        command.env("AWS_ENDPOINT_URL", &self.endpoint).envs(settings.iter().copied());
        command.args(["--json", "acquire", source, to]);
        run(command)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hidden")];

#[test]
fn a_raw_image_and_an_e01_image_of_several_segments_in_an_object_store_are_the_image() {
    if !need::programs(&["s3s-fs"]) {
        return;
    }
    let desk = Desk::new();
    let (path, whole) = desk.image("disk.raw", 5 * MIB + 512);
    let folder = desk.at("store/lab/case 42");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(&path, folder.join("disk+1.raw")).unwrap();
    let first = folder.join("disk.E01");
    cheetah(&["acquire", &path, first.to_str().unwrap(), "--segment-size", "1MiB", "--level", "none"]).ok();
    assert!(folder.join("disk.E05").exists());
    let store = Store::start(&desk);
    for (key, kind) in [("disk+1.raw", "http"), ("disk.E01", "e01")] {
        let (uri, copy) = (format!("s3://lab/case 42/{key}"), desk.arg(&format!("{kind}.raw")));
        let report = store.acquire(&KEY, &uri, &copy).ok().json()["report"].clone();
        assert!(fs::read(&copy).unwrap() == whole, "{key}");
        assert_eq!((text(&report["source"], "kind"), text(&report["source"], "location")), (kind, uri.as_str()));
        assert!(!report.to_string().contains("hidden"));
    }
}

#[test]
fn an_object_is_refused_without_valid_credentials_and_the_error_says_what_to_do() {
    if !need::programs(&["s3s-fs"]) {
        return;
    }
    let desk = Desk::new();
    fs::create_dir_all(desk.at("store/lab")).unwrap();
    desk.image("store/lab/disk.raw", MIB);
    let store = Store::start(&desk);
    let refused = |settings: &[(&str, &str)], source: &str, code, says: &[&str]| {
        store.acquire(settings, source, &desk.arg("refused.raw")).says(code, says);
        assert!(!desk.at("refused.raw").exists());
    };
    let (disk, wrong) = ("s3://lab/disk.raw", [KEY[0], ("AWS_SECRET_ACCESS_KEY", "other")]);
    refused(&[], disk, 2, &["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_NO_SIGN_REQUEST"]);
    refused(&wrong, disk, 1, &[disk, "403", "credentials are valid"]);
    refused(&[("AWS_NO_SIGN_REQUEST", "true")], disk, 1, &[disk, "403", "public"]);
    refused(&KEY, "s3://lab/absent.raw", 1, &["s3://lab/absent.raw", "404", "exists"]);
    refused(&KEY, "s3://lab", 2, &["s3://BUCKET/KEY"]);
    let in_clear = [KEY[0], KEY[1], ("AWS_ENDPOINT_URL_S3", "http://store.example")];
    refused(&in_clear, disk, 2, &["http://store.example", "not encrypted"]);
}
