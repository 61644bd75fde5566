//! Which nodes of a drive are on this machine.

use std::net::IpAddr;
use std::str::FromStr as _;

use cheetah_drive::DriveFile;
use cheetah_error::Result;
use cheetah_nbd::uri::{Address, NbdUri};

use crate::kind::drive_file;

/// Returns the names of the nodes of the drive `text` that are on this machine; none if `text` is not a drive. Spares do
/// not count: they hold nothing yet.
///
/// # Errors
///
/// If the drive file cannot be read.
pub async fn nodes_here(text: &str) -> Result<Vec<String>> {
    let Some(path) = drive_file(text) else { return Ok(Vec::new()) };
    let file = DriveFile::load(&path)?;
    let own = if_addrs::get_if_addrs().unwrap_or_default().iter().map(if_addrs::Interface::ip).collect::<Vec<_>>();
    let mut here = Vec::new();
    for node in file.sets.iter().flat_map(|set| &set.nodes) {
        let address = NbdUri::from_str(&node.nbd).map(|uri| uri.address);
        if match address {
            Ok(Address::Tcp { host, port }) => is_here(&host, port, &own).await,
            Ok(Address::Unix(_)) => true,
            Ok(Address::Inbound(_)) | Err(_) => false,
        } {
            here.push(node.name.clone());
        }
    }
    Ok(here)
}

/// Whether a host is this machine. A name that cannot be resolved is not.
async fn is_here(host: &str, port: u16, own: &[IpAddr]) -> bool {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let mut addresses = addresses.into_iter().flatten().map(|address| address.ip().to_canonical());
    addresses.any(|address| address.is_loopback() || address.is_unspecified() || own.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loopback_and_own_addresses_are_here_and_others_are_not() {
        let own = ["192.0.2.7".parse().expect("an address")];
        for (host, here) in [("127.0.0.1", true), ("::1", true), ("192.0.2.7", true), ("192.0.2.8", false)] {
            assert_eq!(is_here(host, 10809, &own).await, here, "{host}");
        }
    }
}
