//! Handshakes and records: between members, beside other implementations, and with hostile peers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod handshake;
mod hostile_records;
mod openssl;
mod records;
