//! Hosts and ports, as URIs have them (RFC 3986, section 3.2).

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// Parses `host[:port]`, where an IPv6 address has brackets. Returns the host, without brackets, and the port, or `usual_port`
/// if the text has none. The host is a name or an address; of a name, only its form is checked.
///
/// # Errors
///
/// If the host or the port is missing or malformed: a clause that says which.
pub fn parse(text: &str, usual_port: u16) -> Result<(String, u16), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']').ok_or("the bracket is not closed")?;
            if host.parse::<Ipv6Addr>().is_err() {
                return Err("brackets must hold an IPv6 address");
            }
            (host, port)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port {
        "" => usual_port,
        port => {
            let digits = port.strip_prefix(':').ok_or("the bracket must be followed by a colon and the port")?;
            let port = digits.parse().ok().filter(|port| *port != 0);
            port.ok_or("the port must be a number from 1 to 65535; an IPv6 address needs brackets")?
        }
    };
    if host.is_empty() || host.contains(['@', '?', '#', ' ', '%']) {
        return Err("the host is missing or malformed");
    }
    Ok((host.to_owned(), port))
}

/// A host as it is written before a colon and a port: an IPv6 address in brackets.
pub fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_parsed_as_they_are_written() {
        for (host, port, text) in [("san", 7, "san"), ("10.0.0.1", 860, "10.0.0.1:860"), ("::1", 99, "[::1]:99")] {
            assert_eq!(parse(text, 7), Ok((host.to_owned(), port)));
        }
        assert_eq!((bracketed("san"), bracketed("::1")), ("san".into(), "[::1]".into()));
    }

    #[test]
    fn malformed_hosts_and_ports_are_refused() {
        for bad in ["", ":1", "a:", "a:b", "a:0", "a:70000", "[::1", "[::1]x", "[san]", "::1", "a@b", "a b", "a%b"] {
            assert!(parse(bad, 7).is_err(), "{bad}");
        }
        // The zone of a link-local address is not taken, neither as it is nor percent-encoded.
        for bad in ["[fe80::1%eth0]", "[fe80::1%25eth0]:7", "[::1]:0", "[::1]:"] {
            assert!(parse(bad, 7).is_err(), "{bad}");
        }
    }
}
