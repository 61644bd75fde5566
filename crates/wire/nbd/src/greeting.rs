//! The greeting of an NBD server: two magic numbers and flags.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::proto::{MAGIC, OPTION_MAGIC};

/// Bytes of a greeting.
pub(crate) const GREETING_LEN: usize = 18;

/// Reads a server's greeting, and nothing after it.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; GREETING_LEN]> {
    let mut greeting = [0; GREETING_LEN];
    stream.read_exact(&mut greeting).await?;
    if greeting.starts_with(&MAGIC.to_be_bytes()) && greeting[8..16] == OPTION_MAGIC.to_be_bytes() {
        return Ok(greeting);
    }
    Err(io::Error::other("it is no NBD server"))
}
