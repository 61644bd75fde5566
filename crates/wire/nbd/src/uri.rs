//! URIs of exports: `nbd://host[:port]/export` and `nbd+unix:///export?socket=PATH`; with TLS, `nbds://` and
//! `nbds+unix://`, and optionally `tls-certificates=DIR` among the parameters.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use cheetah_kit::authority::{self, bracketed};
use cheetah_kit::path::from_bytes;
use cheetah_kit::percent::{AsciiSet, COMPONENT, decode, decode_bytes, encode};
use cheetah_tls::{ClientTls, Credential, CredentialSet, Expected, Fingerprint, RoomId};

use crate::inbox::Inbox;
use crate::starttls::NoTls;

/// The port that IANA assigned to NBD.
pub const PORT: u16 = 10809;

/// An export on a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NbdUri {
    /// The server.
    pub address: Address,
    /// The export's name; empty for the server's default.
    pub export: String,
    /// Whether the connection has TLS.
    pub security: Security,
}

/// Whether connections have TLS, and with which credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Security {
    /// `nbd://`: over TCP, with the credential that the program acts as, if it has one; otherwise unencrypted.
    #[default]
    Usual,
    /// `nbds://`: as a member of a room. Drive files name the room and the node's key as parameters, `room` and `key`.
    Room {
        /// The room; that of the credential that the program acts as if `None`.
        room: Option<RoomId>,
        /// The server's key, if it is known.
        key: Option<Fingerprint>,
    },
    /// `nbds://` with `tls-certificates=DIR`: as the PEM files in this folder say.
    Certificates(PathBuf),
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
#[error(
    "'{text}' is not an NBD URI ({why}); write nbd://host[:port]/export or nbd+unix:///export?socket=PATH, with TLS \
     nbds:// and nbds+unix://"
)]
pub struct BadUri {
    text: String,
    why: &'static str,
}

impl FromStr for NbdUri {
    type Err = BadUri;

    fn from_str(text: &str) -> Result<Self, BadUri> {
        let parsed = match text.split_once("://") {
            Some(("nbd", rest)) => parse_tcp(rest, false),
            Some(("nbds", rest)) => parse_tcp(rest, true),
            Some(("nbd+unix", rest)) => parse_unix(rest, false),
            Some(("nbds+unix", rest)) => parse_unix(rest, true),
            _ => Err("it must start with nbd://, nbds://, nbd+unix:// or nbds+unix://"),
        };
        parsed.map_err(|why| BadUri { text: text.to_owned(), why })
    }
}

fn parse_tcp(rest: &str, tls: bool) -> Result<NbdUri, &'static str> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let known = |pair: &str| [CERTIFICATES, ROOM, KEY].iter().any(|name| pair.starts_with(name));
    let takes = query.is_empty() || tls && query.split('&').all(known);
    if export.contains('#') || !takes {
        return Err("a TCP address takes no parameters but tls-certificates, with nbds://");
    }
    let security = security(query, tls)?;
    let (host, port) = authority::parse(authority, PORT)?;
    Ok(NbdUri { address: Address::Tcp { host, port }, export: decode(export)?, security })
}

fn parse_unix(rest: &str, tls: bool) -> Result<NbdUri, &'static str> {
    let (path, query) = rest.split_once('?').ok_or("the socket is missing")?;
    let export = match path {
        "" => "",
        path => path.strip_prefix('/').ok_or("a Unix socket has no host; write nbd+unix:/// with three slashes")?,
    };
    let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket=")).ok_or("the socket is missing")?;
    if socket.is_empty() {
        return Err("the socket is missing");
    }
    let address = Address::Unix(from_bytes(decode_bytes(socket)?).into());
    Ok(NbdUri { address, export: decode(export)?, security: security(query, tls)? })
}

/// The parameter that names a folder of PEM files.
const CERTIFICATES: &str = "tls-certificates=";
/// The parameter that names a room.
const ROOM: &str = "room=";
/// The parameter that names the server's key.
const KEY: &str = "key=";

fn security(query: &str, tls: bool) -> Result<Security, &'static str> {
    let parameter = |name| query.split('&').find_map(|pair| pair.strip_prefix(name));
    let folder = parameter(CERTIFICATES);
    match (folder, tls) {
        (Some(""), _) => Err("the folder of certificates is missing"),
        (Some(_), false) => Err("tls-certificates needs nbds://"),
        (Some(folder), true) => Ok(Security::Certificates(from_bytes(decode_bytes(folder)?).into())),
        (None, true) => Ok(Security::Room {
            room: parameter(ROOM).map(str::parse).transpose().map_err(|_| "the room must be 32 hexadecimal digits")?,
            key: parameter(KEY).map(str::parse).transpose().map_err(|_| "the key must be 64 hexadecimal digits")?,
        }),
        (None, false) => Ok(Security::Usual),
    }
}

impl NbdUri {
    /// An export, with the usual security.
    pub fn new(address: Address, export: impl Into<String>) -> Self {
        Self { address, export: export.into(), security: Security::Usual }
    }

