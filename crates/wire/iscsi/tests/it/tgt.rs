//! Tests with tgtd, an independent target.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use cheetah_device::{ByteRange, Device};
use cheetah_iscsi::login::{Login, LoginParameters, NegotiatedLogin, Step};
use cheetah_iscsi::pdu::Digests;
use cheetah_iscsi::{Initiator, LoginKeys};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{connect, pattern, read};

const TARGET: &str = "iqn.2001-04.com.example:case42";
const TIMEOUT: Duration = Duration::from_secs(60);

/// A tgtd for one test. While it has targets it ignores every signal but SIGKILL, so that ends it.
struct Tgtd {
    child: Child,
    port: u16,
    desk: TempDir,
}

impl Tgtd {
    /// Starts tgtd; `None`, and reports the skipped test, if tgtd cannot run here.
    fn start() -> Option<Self> {
        let skip = |why: &str| {
            cheetah_testing::skip(why);
            None
        };
        let found = |name: &str| {
            ["/usr/sbin", "/usr/bin", "/usr/local/sbin"].iter().any(|dir| Path::new(dir).join(name).exists())
        };
        if !(found("tgtd") && found("tgtadm")) {
            return skip("needs tgt (make test installs it)");
        }
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            return skip("needs root, which tgtd requires");
        }
        let desk = tempfile::tempdir().unwrap();
        // Another process may take the port in between; then another port is tried.
        for _ in 0..5 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut child = Command::new("tgtd")
                .args(["-f", "-C", "1", "--iscsi", &format!("portal=127.0.0.1:{port}")])
                .env("TGT_IPC_SOCKET", desk.path().join("control"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            while child.try_wait().unwrap().is_none() && !listens() {
                std::thread::sleep(Duration::from_millis(10));
            }
            if child.try_wait().unwrap().is_none() {
                return Some(Self { child, port, desk });
            }
        }
        panic!("tgtd does not start");
    }

