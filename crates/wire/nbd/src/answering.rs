//! Whether an NBD server answers at an address.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::greeting::{GREETING_LEN, read};
use crate::os::UnixStream;
use crate::uri::Address;

/// Connects to `address`, waits for an NBD server's greeting, and closes the connection. A server that calls us
/// ([`Address::Inbound`]) has greeted before it is used.
///
/// # Errors
///
/// If the connection fails, the greeting is wrong, or none arrives within `limit`.
pub async fn check(address: &Address, limit: Duration) -> io::Result<()> {
    let greeting = async {
        match address {
            Address::Tcp { host, port } => read(&mut TcpStream::connect((host.as_str(), *port)).await?).await,
            Address::Unix(path) => read(&mut UnixStream::connect(path).await?).await,
            Address::Inbound(_) => Ok([0; GREETING_LEN]),
        }
    };
    match timeout(limit, greeting).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(io::Error::other("it closes the connection without a greeting; it may have too many clients"))
        }
        Ok(greeting) => greeting.map(drop),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no greeting within {limit:?}"))),
    }
}
