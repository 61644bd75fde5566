//! Addresses to listen at, as command-line options take them.

use std::net::SocketAddr;

/// Parses an address with its port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDRESS:PORT, e.g. 127.0.0.1:25050".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_a_port_is_refused_with_an_example() {
        assert_eq!(address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        for text in ["127.0.0.1", "25050", "localhost:25050", ""] {
            assert!(address(text).is_err_and(|why| why.contains("127.0.0.1:25050")), "{text}");
        }
    }
}
