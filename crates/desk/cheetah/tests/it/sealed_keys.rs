//! Keys of sealed drives reach no log, no file, no argument, no environment and no core dump.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use rustix::process::Signal;

use crate::sealed::{drive_key, identity, sealed};
use crate::support::run::{Ran, program, run};
use crate::support::{Desk, MIB, Node, Service, need, node};

/// The forms in which a secret may appear: as it is, in hexadecimal, in base64 at any place of a longer text, and as a list of
/// numbers.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let numbers: Vec<_> = secret.iter().map(u8::to_string).collect();
    let mut forms = vec![secret.to_vec(), hex.to_uppercase().into(), hex.into(), numbers.join(", ").into()];
    for before in 0..3 {
        let padded = [&vec![0; before][..], secret].concat();
        for engine in [STANDARD, URL_SAFE] {
            let text = engine.encode(&padded);
            // The digits that depend on the secret alone.
            let whole = (before * 8).div_ceil(6)..padded.len() * 8 / 6;
            forms.push(text.as_bytes()[whole].to_vec());
        }
    }
    forms
}

/// The places that contain one of the secrets in any form.
fn found<'a>(places: &'a [(String, Vec<u8>)], secrets: &[Vec<u8>]) -> Vec<&'a str> {
    let forms: Vec<_> = secrets.iter().flat_map(|secret| forms(secret)).collect();
    let has = |bytes: &[u8]| forms.iter().any(|form| memchr::memmem::find(bytes, form).is_some());
    places.iter().filter(|(_, bytes)| has(bytes)).map(|(place, _)| place.as_str()).collect()
}

/// The files in a folder, except those in which the user keeps keys.
fn files(folder: &Path, keys: &[&str]) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file() && !keys.contains(&path.to_str().unwrap()));
    files.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect()
}

/// A way to write bytes as text.
type Encoding = fn(&[u8]) -> Vec<u8>;

/// A program that logs all that it can.
fn verbose(args: &[&str]) -> std::process::Command {
    let mut command = program();
    command.env("CHEETAH_LOG", "trace").args(["-vv", "--json"]).args(args);
    command
}

