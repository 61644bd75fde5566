//! The agent: serves a disk over NBD, read-only by construction.
//!
//! It listens, or calls the examiner and serves over the connections it makes. Any NBD client is served; our own also
//! get the disk's [`Identity`] as the export's description, packed and digested content on request
//! ([`cheetah_nbd::packing`]), and digests without the content.
//!
//! Nothing here can write to the device: it is opened for reading only, served through a [`ReadOnly`] layer, and the
//! server refuses requests to write before they get that far. If nothing uses the disk, the kernel is made to refuse
//! writes as well, where it can be ([`Protection`]).

mod config;
mod export;

use std::convert::Infallible;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::path_text::path_to_text;
use cheetah_device::readonly::ReadOnly;
use cheetah_error::next::{Acquisition, Room};
use cheetah_error::{Error, Result};
use cheetah_image::{Identity, OpenOptions, Source};
use cheetah_nbd::packing::{Packer, PackerConfig};
use cheetah_nbd::server::{Listener, MEMORY_BYTES_USUAL, Server, ServerConfig, SingleExport};
use cheetah_tls::{CredentialSet, ServerTls};

use crate::os;
pub use crate::os::{FoundDisk, Protection, disks};
pub use config::{AgentConfig, BadCpuMax, CpuMax};
use export::ReadLimiter;

/// The most packing threads, each of up to 8 MiB. Four saturate 10 Gbit/s with LZ4, and 1 Gbit/s with Zstandard.
const THREADS_MAX: usize = 4;
/// The most clients; each takes some memory.
const CONNECTIONS_MAX: usize = 16;

/// An open device, ready to be served.
pub struct Agent {
    source: Source,
    /// What must be known of the device, a sentence each.
    remarks: Vec<String>,
    protection: Protection,
    /// Held while the device is served.
    claimed: Option<File>,
    name: String,
    server: Server,
    listener: Option<Listener>,
    connect: Option<String>,
}

impl Agent {
    /// Opens the device, and the port if it is to listen. Nothing is served before [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If the device cannot be read, the address cannot be used, or the agent would go beyond loopback without
    /// permission.
    pub async fn start(config: AgentConfig) -> Result<Self> {
        check(&config)?;
        let tls = tls(&config)?;
        let device = path_to_text(&config.device);
        if cheetah_image::spec::path_of(&device).is_none() {
            return Err(Error::misuse(format!("{device}: an agent serves disks of its own machine; give a path")));
        }
        os::check_rights(&config.device)?;
        let listener = match config.listen {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        // First, so that the identity includes it.
        let (protection, claimed) = os::protect(&config.device, config.protect);
        let mut source = cheetah_image::open(&device, &OpenOptions::default()).await?;
        if source.identity.write_protected == Some(true) && matches!(protection, Protection::Not(_)) {
            // The flag is set, but writers that have the disk open are not bound by it.
            source.identity.write_protected = Some(false);
        }
        let packer = Packer::start(packing(&config)).map_err(|error| Error::io("starting threads", &error))?;
        let looked_at = config.device.clone();
        let remarks = tokio::task::spawn_blocking(move || os::remarks(&looked_at)).await.unwrap_or_default();
        let own_name = || os::export_name(&config.device).unwrap_or_else(|| source.name.clone());
        let name = if config.name.is_empty() { own_name() } else { config.name.clone() };
        let exported = SingleExport {
            name: name.clone(),
            description: export::describe(&source.identity, &name, &remarks)?,
            device: Arc::new(ReadOnly::new(Arc::new(ReadLimiter::new(source.device.clone())))),
            packer: Some(packer),
        };
        let limits = ServerConfig {
            connections_max: config.connections_max.clamp(1, CONNECTIONS_MAX),
            // Packing and reading take more memory; with this, the total must stay within 128 MiB.
            memory_bytes_max: MEMORY_BYTES_USUAL,
            rate_max: config.rate_max,
            watch: true,
            tls,
            ..ServerConfig::default()
        };
        let server = Server::new(Arc::new(exported), limits);
        Ok(Self { source, remarks, protection, claimed, name, server, listener, connect: config.connect })
    }

    /// Returns the identity of the device.
    pub fn identity(&self) -> &Identity {
        &self.source.identity
    }

    /// Returns what is in doubt about the device's content, a sentence each: that it changes while it is read, and
    /// [`cheetah_source::doubts()`]. Looks for up to `patience`.
    pub async fn doubts(&self, patience: Duration) -> Vec<String> {
        let found = cheetah_source::doubts(&self.source, patience).await;
        self.remarks.iter().cloned().chain(found).collect()
    }

    /// Returns how it is protected from writes.
    pub fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Returns the export's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address it listens at, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(Listener::tcp_address)
    }

