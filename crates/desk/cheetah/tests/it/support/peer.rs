//! Other implementations' NBD servers.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::need::find;
use super::service::PATIENCE;
use super::{Desk, Port};

/// A server that runs until it is dropped.
pub struct Peer {
    child: Child,
    pub uri: String,
    _port: Option<Port>,
}

impl Peer {
    /// nbdkit with a plugin and its parameters, on TCP.
    pub fn nbdkit_tcp(plugin: &[&str]) -> Self {
        let port = Port::held();
        let address = port.address();
        let mut command = Command::new(find("nbdkit").unwrap());
        command.args(["-f", "-i", "127.0.0.1", "-p", &address.port().to_string()]).args(plugin);
        let mut peer = Self::start(command, format!("nbd://{address}"), move || TcpStream::connect(address).is_ok());
        peer._port = Some(port);
        peer
    }

    /// nbdkit on a Unix socket.
    pub fn nbdkit_unix(desk: &Desk, plugin: &[&str]) -> Self {
        let socket = desk.at("nbdkit.sock");
        let mut command = Command::new(find("nbdkit").unwrap());
        command.args(["-f", "-U"]).arg(&socket).args(plugin);
        Self::on_socket(command, socket, "")
    }

    /// qemu-nbd on a Unix socket, serving a raw file as the export "disk".
    pub fn qemu_nbd(desk: &Desk, file: &str) -> Self {
        let socket = desk.at("qemu.sock");
        let mut command = Command::new(find("qemu-nbd").unwrap());
        command.args(["--persistent", "--shared=8", "-f", "raw", "-x", "disk", "-k"]).arg(&socket).arg(file);
        Self::on_socket(command, socket, "disk")
    }

    /// qemu-nbd on TCP, serving a raw file with these TLS credentials, whose id is t.
    pub fn qemu_nbd_tls(file: &str, credentials: &str) -> Self {
        let port = Port::held();
        let address = port.address();
        let mut command = Command::new(find("qemu-nbd").unwrap());
        command.args(["--persistent", "--shared=8", "-f", "raw", "-b", "127.0.0.1", "-p", &address.port().to_string()]);
        command.args(["--object", credentials, "--tls-creds", "t"]).arg(file);
        let mut peer = Self::start(command, format!("nbd://{address}/"), move || TcpStream::connect(address).is_ok());
        peer._port = Some(port);
        peer
    }

    fn on_socket(command: Command, socket: PathBuf, export: &str) -> Self {
        let uri = format!("nbd+unix:///{export}?socket={}", socket.display());
        Self::start(command, uri, move || std::os::unix::net::UnixStream::connect(&socket).is_ok())
    }

    fn start(mut command: Command, uri: String, ready: impl Fn() -> bool) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while !ready() {
            assert!(started.elapsed() < PATIENCE, "{command:?} does not listen");
            assert!(child.try_wait().unwrap().is_none(), "{command:?} ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, uri, _port: None }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