#[test]
fn keys_and_passphrases_reach_no_log_no_file_no_argument_and_no_environment() {
    if !need::programs(&["age"]) {
        return;
    }
    let desk = Desk::new();
    let nodes = [0, 1].map(|_| {
        let args = ["node", "--memory", "24MiB", "--listen", "127.0.0.1:0"];
        Node::of(Service::spawn(verbose(&args), "ready").unwrap())
    });
    let (key, _) = identity(&desk, "me.key");
    let passphrase = desk.file("passphrase", b"correct horse battery staple\n");
    let (image, content) = desk.image("disk.raw", 3 * MIB);
    let drive = desk.arg("case.drive");
    let mut places = Vec::new();
    let mut note = |what: &str, ran: Ran| {
        let ran = ran.ok();
        assert!(
            what == "destroy" || ran.stderr.contains("DEBUG") || ran.stderr.contains("TRACE"),
            "{what} logs nothing"
        );
        places.push((format!("stdout of {what}"), ran.stdout));
        places.push((format!("stderr of {what}"), ran.stderr.into_bytes()));
    };
    let listed = node::list(&nodes.each_ref());
    note(
        "create",
        run(verbose(&[
            "create",
            &drive,
            "--nodes",
            &listed,
            "--size",
            "4MiB",
            "--layout",
            "mirror",
            "--seal",
            "--identity",
            &key,
        ])),
    );
    note("load", run(verbose(&["load", &drive, &image, "--identity", &key])));
    note("share", run(verbose(&["drive", "share", &drive, "--new-passphrase-file", &passphrase, "--identity", &key])));
    note("verify", run(verbose(&["verify", &drive, "--passphrase-file", &passphrase])));
    let copy = desk.arg("copy");
    note("save", run(verbose(&["save", &drive, &copy, "--identity", &key])));
    assert!(fs::read(&copy).unwrap()[..content.len()] == content);

    let mut secrets = vec![drive_key(&desk, &drive, &key), b"correct horse battery staple".to_vec()];
    let text = fs::read_to_string(&key).unwrap();
    secrets.push(text.lines().find(|line| line.starts_with("AGE-SECRET-KEY-")).unwrap().as_bytes().to_vec());
    assert_eq!(secrets[0].len(), 32);

    let mut serving = vec![verbose(&["export", &drive, "--listen", "127.0.0.1:0", "--identity", &key])];
    if need::fuse() {
        serving.push(verbose(&["mount", &drive, &desk.dir("mnt"), "--identity", &key]));
    }
    for command in serving {
        let what = format!("{command:?}");
        let service = Service::spawn(command, "ready").unwrap();
        for name in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{}/{name}", service.pid())).unwrap();
            places.push((format!("{name} of {what}"), bytes));
        }
        if let Some(file) = service.ready["file"].as_str() {
            assert!(fs::read(file).unwrap()[..content.len()] == content);
        }
        service.signal(Signal::TERM);
        let mut service = service;
        assert_eq!(service.wait().0, Some(0));
        places.push((format!("stderr of {what}"), service.stderr().into_bytes()));
    }
    places.extend(files(desk.path(), &[&key, &passphrase]));
    let mut destroyed = Vec::new();
    let ran = run(verbose(&["destroy", &drive])).ok();
    destroyed.push(("output of destroy".to_owned(), [ran.stdout, ran.stderr.into_bytes()].concat()));
    destroyed.extend(files(desk.path(), &[&key, &passphrase]));
    for node in &nodes {
        destroyed.push(("stderr of a node".to_owned(), node.service.stderr().into_bytes()));
    }
    assert!(destroyed.iter().any(|(place, _)| place.ends_with(".custody")) && places.len() > 15, "{}", places.len());
    assert_eq!(found(&places, &secrets), Vec::<&str>::new());
    assert_eq!(found(&destroyed, &secrets), Vec::<&str>::new());
    // The search finds each form, at any place in a longer text.
    for secret in &secrets {
        let engines: [Encoding; 4] = [
            <[u8]>::to_vec,
            |bytes| STANDARD.encode(bytes).into_bytes(),
            |bytes| URL_SAFE.encode(bytes).into_bytes(),
            |bytes| {
                format!("{bytes:?} or {}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()).into()
            },
        ];
        for (n, engine) in engines.iter().enumerate() {
            for before in 0..4 {
                let planted = engine(&[&b"abcd"[..before], secret, b"xyz"].concat());
                assert_eq!(found(&[("planted".to_owned(), planted)], &secrets), ["planted"], "form {n}, {before}");
            }
        }
    }
}

/// The size of core dumps that an export allows itself, if it may make any.
fn core_limit(drive: &str, options: &[&str]) -> String {
    let export = ["--json", "export", drive, "--listen", "127.0.0.1:0"];
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -S -c \"$(ulimit -H -c)\"; exec \"$@\"", "sh"]).arg(program().get_program());
    command.args(export).args(options);
    let service = Service::spawn(command, "ready").unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", service.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap().to_owned();
    service.stop(Signal::TERM);
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_process_that_has_opened_a_key_makes_no_core_dump() {
    let desk = Desk::new();
    let node = Node::start("24MiB");
    let (key, _) = identity(&desk, "me.key");
    let (image, _) = desk.image("disk.raw", MIB);
    let open = desk.drive("open", &[&node], &image, &[]);
    if core_limit(&open, &[]) == "0" {
        need::skip("no process may make core dumps here");
        return;
    }
    let drive = sealed(&desk, "sealed", &[&node], &image, &key, &[]);
    assert_eq!(core_limit(&drive, &["--identity", &key]), "0");
}
