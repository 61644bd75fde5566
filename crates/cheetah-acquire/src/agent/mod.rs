//! The agent: a disk, served over NBD to whoever acquires it, read-only by construction.
//!
//! It listens, or calls the examiner and serves over the connections it makes. Stock NBD clients are served like any;
//! our own are also told what it is they read, and get content packed if they ask for it.

mod config;

use std::net::SocketAddr;

use cheetah_image::{Error, Identity, Result};

pub use config::{AgentConfig, BadCpuMax, CpuMax};

/// A device that is open, to be served.
pub struct Agent {
    identity: Identity,
    protection: Protection,
    address: Option<SocketAddr>,
}

/// What was done to keep the device from being written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// The kernel refused writes to it already.
    Found,
    /// The kernel refuses writes to it from now on, until it is told otherwise or restarted.
    Set,
    /// Nothing beyond opening it read-only, and why.
    Not(String),
}

impl Agent {
    /// Opens the device, and the port if it is to listen. Nothing is served before [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If the device cannot be read, the address cannot be had, or either goes beyond loopback without leave.
    pub async fn start(config: AgentConfig) -> Result<Self> {
        let _ = config;
        Err(Error::failed("not built yet"))
    }

    /// What is served.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What keeps it from being written to.
    pub fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Where it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Serves until it is dropped.
    ///
    /// # Errors
    ///
    /// If it cannot accept clients any more.
    pub async fn run(self) -> Result<()> {
        std::future::pending().await
    }
}
