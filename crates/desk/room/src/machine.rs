//! This machine: its name and addresses, and its directories of rooms and credentials.

use std::path::PathBuf;

use cheetah_error::{Error, Result};

pub use cheetah_kit::machine::host_name;

use crate::invitation::Host;
use crate::os;

/// The usual port of the enrolment server: the one after that for nodes that join a drive.
pub const PORT: u16 = 10812;
/// The most characters of a room's name.
pub const ROOM_NAME_LEN_MAX: usize = 32;

/// The user's configuration directory of Cheetah: `$XDG_CONFIG_HOME/cheetah`, or `~/.config/cheetah`, or on Windows
/// `%LOCALAPPDATA%\cheetah`.
///
/// # Errors
///
/// If neither variable is set.
pub fn configuration() -> Result<PathBuf> {
    let settings = os::settings().filter(|path| path.is_absolute()).map(|settings| settings.join("cheetah"));
    settings.ok_or_else(|| Error::misuse("no home directory for rooms; name one with XDG_CONFIG_HOME"))
}

/// Returns the directory of this machine's rooms.
///
/// # Errors
///
/// As [`configuration`].
pub fn rooms() -> Result<PathBuf> {
    Ok(configuration()?.join("rooms"))
}

/// Returns the directory of this machine's credentials for rooms of other machines.
///
/// # Errors
///
/// As [`configuration`].
pub fn credentials() -> Result<PathBuf> {
    Ok(configuration()?.join("credentials"))
}

/// Checks a room's name: letters, digits, `-` and `_`, and a letter first; at most 32 characters; not `none`.
///
/// # Errors
///
/// If it is another text.
pub fn check_room_name(name: &str) -> Result<()> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
    if begins && name.len() <= ROOM_NAME_LEN_MAX && name.bytes().all(legal) && name != "none" {
        return Ok(());
    }
    Err(Error::misuse(format!(
        "'{}' cannot be the name of a room; use up to {ROOM_NAME_LEN_MAX} letters, digits, - and _, with a letter first",
        name.chars().take(64).collect::<String>()
    )))
}

/// The addresses by which others may reach this machine: not those of loopback, nor link-local ones of IPv6, which need
/// an interface. IPv4 first; those of virtual bridges last.
pub fn own_addresses() -> Vec<Host> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut found: Vec<(u8, std::net::IpAddr)> = Vec::new();
    for interface in interfaces {
        let address = interface.ip();
        let link_local = matches!(address, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local());
        if interface.is_loopback() || link_local || found.iter().any(|(_, known)| *known == address) {
            continue;
        }
        let is_virtual =
            ["docker", "br-", "virbr", "veth", "lxc"].iter().any(|bridge| interface.name.starts_with(bridge));
        found.push((2 * u8::from(is_virtual) + u8::from(address.is_ipv6()), address));
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, address)| Host::Ip(address)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_paths_are_refused() {
        for name in ["lab", "Lab_2", "a"] {
            assert!(check_room_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "a/b", "../a", "-a", "7", "none", "a b", "ä", &"a".repeat(33)] {
            assert_eq!(check_room_name(name).unwrap_err().exit_code(), 2, "{name}");
        }
    }
}
