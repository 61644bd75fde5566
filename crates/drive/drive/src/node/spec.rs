//! Nodes: as the user names them, and as they were found.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use cheetah_control::api::Status;
use cheetah_kit::authority::bracketed;
use cheetah_nbd::uri::{Address, NbdUri, PORT};

use crate::file::SetNode;
use cheetah_error::{Error, Result};

/// The maximum length of a node's own name, in characters.
const NAME_CHARS_MAX: usize = 64;

/// A node as the user names it: `host`, `host:port` (its NBD port; control is on the port after it),
/// `nbd://host:port/export` or `nbd+unix:///export?socket=PATH` (any NBD server), or `auto` (those that announce
/// themselves on the local network).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeSpec {
    /// A Cheetah node.
    Node {
        /// Name or address; an IPv6 address is without brackets.
        host: String,
        /// Its NBD port.
        port: u16,
    },
    /// An export of any NBD server.
    Foreign(NbdUri),
    /// All nodes that announce themselves by mDNS.
    Auto,
}

impl FromStr for NodeSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"].iter().any(|scheme| text.starts_with(scheme)) {
            return text.parse().map(Self::Foreign).map_err(|error| Error::misuse(format!("{error}")));
        }
        let bad = || {
            Error::misuse(format!(
                "'{text}' is not a node; write host, host:port, [ipv6]:port, nbd://host:port/export, or auto"
            ))
        };
        let (host, port) = match (text.parse::<IpAddr>(), text.rsplit_once(':')) {
            // An IPv6 address contains colons.
            (Ok(_), _) => (text, PORT),
            (Err(_), Some((host, port))) if !text.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
            _ => (text, PORT),
        };
        let in_brackets = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = in_brackets.filter(|address| address.parse::<IpAddr>().is_ok()).unwrap_or(host);
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        let legal = host.parse::<IpAddr>().is_ok() || (!host.is_empty() && host.chars().all(plain));
        // The control port is the one after it, so it cannot be the last one.
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

/// A node that can take part in a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailableNode {
    /// Its name, as the user wrote it.
    pub name: String,
    /// Bytes that it can lend now.
    pub free_bytes: u64,
    /// How it is reached.
    pub place: NodePlace,
}

impl AvailableNode {
    /// Whether it is the node of this entry: it has the same address, or is the same instance under another name.
    pub(crate) fn is_of(&self, entry: &SetNode) -> bool {
        match &self.place {
            NodePlace::Node { http, instance, .. } => {
                entry.http.as_ref() == Some(http) || entry.instance.as_ref() == Some(instance)
            }
            NodePlace::Foreign { .. } => false,
        }
    }
}

/// How a node is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePlace {
    /// A Cheetah node: exports are created as needed.
    Node {
        /// `host:port` of its NBD server.
        nbd: String,
        /// `host:port` of its control API.
        http: String,
        /// Its instance id, 32 hexadecimal digits.
        instance: String,
    },
    /// An existing export of a foreign server.
    Foreign {
        /// Its NBD URI.
        uri: String,
    },
}

impl AvailableNode {
    /// A node at `host` with this status; its control API is on `http_port`.
    pub(crate) fn node(name: String, host: &str, http_port: u16, status: &Status) -> Self {
        let place = NodePlace::Node {
            nbd: host_port(host, status.nbd_port),
            http: host_port(host, http_port),
            instance: status.instance.clone(),
        };
        Self { name, free_bytes: status.memory.free_bytes, place }
    }

    /// Whether it is the foreign export of this URI.
    pub(crate) fn is_export(&self, nbd: &str) -> bool {
        matches!(&self.place, NodePlace::Foreign { uri } if uri == nbd)
    }

    /// The address of its NBD server.
    pub(crate) fn address(&self) -> Option<Address> {
        let uri = match &self.place {
            NodePlace::Node { nbd, .. } => format!("nbd://{nbd}/"),
            NodePlace::Foreign { uri } => uri.clone(),
        };
        uri.parse::<NbdUri>().ok().map(|uri| uri.address)
    }

    /// Whether both are the same memory.
    pub(super) fn same(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (NodePlace::Node { instance: one, .. }, NodePlace::Node { instance: other, .. }) => one == other,
            (NodePlace::Foreign { uri: one }, NodePlace::Foreign { uri: other }) => one == other,
            _ => false,
        }
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(crate) fn host_port(host: &str, port: u16) -> String {
    format!("{}:{port}", bracketed(host))
}

/// A node's own name, or its address if it has none, without control characters. A port distinguishes nodes on the same
/// machine.
pub(crate) fn shown_name(name: &str, host: &str, port: u16) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
    let name = if name.trim().is_empty() { host } else { name.trim() };
    if port == PORT { name.to_owned() } else { host_port(name, port) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_parsed_as_they_are_printed() {
        for text in ["lab-7", "lab-7:4000", "10.0.0.7", "[::1]:4000", "::1", "nbd://h:1/e", "auto"] {
            assert_eq!(text.parse::<NodeSpec>().unwrap().to_string(), text);
        }
        let node = |host: &str, port| NodeSpec::Node { host: host.into(), port };
        assert_eq!("[fe80::1]".parse(), Ok(node("fe80::1", PORT)));
        assert_eq!("lab-7:10809".parse(), Ok(node("lab-7", PORT)));
    }

    #[test]
    fn malformed_nodes_are_misuse() {
        for text in
            ["", ":1", "a b", "host:", "host:0", "host:65535", "host:x", "nbd://", "http://host", "a:1:2", "[x]:1"]
        {
            let error = text.parse::<NodeSpec>().unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
        }
    }
}
