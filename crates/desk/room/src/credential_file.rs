//! The file of a credential: its key, its certificate, the authority's certificate and the list of revoked certificates,
//! in PEM. Before them, a line may have the addresses of the enrolment server.

use std::path::Path;

use cheetah_error::{Error, Result};
use cheetah_tls::Credential;

use crate::invitation::parse_host_port;

/// The most bytes of a credential, with the longest list of revoked certificates that a room can have.
pub const CREDENTIAL_LEN_MAX: usize = 2 << 20;
/// The list of revoked certificates is the last section of a credential's file.
pub(crate) const LIST_BEGINS: &str = "-----BEGIN X509 CRL-----";
/// The beginning of the line with the addresses of the enrolment server.
const AT: &str = "Room-At:";
/// The most addresses in that line.
const AT_MAX: usize = 8;

/// Returns the line with the addresses of the enrolment server. Readers of PEM ignore it.
pub fn address_line(at: &[String]) -> String {
    if at.is_empty() { String::new() } else { format!("{AT} {}\n", at.join(" ")) }
}

/// Returns the addresses of the enrolment server in the file of a credential, as `host:port`.
pub fn addresses_in(pem: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(pem).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(AT)).unwrap_or_default();
    let places = line.split_whitespace().filter(|place| parse_host_port(place).is_some());
    places.take(AT_MAX).map(str::to_owned).collect()
}

/// Parses a credential from the file at `path`.
pub(crate) fn parse_credential(pem: &[u8], path: &Path) -> Result<Credential> {
    Credential::from_pem(pem).map_err(|error| {
        Error::failed(format!("{}: {error}; put the file back from a backup, or join again", path.display()))
    })
}

/// The list of revoked certificates in PEM, as DER.
///
/// # Errors
///
/// If there is none.
pub fn der_of_list(pem: &[u8]) -> Result<Vec<u8>> {
    use rustls::pki_types::CertificateRevocationListDer;
    use rustls::pki_types::pem::PemObject as _;
    let der = CertificateRevocationListDer::from_pem_slice(pem);
    der.map(|der| der.to_vec()).map_err(|_| Error::failed("the list of revoked certificates is malformed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_address_are_ignored() {
        let places = |text: &str| addresses_in(text.as_bytes());
        assert_eq!(places("Room-At: a:1 b c:0 [::1]:2 a b:c\n-----BEGIN"), ["a:1", "[::1]:2"]);
        assert!(places("").is_empty() && places("Room-At:").is_empty());
        assert_eq!(places(&format!("Room-At:{}", " h:1".repeat(99))).len(), AT_MAX);
    }
}
