//! URIs of exports: `nbd://host[:port]/export` and `nbd+unix:///export?socket=PATH`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::inbox::Inbox;
use cheetah_device::percent::{decode, decode_bytes, encode};

/// The port that IANA assigned to NBD.
pub const PORT: u16 = 10809;

/// An export on a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NbdUri {
    /// The server.
    pub address: Address,
    /// The export's name; empty for the server's default.
    pub export: String,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP. `host` is a name or an IP address; an IPv6 address has no brackets.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// The server connects to us.
    Inbound(Arc<Inbox>),
}

/// The error for a text that is not an NBD URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an NBD URI ({why}); write nbd://host[:port]/export or nbd+unix:///export?socket=PATH")]
pub struct BadUri {
    text: String,
    why: &'static str,
}

impl FromStr for NbdUri {
    type Err = BadUri;

    fn from_str(text: &str) -> Result<Self, BadUri> {
        let parsed = if let Some(rest) = text.strip_prefix("nbd://") {
            parse_tcp(rest)
        } else if let Some(rest) = text.strip_prefix("nbd+unix://") {
            parse_unix(rest)
        } else {
            Err("it must start with nbd:// or nbd+unix://")
        };
        parsed.map_err(|why| BadUri { text: text.to_owned(), why })
    }
}

fn parse_tcp(rest: &str) -> Result<NbdUri, &'static str> {
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    if export.contains(['?', '#']) {
        return Err("a TCP address takes no parameters");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']').ok_or("the bracket is not closed")?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("brackets must hold an IPv6 address");
            }
            (host, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port {
        "" => PORT,
        port => {
            let digits = port.strip_prefix(':').ok_or("the bracket must be followed by a colon and the port")?;
            digits.parse().map_err(|_| "the port must be a number from 1 to 65535")?
        }
    };
    if host.is_empty() || host.contains(['@', '?', '#', ' ']) {
        return Err("the host is missing or malformed");
    }
    Ok(NbdUri { address: Address::Tcp { host: host.to_owned(), port }, export: decode(export)? })
}

fn parse_unix(rest: &str) -> Result<NbdUri, &'static str> {
    let (path, query) = rest.split_once('?').ok_or("the socket is missing")?;
    let export = match path {
        "" => "",
        path => path.strip_prefix('/').ok_or("a Unix socket has no host; write nbd+unix:/// with three slashes")?,
    };
    let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket=")).ok_or("the socket is missing")?;
    if socket.is_empty() {
        return Err("the socket is missing");
    }
    Ok(NbdUri { address: Address::Unix(OsString::from_vec(decode_bytes(socket)?).into()), export: decode(export)? })
}

/// Characters that are not percent-encoded in a path.
const PLAIN: &[u8] = b"/:";

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp { host, port } => {
                if host.contains(':') {
                    write!(f, "nbd://[{host}]")?;
                } else {
                    write!(f, "nbd://{host}")?;
                }
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/")?;
                encode(&self.export, PLAIN, f)
            }
            // Not a URI that can be parsed: the far end chose the address to which it connected.
            Address::Inbound(inbox) => {
                write!(f, "inbound://{}/", inbox.address())?;
                encode(&self.export, PLAIN, f)
            }
            Address::Unix(path) => {
                write!(f, "nbd+unix:///")?;
                encode(&self.export, PLAIN, f)?;
                write!(f, "?socket=")?;
                encode(path.as_os_str().as_bytes(), PLAIN, f)
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Inbound(inbox) => write!(f, "the agent that connects to {}", inbox.address()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
        NbdUri { address: Address::Tcp { host: host.into(), port }, export: export.into() }
    }

    #[test]
    fn uris_are_parsed_and_bad_ones_are_refused_with_an_example() {
        assert_eq!("nbd://node1".parse(), Ok(tcp("node1", PORT, "")));
        assert_eq!("nbd://node1/".parse(), Ok(tcp("node1", PORT, "")));
        assert_eq!("nbd://10.0.0.1:1234/case%2042".parse(), Ok(tcp("10.0.0.1", 1234, "case 42")));
        assert_eq!("nbd://[::1]:99/a/b".parse(), Ok(tcp("::1", 99, "a/b")));
        let unix = NbdUri { address: Address::Unix("/run/a b".into()), export: "x".into() };
        assert_eq!("nbd+unix:///x?socket=/run/a%20b".parse(), Ok(unix));
        for bad in ["", "node1", "http://a/", "nbd://", "nbd://:1/", "nbd://a:b/", "nbd://a:70000/", "nbd://[::1/"]
            .into_iter()
            .chain(["nbd://[::1]x/", "nbd+unix:///x", "nbd+unix://h/x?socket=/s", "nbd+unix:///?socket=", "nbd://a/%4"])
        {
            let error = bad.parse::<NbdUri>().unwrap_err().to_string();
            assert!(error.contains("nbd://host[:port]/export"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_uri_parses_to_itself(
            export in ".{0,20}", socket in prop::collection::vec(1u8.., 1..20), port in 1u16..
        ) {
            let socket = OsString::from_vec(socket);
            for uri in [tcp("host", port, &export), NbdUri { address: Address::Unix(socket.into()), export }] {
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,60}") {
            let _ = text.parse::<NbdUri>();
            let _ = format!("nbd://{text}").parse::<NbdUri>();
            let _ = format!("nbd+unix://{text}").parse::<NbdUri>();
        }
    }
}
