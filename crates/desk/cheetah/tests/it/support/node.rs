//! Nodes, each a process of its own.

use std::net::SocketAddr;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::process::Signal;
use serde_json::Value;

use super::service::Service;
use super::text;

/// `cheetah node`, on ports of its own choice.
pub struct Node {
    pub service: Service,
    /// `host:port` of its NBD server.
    pub nbd: String,
    /// `host:port` of its control API.
    pub http: String,
}

impl Node {
    #[track_caller]
    pub fn start(memory: &str) -> Self {
        Self::start_with(memory, "127.0.0.1:0", &[])
    }

    #[track_caller]
    pub fn start_with(memory: &str, listen: &str, more: &[&str]) -> Self {
        let mut args = vec!["node", "--memory", memory, "--listen", listen];
        args.extend(more);
        Self::of(Service::start(&args))
    }

    pub fn of(service: Service) -> Self {
        let (nbd, http) = (text(&service.ready, "nbd").to_owned(), text(&service.ready, "http").to_owned());
        Self { service, nbd, http }
    }

    /// As `--nodes` takes it.
    pub fn address(&self) -> &str {
        &self.nbd
    }

    /// The answer to `GET /v1/status`.
    pub fn status(&self) -> Value {
        serde_json::from_str(&http_get(&self.http, "/v1/status")).unwrap()
    }

    /// Bytes of content it holds.
    pub fn used_bytes(&self) -> u64 {
        self.status()["memory"]["used_bytes"].as_u64().unwrap()
    }

    /// The number of its exports.
    pub fn exports(&self) -> usize {
        self.status()["exports"].as_array().unwrap().len()
    }

    /// Stops the node, and returns its last output.
    #[track_caller]
    pub fn stop(self) -> Value {
        let (code, last) = self.service.stop(Signal::TERM);
        assert_eq!(code, Some(0), "{last}");
        last
    }

    /// Kills it. Its ports are kept, so that no server of another test is taken for it.
    pub fn kill(self) {
        self.service.kill();
        [&self.nbd, &self.http].into_iter().for_each(|address| keep(address));
    }
}

/// Keeps an address until the end of this process: it refuses connections, and a node that is started there gets it.
fn keep(address: &str) {
    let Ok(SocketAddr::V4(address)) = address.parse() else { return };
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let Ok(socket) = socket else { return };
    if set_socket_reuseaddr(&socket, true).is_ok() && bind(&socket, &address).is_ok() {
        std::mem::forget(socket);
    }
}

/// As `--nodes` takes them.
pub fn list(nodes: &[&Node]) -> String {
    nodes.iter().map(|node| node.address()).collect::<Vec<_>>().join(",")
}

/// The body of an HTTP answer.
pub fn http_get(address: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}
