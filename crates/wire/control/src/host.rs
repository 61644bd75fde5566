//! Whether a request is meant for this machine.
//!
//! A web page can make its own site's name resolve to a node's address (DNS rebinding); the browser then treats the
//! node as that site and lets the page call it. The Host header still contains the site's name. No site controls IP
//! addresses,
//! `localhost` or the machine's own name.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, Version, header};
use cheetah_kit::machine::host_name;

/// Whether the Host header names this machine: an IP address, `localhost`, or the host name, bare or under `.local`,
/// with or without a port. Only requests before HTTP/1.1 may omit it; browsers always send it.
pub(super) fn is_ours(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(|host| names_us(host, &host_name())),
        (None, _) => version < Version::HTTP_11,
        (Some(_), Some(_)) => false,
    }
}

fn names_us(host: &str, own_name: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let port = port.strip_prefix(':').unwrap_or(port);
        return is_port(port) && address.parse::<Ipv6Addr>().is_ok();
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    if !is_port(port) || name.is_empty() {
        return false;
    }
    let same = |ours: &str| !ours.is_empty() && name.eq_ignore_ascii_case(ours);
    let short = own_name.split('.').next().unwrap_or_default();
    name.parse::<Ipv4Addr>().is_ok()
        || same("localhost")
        || same(own_name)
        || same(short)
        || (!short.is_empty() && same(&format!("{short}.local")))
}

/// Whether the text is a port; it may be empty.
fn is_port(port: &str) -> bool {
    port.is_empty() || port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_own_names_are_accepted() {
        for ours in [
            "127.0.0.1",
            "10.0.0.7:10808",
            "[::1]",
            "[fe80::1]:10808",
            "localhost",
            "LocalHost:80",
            "rack3:10808",
            "rack3.lab.example:1",
            "Rack3.local",
        ] {
            assert!(names_us(ours, "rack3.lab.example"), "{ours}");
        }
        for foreign in [
            "",
            ":80",
            "evil.example",
            "evil.example:10808",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "rack3.evil.example",
            "[::1",
            "[evil.example]",
            "[::1]evil.example",
            "::1",
            "127.0.0.1:80:evil.example",
            "127.0.0.1:evil",
            "1.2.3",
        ] {
            assert!(!names_us(foreign, "rack3.lab.example"), "{foreign}");
        }
        assert!(!names_us("", "") && !names_us(".local", ""));
    }
}
