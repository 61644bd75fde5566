//! Finding nodes: named on the command line, announced on the network, or foreign NBD servers.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use cheetah_device::Device as _;
use cheetah_nbd::uri::{NbdUri, PORT};
use cheetah_node::control::{ControlClient, ControlError, api::Status};
use futures::future::join_all;

use crate::browse::browse;
use crate::connect::{Connect, connect};
use cheetah_image::error::{Error, Result};

/// How long the named port itself is asked, when the control port after it does not answer.
const MISTAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// A node as the user names it: `host`, `host:port` (its NBD port; control is on the port after it),
/// `nbd://host:port/export` or `nbd+unix:///export?socket=PATH` (any NBD server), or `auto` (those that announce
/// themselves on the local network).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeSpec {
    /// A node.
    Node {
        /// Name or address; an IPv6 address is without brackets.
        host: String,
        /// Its NBD port.
        port: u16,
    },
    /// An export of any NBD server.
    Foreign(NbdUri),
    /// Whoever announces itself by mDNS.
    Auto,
}

impl FromStr for NodeSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if text.starts_with("nbd://") || text.starts_with("nbd+unix://") {
            return text.parse().map(Self::Foreign).map_err(|error| Error::misuse(format!("{error}")));
        }
        let bad = || {
            Error::misuse(format!(
                "'{text}' is not a node; write host, host:port, [ipv6]:port, nbd://host:port/export, or auto"
            ))
        };
        let (host, port) = match (text.parse::<IpAddr>(), text.rsplit_once(':')) {
            // An IPv6 address has colons of its own.
            (Ok(_), _) => (text, PORT),
            (Err(_), Some((host, port))) if !text.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
            _ => (text, PORT),
        };
        let in_brackets = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = in_brackets.filter(|address| address.parse::<IpAddr>().is_ok()).unwrap_or(host);
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        let legal = host.parse::<IpAddr>().is_ok() || (!host.is_empty() && host.chars().all(plain));
        // Control is on the port after it, so the last port there is cannot be one.
        if !legal || port == 0 || port == u16::MAX {
            return Err(bad());
        }
        Ok(Self::Node { host: host.to_owned(), port })
    }
}

impl fmt::Display for NodeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { host, port: PORT } => f.write_str(host),
            Self::Node { host, port } => f.write_str(&host_port(host, *port)),
            Self::Foreign(uri) => write!(f, "{uri}"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// How to look for nodes.
#[derive(Debug, Clone)]
pub struct FindOptions {
    /// How long a node may take to answer.
    pub timeout: Duration,
    /// How long to listen for announcements (`auto`).
    pub browse: Duration,
}

impl Default for FindOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), browse: Duration::from_secs(3) }
    }
}

/// A node that was found and may take part in a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What the user calls it.
    pub name: String,
    /// Bytes it can lend now.
    pub free_bytes: u64,
    /// Where it is.
    pub place: Place,
}

/// Where a node's bytes are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A node of ours: exports are made as needed.
    Node {
        /// `host:port` of its NBD server.
        nbd: String,
        /// `host:port` of its control API.
        http: String,
        /// Which start of it this is, 32 hexadecimal digits.
        instance: String,
    },
    /// An export that exists already.
    Foreign {
        /// Its NBD URI.
        uri: String,
    },
}

impl Found {
    /// A node at `host` that says `status`, its control API on `http_port`.
    pub(crate) fn node(name: String, host: &str, http_port: u16, status: &Status) -> Self {
        let place = Place::Node {
            nbd: host_port(host, status.nbd_port),
            http: host_port(host, http_port),
            instance: status.instance.clone(),
        };
        Self { name, free_bytes: status.memory.free_bytes, place }
    }

    /// Whether both are the same bytes.
    fn same(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Place::Node { instance: one, .. }, Place::Node { instance: other, .. }) => one == other,
            (Place::Foreign { uri: one }, Place::Foreign { uri: other }) => one == other,
            _ => false,
        }
    }
}

