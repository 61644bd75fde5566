//! The address of a remote source.

use std::path::Path;
use std::str::FromStr as _;

use cheetah_drive::DriveFile;
use cheetah_iscsi::IscsiUri;
use cheetah_nbd::uri::{Address, NbdUri};

use crate::kind::drive_file;
use crate::web::Location;

/// Returns the host and TCP port of a remote source: an `nbd://`, `iscsi://`, `https://` or `s3://` URI, or a drive that is being
/// filled from one. `None` for other sources.
pub fn remote(text: &str) -> Option<(String, u16)> {
    match drive_file(text) {
        Some(path) => filled_from(&path).and_then(|source| of_uri(&source)),
        None => of_uri(text),
    }
}

fn of_uri(text: &str) -> Option<(String, u16)> {
    if let Ok(uri) = IscsiUri::from_str(text) {
        return Some((uri.host, uri.port));
    }
    if let Ok(location) = Location::parse(text) {
        return Some(location.host_and_port());
    }
    match NbdUri::from_str(text).ok()?.address {
        Address::Tcp { host, port } => Some((host, port)),
        Address::Unix(_) | Address::Inbound(_) => None,
    }
}

/// Returns the source of a drive that is being filled. Errors are left to its opening.
fn filled_from(path: &Path) -> Option<String> {
    let file = DriveFile::load(path).ok()?;
    file.fill.as_ref()?;
    Some(file.image?.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_remote_sources_have_a_host() {
        let at = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(remote("nbd://10.0.0.7/sda"), at("10.0.0.7", 10809));
        assert_eq!(remote("nbd://[fe80::1]:99/sda"), at("fe80::1", 99));
        assert_eq!(remote("iscsi://lab/iqn.2026-11.org.example:disk/0"), at("lab", 3260));
        assert_eq!(remote("https://lab/disk.raw"), at("lab", 443));
        for here in ["nbd+unix:///sda?socket=/run/sda.sock", "disk.raw", "/dev/sda", "no/such.drive", "http://lab/"] {
            assert_eq!(remote(here), None, "{here}");
        }
    }
}