    /// Serves until it is dropped.
    pub async fn run(self) -> Infallible {
        let Self { server, listener, connect, claimed: _claimed, .. } = self;
        let listening = async {
            match listener {
                Some(listener) => server.listen(listener).await,
                None => std::future::pending().await,
            }
        };
        let calling = async {
            match connect {
                Some(examiner) => server.call(&examiner).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = listening => never,
            never = calling => never,
        }
    }
}

/// Fails for a configuration that makes no sense, or goes beyond loopback without `insecure`.
fn check(config: &AgentConfig) -> Result<()> {
    if config.listen.is_none() && config.connect.is_none() {
        return Err(
            Error::misuse("an agent that neither listens nor calls has no client").next(Acquisition::ListenOrConnect)
        );
    }
    let Some(examiner) = &config.connect else { return Ok(()) };
    let Some(host) = host_of(examiner) else {
        return Err(Error::misuse(format!("'{examiner}' is no address to call; write HOST:PORT")));
    };
    let is_here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if !is_here && !config.insecure && config.credential.is_none() {
        return Err(Error::misuse(format!(
            "{examiner} is another machine, and without a room anyone on the way could read the disk"
        ))
        .next(Room::SayRoomOrInsecure));
    }
    Ok(())
}

/// TLS for the clients, whichever side connects.
fn tls(config: &AgentConfig) -> Result<Option<ServerTls>> {
    let here = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    let address = config.listen.unwrap_or(here);
    CredentialSet::from(config.credential.clone()).server(address, config.insecure).map_err(cheetah_control::exposed)
}

/// Returns the host in `HOST:PORT`, an IPv6 address without its brackets.
fn host_of(text: &str) -> Option<&str> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let port: u16 = port.parse().ok()?;
    (!host.is_empty() && port != 0).then_some(host)
}

async fn listen(address: SocketAddr) -> Result<Listener> {
    Listener::tcp(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Error::failed(format!("{address} is taken by another program: stop it, or choose another port"))
        }
        _ => Error::io(format_args!("cannot listen on {address}"), &error),
    })
}

/// Returns the number of packing threads and their share of processor time.
fn packing(config: &AgentConfig) -> PackerConfig {
    let whole = PackerConfig { rate_max: config.rate_max, ..PackerConfig::default() };
    let some = |threads: usize| NonZeroUsize::new(threads.min(THREADS_MAX)).unwrap_or(NonZeroUsize::MIN);
    match config.cpu_max {
        CpuMax::All => PackerConfig { threads: some(whole.threads.get()), ..whole },
        CpuMax::Low => PackerConfig { threads: NonZeroUsize::MIN, nice: true, ..whole },
        CpuMax::Percent(percent) => {
            let processors = whole.threads.get() as f64 * f64::from(percent) / 100.0;
            // Not truncated: a small number.
            let threads = some(processors.ceil() as usize);
            PackerConfig { threads, share: (processors / threads.get() as f64).min(1.0), ..whole }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_needs_insecure() {
        let with = |listen: Option<&str>, connect: Option<&str>, insecure| {
            let (listen, connect) = (listen.map(|text| text.parse().unwrap()), connect.map(str::to_owned));
            let config = AgentConfig { listen, connect, insecure, ..AgentConfig::new("/dev/null") };
            check(&config).and_then(|()| tls(&config).map(drop))
        };
        assert!(with(None, None, true).is_err());
        assert!(with(Some("127.0.0.1:1"), Some("localhost:2"), false).is_ok());
        assert!(with(None, Some("[::1]:2"), false).is_ok());
        for (listen, connect) in
            [(Some("0.0.0.0:1"), None), (None, Some("examiner:1")), (Some("[::]:1"), None), (None, Some("10.0.0.1:1"))]
        {
            let error = with(listen, connect, false).unwrap_err();
            assert!(error.is_misuse() && error.has_next(Room::SayRoomOrInsecure), "{error}");
            assert!(with(listen, connect, true).is_ok());
        }
        for bad in ["examiner", "examiner:0", ":1", "a:b", "::1:5", "[::1:5"] {
            assert!(with(None, Some(bad), true).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_percentage_is_of_all_processors() {
        let of = |cpu_max| packing(&AgentConfig { cpu_max, ..AgentConfig::new("/dev/null") });
        let all = PackerConfig::default().threads.get() as f64;
        for percent in [1, 30, 50, 99, 100] {
            let part = of(CpuMax::Percent(percent));
            let total = part.threads.get() as f64 * part.share;
            let expected = (all * f64::from(percent) / 100.0).min(THREADS_MAX as f64);
            assert!((total - expected).abs() < 1e-6 && part.share <= 1.0, "{part:?}");
        }
        assert!(of(CpuMax::Low).nice);
    }
}
