//! Servers of others, as child processes on Unix sockets.

#![allow(dead_code, reason = "each test uses some of it")]

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cheetah_nbd::client::ClientConfig;
use cheetah_nbd::{Address, NbdUri};
use tempfile::TempDir;

/// A running server; killed when dropped.
pub struct Peer {
    child: Child,
    dir: TempDir,
}

impl Peer {
    /// Starts `program`; `{socket}` and `{dir}` in its arguments are replaced. `None`, with a word about it, if it is
    /// not installed.
    pub fn start(program: &str, arguments: &[&str]) -> Option<Self> {
        Self::start_in(tempfile::tempdir().unwrap(), program, arguments)
    }

    /// The same with what is in `dir` already.
    pub fn start_in(dir: TempDir, program: &str, arguments: &[&str]) -> Option<Self> {
        let socket = dir.path().join("nbd.sock");
        let fill = |text: &&str| {
            text.replace("{socket}", socket.to_str().unwrap()).replace("{dir}", dir.path().to_str().unwrap())
        };
        let spawned = Command::new(program).args(arguments.iter().map(fill)).stdin(Stdio::null()).spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("SKIPPED: {program} is not installed");
                return None;
            }
            Err(error) => panic!("{program}: {error}"),
        };
        let mut peer = Self { child, dir };
        peer.wait_until_it_listens(&socket);
        Some(peer)
    }

    fn wait_until_it_listens(&mut self, socket: &Path) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(socket).is_err() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status} before it listened");
            }
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How to connect to its export.
    pub fn config(&self, export: &str) -> ClientConfig {
        config(&self.socket(), export)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How to connect to a server on a Unix socket: for writing, with a timeout that tests can wait for.
pub fn config(socket: &Path, export: &str) -> ClientConfig {
    let uri = NbdUri { address: Address::Unix(socket.to_owned()), export: export.into() };
    ClientConfig { name: "node1".into(), writable: true, timeout: Duration::from_secs(5), ..ClientConfig::new(uri) }
}