    /// TLS for connections to the server; `None` if they are in clear. `expected` is what a member of a room must be.
    ///
    /// # Errors
    ///
    /// If the certificates cannot be used, or there is no credential and one is needed.
    pub fn tls(&self, credentials: &CredentialSet, expected: Expected) -> io::Result<Option<ClientTls>> {
        let ours = || credentials.acting_as().cloned();
        let expected = match &self.security {
            Security::Room { key: Some(key), .. } => expected.with_key(*key),
            _ => expected,
        };
        let credential = match (&self.security, &self.address) {
            (Security::Usual, Address::Unix(_)) => None,
            (Security::Usual, Address::Tcp { .. } | Address::Inbound(_)) => ours(),
            (Security::Room { room: None, .. }, _) => {
                Some(ours().ok_or_else(|| io::Error::other(NoTls::NoCredential))?)
            }
            (Security::Room { room: Some(room), .. }, _) => {
                let other = || io::Error::other(NoTls::OtherRoom(*room));
                Some(credentials.of_room(room).cloned().ok_or_else(other)?)
            }
            (Security::Certificates(folder), _) => Some(Credential::from_dir(folder).map_err(io::Error::other)?),
        };
        credential.map(|credential| credential.client(expected)).transpose().map_err(io::Error::other)
    }
}

/// Writes the parameter for a folder of certificates, behind `separator`.
fn write_certificates(security: &Security, separator: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match security {
        Security::Usual => Ok(()),
        Security::Certificates(folder) => {
            write!(f, "{separator}{CERTIFICATES}{}", encode(folder.as_os_str().as_encoded_bytes(), PATH))
        }
        Security::Room { room, key } => {
            let mut separator = separator;
            if let Some(room) = room {
                write!(f, "{separator}{ROOM}{room}")?;
                separator = '&';
            }
            key.map_or(Ok(()), |key| write!(f, "{separator}{KEY}{key}"))
        }
    }
}

/// What is percent-encoded in a path.
const PATH: &AsciiSet = &COMPONENT.remove(b'/').remove(b':');

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.security == Security::Usual { "" } else { "s" };
        match &self.address {
            Address::Tcp { host, port } => {
                write!(f, "nbd{s}://{}", bracketed(host))?;
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{}", encode(&self.export, PATH))?;
                write_certificates(&self.security, '?', f)
            }
            // Not a URI that can be parsed: the far end chose the address to which it connected.
            Address::Inbound(inbox) => {
                write!(f, "inbound://{}/{}", inbox.address(), encode(&self.export, PATH))
            }
            Address::Unix(path) => {
                let socket = encode(path.as_os_str().as_encoded_bytes(), PATH);
                write!(f, "nbd{s}+unix:///{}?socket={socket}", encode(&self.export, PATH))?;
                write_certificates(&self.security, '&', f)
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{}:{port}", bracketed(host)),
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
        NbdUri { address: Address::Tcp { host: host.into(), port }, export: export.into(), security: Security::Usual }
    }

    #[test]
    fn uris_are_parsed_and_bad_ones_are_refused_with_an_example() {
        assert_eq!("nbd://node1".parse(), Ok(tcp("node1", PORT, "")));
        assert_eq!("nbd://node1/".parse(), Ok(tcp("node1", PORT, "")));
        assert_eq!("nbd://10.0.0.1:1234/case%2042".parse(), Ok(tcp("10.0.0.1", 1234, "case 42")));
        assert_eq!("nbd://[::1]:99/a/b".parse(), Ok(tcp("::1", 99, "a/b")));
        let unix = NbdUri { address: Address::Unix("/run/a b".into()), export: "x".into(), security: Security::Usual };
        assert_eq!("nbd+unix:///x?socket=/run/a%20b".parse(), Ok(unix));
        assert_eq!(
            "nbds://node1/x".parse(),
            Ok(NbdUri { security: Security::Room { room: None, key: None }, ..tcp("node1", PORT, "x") })
        );
        let pem = Security::Certificates("/etc/pki/a b".into());
        let foreign = NbdUri { security: pem.clone(), ..tcp("node1", 99, "x") };
        assert_eq!("nbds://node1:99/x?tls-certificates=/etc/pki/a%20b".parse(), Ok(foreign));
        let foreign = NbdUri { address: Address::Unix("/s".into()), export: String::new(), security: pem };
        assert_eq!("nbds+unix:///?socket=/s&tls-certificates=/etc/pki/a%20b".parse(), Ok(foreign));
        for bad in [
            "nbd://a/?tls-certificates=/x",
            "nbds://a/?tls-certificates=",
            "nbds://a/?x=1",
            "nbd://a/b?x",
            "",
            "node1",
            "http://a/",
            "nbd://",
            "nbd://:1/",
            "nbd://a:b/",
            "nbd://a:70000/",
            "nbd://[::1/",
        ]
        .into_iter()
        .chain([
            "nbd://[::1]x/",
            "nbd+unix:///x",
            "nbd+unix://h/x?socket=/s",
            "nbd+unix:///?socket=",
            "nbd://a/%4",
            "nbd://a:0/",
            "nbd://a%20b/",
            "nbd://[fe80::1%25eth0]/",
        ]) {
            let error = bad.parse::<NbdUri>().unwrap_err().to_string();
            assert!(error.contains("nbd://host[:port]/export"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_uri_parses_to_itself(
            export in ".{0,20}", socket in prop::collection::vec(1u8.., 1..20), port in 1u16..
        ) {
            let socket = from_bytes(socket);
            let unix = Address::Unix(socket.clone().into());
            for security in [
                Security::Usual,
                Security::Room { room: None, key: None },
                Security::Room { room: None, key: Some(Fingerprint([7; 32])) },
                Security::Room { room: Some(RoomId([200; 16])), key: Some(Fingerprint([7; 32])) },
                Security::Certificates(socket.into()),
            ] {
                let tcp = NbdUri { security: security.clone(), ..tcp("host", port, &export) };
                for uri in [tcp, NbdUri { address: unix.clone(), export: export.clone(), security }] {
                    prop_assert_eq!(uri.to_string().parse(), Ok(uri));
                }
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