/// `host:port`, with brackets where they are needed.
pub(crate) fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Asks the nodes what they have, in the order in which they are named. All must answer; a node named twice is
/// refused.
pub async fn find(specs: &[NodeSpec], options: &FindOptions) -> Result<Vec<Found>> {
    let answers = join_all(specs.iter().map(|spec| find_one(spec, options))).await;
    let mut found: Vec<Found> = Vec::new();
    let mut failures = Vec::new();
    for (spec, answer) in specs.iter().zip(answers) {
        match answer {
            Ok(nodes) => nodes.into_iter().try_for_each(|node| add(&mut found, node, *spec == NodeSpec::Auto))?,
            Err(error) => failures.push(error),
        }
    }
    match &failures[..] {
        [] => Ok(found),
        [only] => Err(only.clone()),
        several => {
            let why: Vec<_> = several.iter().map(ToString::to_string).collect();
            Err(Error::failed(format!("{} nodes cannot be used: {}", several.len(), why.join("; "))))
        }
    }
}

/// Adds `node` unless it is there already, which is fine only where it announced itself.
fn add(found: &mut Vec<Found>, node: Found, announced: bool) -> Result<()> {
    match found.iter().find(|other| other.same(&node)) {
        Some(_) if announced => Ok(()),
        Some(other) => Err(Error::misuse(format!(
            "{} and {} are the same node; name it once, a drive takes all its share from it anyway",
            other.name, node.name
        ))),
        None => {
            found.push(node);
            Ok(())
        }
    }
}

async fn find_one(spec: &NodeSpec, options: &FindOptions) -> Result<Vec<Found>> {
    match spec {
        NodeSpec::Node { host, port } => {
            let http_port = port + 1;
            let client = ControlClient::new(host_port(host, http_port)).with_timeout(options.timeout);
            match client.status().await {
                Ok(status) => Ok(vec![Found::node(spec.to_string(), host, http_port, &status)]),
                Err(error) => Err(explain(spec, host, *port, error, options.timeout).await),
            }
        }
        NodeSpec::Foreign(uri) => {
            // For writing, because a server that only reads is found out now rather than at the first write.
            let reading = Connect::reading(spec.to_string());
            let wanted = Connect { uri: uri.clone(), writable: true, timeout: options.timeout, ..reading };
            let size = connect(wanted).await?.geometry().size;
            Ok(vec![Found { name: spec.to_string(), free_bytes: size, place: Place::Foreign { uri: uri.to_string() } }])
        }
        NodeSpec::Auto => browse(options).await,
    }
}

/// Why no node answers at the NBD port that the user named. The mistake of naming the control port is recognised.
async fn explain(spec: &NodeSpec, host: &str, port: u16, error: ControlError, timeout: Duration) -> Error {
    let (control, why) = match error {
        ControlError::Unreachable { why, .. } => (port + 1, why),
        other => return Error::failed(format!("{spec} cannot be used: {other}")),
    };
    let asked = ControlClient::new(host_port(host, port)).with_timeout(timeout.min(MISTAKE_TIMEOUT)).status().await;
    if let Ok(status) = asked {
        let nbd = host_port(host, status.nbd_port);
        return Error::misuse(format!("{spec} is a node's control port; name its NBD port: {nbd}"));
    }
    Error::failed(format!(
        "no node answers at {spec} ({why}, on its control port {control}); is `cheetah node` running there, and listening \
         on that address?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_read_as_they_print() {
        for text in ["lab-7", "lab-7:4000", "10.0.0.7", "[::1]:4000", "::1", "nbd://h:1/e", "auto"] {
            assert_eq!(text.parse::<NodeSpec>().unwrap().to_string(), text);
        }
        let node = |host: &str, port| NodeSpec::Node { host: host.into(), port };
        assert_eq!("[fe80::1]".parse(), Ok(node("fe80::1", PORT)));
        assert_eq!("lab-7:10809".parse(), Ok(node("lab-7", PORT)));
    }

    #[test]
    fn what_is_no_node_is_misuse() {
        for text in
            ["", ":1", "a b", "host:", "host:0", "host:65535", "host:x", "nbd://", "http://host", "a:1:2", "[x]:1"]
        {
            let error = text.parse::<NodeSpec>().unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn a_node_named_twice_is_noticed() {
        let place = Place::Node { nbd: "a:1".into(), http: "a:2".into(), instance: "ab".repeat(16) };
        let node = |name: &str| Found { name: name.into(), free_bytes: 1, place: place.clone() };
        let mut found = vec![node("lab-7")];
        add(&mut found, node("lab-7.local"), true).unwrap();
        let error = add(&mut found, node("10.0.0.7"), false).unwrap_err().to_string();
        assert!(error.starts_with("lab-7 and 10.0.0.7 are the same node"), "{error}");
        assert_eq!(found.len(), 1);
    }
}