    fn admin(&self, mode: &str, op: &str, args: &[&str]) -> String {
        let output = Command::new("tgtadm")
            .args(["-C", "1", "--lld", "iscsi", "--mode", mode, "--op", op])
            .args(args)
            .env("TGT_IPC_SOCKET", self.desk.path().join("control"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{mode} {op} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Adds a target without access control.
    fn target(&self) {
        self.admin("target", "new", &["--tid", "1", "-T", TARGET]);
        self.admin("target", "bind", &["--tid", "1", "-I", "ALL"]);
    }

    /// Adds a logical unit with this content.
    fn unit(&self, lun: u16, content: &[u8], args: &[&str]) -> PathBuf {
        let file = self.desk.path().join(format!("lun{lun}"));
        std::fs::write(&file, content).unwrap();
        let lun = lun.to_string();
        let new = [&["--tid", "1", "--lun", &lun, "-b", file.to_str().unwrap()], args].concat();
        self.admin("logicalunit", "new", &new);
        file
    }

    fn update(&self, lun: u16, params: &str) {
        self.admin("logicalunit", "update", &["--tid", "1", "--lun", &lun.to_string(), "--params", params]);
    }

    fn uri(&self, lun: u16) -> String {
        format!("iscsi://127.0.0.1:{}/{TARGET}/{lun}", self.port)
    }

    /// The result of a login.
    async fn log_in(&self) -> NegotiatedLogin {
        let parameters = LoginParameters {
            initiator: "iqn.2001-04.com.example:test".into(),
            target: Some(TARGET.into()),
            credentials: None,
            isid: [0x80, 1, 2, 3, 4, 5],
            keys: LoginKeys::default(),
        };
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
        let mut login = Login::start(parameters, &mut out);
        loop {
            stream.write_all_buf(&mut out).await.unwrap();
            assert_ne!(stream.read_buf(&mut input).await.unwrap(), 0);
            if let Step::Done(agreement) = login.advance(&mut input, &mut out).unwrap() {
                return agreement;
            }
        }
    }

    async fn connect(&self, lun: u16) -> Initiator {
        connect(&self.uri(lun), TIMEOUT).await.unwrap()
    }
}

impl Drop for Tgtd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Many simultaneous reads, with pseudo-random offsets and lengths.
async fn read_all_over(device: Initiator, content: Arc<[u8]>) {
    let device = Arc::new(device);
    let size = content.len() as u64;
    let mut readers = Vec::new();
    for reader in 0..32u64 {
        let (device, content) = (Arc::clone(&device), Arc::clone(&content));
        readers.push(tokio::spawn(async move {
            let mut seed = reader + 1;
            for _ in 0..16 {
                // Knuth's MMIX generator; its high bits are the good ones.
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let offset = (seed >> 33) % size;
                let len = ((seed >> 20) % (300 << 10)).min(size - offset);
                let data = device.read(ByteRange::new(offset, len)).await.unwrap().into_bytes();
                assert!(data[..] == content[offset as usize..(offset + len) as usize], "{offset}+{len}");
            }
        }));
    }
    for reader in readers {
        reader.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_units_are_read_whole_and_at_random() {
    let Some(tgtd) = Tgtd::start() else { return };
    tgtd.target();
    let content = pattern(24 << 20);
    tgtd.unit(1, &content, &[]);
    tgtd.unit(2, &content[7..(3 << 20) + 7], &["--blocksize", "4096"]);
    tgtd.update(1, "readonly=1,vendor_id=ACME,product_id=EVIDENCE,scsi_sn=case42-1");

    let first = tgtd.connect(1).await;
    let inquiry = first.inquiry().clone();
    assert_eq!((&*inquiry.vendor, &*inquiry.product), ("ACME", "EVIDENCE"));
    assert_eq!(inquiry.serial.as_deref(), Some("case42-1"));
    assert_eq!((inquiry.block_bytes, inquiry.blocks, inquiry.write_protected), (512, 48 << 10, Some(true)));
    let second = tgtd.connect(2).await;
    assert_eq!((second.inquiry().block_bytes, second.inquiry().write_protected), (4096, Some(false)));

    assert!(read(&first, 0, 24 << 20).await.unwrap()[..] == content[..]);
    assert!(read(&second, 0, 3 << 20).await.unwrap()[..] == content[7..(3 << 20) + 7]);
    assert!(read(&second, 4095, 2).await.unwrap()[..] == content[7 + 4095..7 + 4097]);
    read_all_over(first, content).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn digests_are_used_if_the_target_supports_them() {
    let Some(tgtd) = Tgtd::start() else { return };
    tgtd.target();
    for digest in ["HeaderDigest", "DataDigest"] {
        tgtd.admin("target", "update", &["--tid", "1", "--name", digest, "--value", "CRC32C"]);
    }
    let content = pattern(4 << 20);
    tgtd.unit(1, &content, &[]);
    assert_eq!(tgtd.log_in().await.digests, Digests { header: true, data: true });
    read_all_over(tgtd.connect(1).await, content).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_sessions_are_those_of_the_uri() {
    let Some(tgtd) = Tgtd::start() else { return };
    tgtd.target();
    let content = pattern(8 << 20);
    tgtd.unit(1, &content, &[]);
    let lens = "MaxRecvDataSegmentLength=4096&MaxBurstLength=16384&FirstBurstLength=8192";
    let uri = format!("{}?commands=2&sessions=3&{lens}&ImmediateData=Yes", tgtd.uri(1));
    let device = connect(&uri, TIMEOUT).await.unwrap();
    let keys =
        LoginKeys { segment_len_max: 4096, burst_len_max: 16384, first_burst_len_max: 8192, immediate_data: true };
    assert_eq!(device.agreed(), keys);
    let connections = tgtd.admin("conn", "show", &["--tid", "1"]);
    assert_eq!(connections.matches("Session: ").count(), 3, "{connections}");
    read_all_over(device, content).await;
}

#[tokio::test]
async fn chap_admits_only_the_right_secret() {
    let Some(tgtd) = Tgtd::start() else { return };
    tgtd.target();
    let content = pattern(1 << 20);
    tgtd.unit(1, &content, &[]);
    tgtd.admin("account", "new", &["--user", "ann", "--password", "p@ss/100%"]);
    tgtd.admin("account", "bind", &["--tid", "1", "--user", "ann"]);
    let uri = |user: &str| tgtd.uri(1).replace("iscsi://", &format!("iscsi://{user}@"));

    let device = connect(&uri("ann%p%40ss%2F100%25"), TIMEOUT).await.unwrap();
    assert!(read(&device, 0, 1 << 20).await.unwrap()[..] == content[..]);
    let (missing, failed) = ("iscsi://user%password@host/target/lun", "0201");
    for (uri, name) in [
        (uri("ann%wr0ng"), failed),
        (uri("bob%p%40ss%2F100%25"), failed),
        (uri("ann"), missing),
        (tgtd.uri(1), missing),
    ] {
        let error = connect(&uri, TIMEOUT).await.err().unwrap().to_string();
        assert!(error.contains(name), "names the status, or the form of a URI with a password: {error}");
        assert!(!error.contains("wr0ng") && !error.contains("ss%2F"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_unit_is_named_in_the_error() {
    let Some(tgtd) = Tgtd::start() else { return };
    tgtd.target();
    tgtd.unit(1, &pattern(1 << 20), &[]);
    let host = format!("iscsi://127.0.0.1:{}", tgtd.port);
    let other = format!("{host}/iqn.2001-04.com.example:other/1");
    // tgtd's own LUN 0 is no disk.
    for (uri, name) in
        [(host, TARGET.to_owned()), (other.clone(), other), (tgtd.uri(9), tgtd.uri(9)), (tgtd.uri(0), tgtd.uri(0))]
    {
        let error = connect(&uri, TIMEOUT).await.err().unwrap().to_string();
        assert!(error.contains(&name), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_continue_after_the_target_drops_the_session() {
    let Some(tgtd) = Tgtd::start() else { return };
    tgtd.target();
    let content = pattern(16 << 20);
    tgtd.unit(1, &content, &[]);
    let device = Arc::new(tgtd.connect(1).await);
    let over = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (device, content, over) = (Arc::clone(&device), Arc::clone(&content), Arc::clone(&over));
        async move {
            while !over.load(Ordering::Relaxed) {
                for at in (0..16 << 20).step_by(1 << 18) {
                    let data = read(&device, at as u64, 1 << 18).await.unwrap();
                    assert!(data[..] == content[at..at + (1 << 18)], "at {at}");
                }
            }
        }
    });
    let mut thrown_out = 0;
    while thrown_out < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        // Lines such as "Session: 2", each followed by its connections.
        let sessions = tgtd.admin("conn", "show", &["--tid", "1"]);
        for sid in sessions.lines().filter_map(|line| line.strip_prefix("Session: ")) {
            tgtd.admin("conn", "delete", &["--tid", "1", "--sid", sid.trim(), "--cid", "0"]);
            thrown_out += 1;
        }
    }
    over.store(true, Ordering::Relaxed);
    reader.await.unwrap();
}
