//! Ports that are reserved for one test.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};

/// A TCP port of this machine with no listener yet. The test may listen on it, any number of times; the kernel gives
/// it to no one else until this is dropped.
pub struct Port {
    _held: OwnedFd,
    address: SocketAddr,
}

impl Port {
    /// Any.
    pub fn held() -> Self {
        Self::hold(0).unwrap()
    }

    /// Any and the next one, where a node's control API is looked for.
    pub fn neighbours() -> (Self, Self) {
        let mut passed = Vec::new();
        loop {
            let first = Self::held();
            match first.address.port().checked_add(1).map(Self::hold) {
                Some(Ok(second)) => return (first, second),
                _ => passed.push(first),
            }
            assert!(passed.len() < 1000, "no two neighbouring ports are free");
        }
    }

    fn hold(port: u16) -> Result<Self, Errno> {
        let held = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        // As servers do, so that a server can bind a port that is bound but not listening.
        sockopt::set_socket_reuseaddr(&held, true)?;
        bind(&held, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        let address = getsockname(&held)?.try_into()?;
        Ok(Self { _held: held, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `127.0.0.1:PORT`
    pub fn text(&self) -> String {
        self.address.to_string()
    }
}
