//! What can be read: a drive, a raw image or block device, any NBD export; opened as one device.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::overlay::Overlay;
use cheetah_device::prefetch::{Prefetch, PrefetchConfig};
use cheetah_device::readonly::ReadOnly;
use cheetah_device::{Device, DynDevice, Size};
use cheetah_drive::{Drive, DriveFile, OpenOptions};
use cheetah_image::RawFile;
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::uri::NbdUri;

use crate::failure::{Context, Failure, Result};

/// How every drive file begins.
const DRIVE_FILE_BEGINS: &[u8] = b"# A Cheetah drive";

/// Connections to one NBD server: enough to keep two cores of it busy.
const NBD_CONNECTIONS: usize = 2;

/// How to open a source.
#[derive(Debug, Clone)]
pub struct Access {
    /// For writing; drives only.
    pub writable: bool,
    /// Keep writes apart.
    pub overlay: Option<OverlayPlace>,
    /// Memory for reading ahead.
    pub prefetch_bytes: u64,
    /// Take the write lease from whoever holds it.
    pub force_lease: bool,
    /// Open a drive although nodes are lost.
    pub allow_lost: bool,
    /// How long a node may be silent.
    pub timeout: Duration,
}

impl Access {
    /// To be read once, from start to end.
    pub fn read_once(timeout: Duration) -> Self {
        let (writable, force_lease, allow_lost) = (false, false, false);
        Self { writable, overlay: None, prefetch_bytes: 0, force_lease, allow_lost, timeout }
    }
}

/// Where an overlay keeps what is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverlayPlace {
    /// In memory, up to this many bytes.
    Memory(Size),
    /// In a file that must not exist yet, and is gone afterwards.
    File(PathBuf),
}

impl FromStr for OverlayPlace {
    type Err = cheetah_device::size::BadSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        /// Enough for the journals and access times that tools insist on writing.
        const DEFAULT: Size = Size(256 << 20);
        match text.split_once(':') {
            _ if text == "memory" => Ok(Self::Memory(DEFAULT)),
            Some(("memory", size)) => size.parse().map(Self::Memory),
            _ => Ok(Self::File(text.into())),
        }
    }
}

/// A source that is open. [`Opened::close`] it.
pub struct Opened {
    /// Its bytes.
    pub device: DynDevice,
    /// What to call it.
    pub name: String,
    /// What is lost of it, a sentence each.
    pub lost: Vec<String>,
    drive: Option<Drive>,
    prefetch: Option<Arc<Prefetch>>,
}

/// What a user's word for a source means.
enum Kind {
    Drive(PathBuf),
    Nbd(NbdUri),
    Raw(PathBuf),
}

impl Kind {
    fn of(text: &str) -> Result<Self> {
        if text.starts_with("nbd://") || text.starts_with("nbd+unix://") {
            return Ok(Self::Nbd(NbdUri::from_str(text).map_err(|error| Failure::misused(error.to_string()))?));
        }
        let path = PathBuf::from(text);
        Ok(if is_drive(&path) { Self::Drive(path) } else { Self::Raw(path) })
    }
}

/// Whether a path is that of a drive file, by its name or its content.
pub fn is_drive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "drive") || begins_like_a_drive(path)
}

fn begins_like_a_drive(path: &Path) -> bool {
    let mut start = [0; DRIVE_FILE_BEGINS.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == DRIVE_FILE_BEGINS
}

impl Opened {
    /// Opens what the user calls `text`.
    pub async fn open(text: &str, access: &Access) -> Result<Self> {
        let kind = Kind::of(text)?;
        if access.writable && !matches!(kind, Kind::Drive(_)) {
            return Err(Failure::misused(format!(
                "{text} is evidence and only ever read; to let tools write, keep what they write apart with --overlay memory"
            )));
        }
        let mut opened = match kind {
            Kind::Drive(path) => Self::drive(&DriveFile::load(&path)?, access).await?,
            Kind::Nbd(uri) => Self::nbd(uri, access).await?,
            Kind::Raw(path) => Self::raw(&path)?,
        };
        if let Some(place) = &access.overlay {
            opened.device = overlay(opened.device, place)?;
        }
        Ok(opened)
    }

    async fn drive(file: &DriveFile, access: &Access) -> Result<Self> {
        let options = OpenOptions {
            writable: access.writable,
            force_lease: access.force_lease,
            allow_lost: access.allow_lost,
            timeout: access.timeout,
            prefetch_budget: access.prefetch_bytes,
            ..OpenOptions::default()
        };
        let drive = Drive::open(file, options).await?;
        let (device, lost) = (drive.device(), drive.lost().to_vec());
        Ok(Self { device, name: file.name.clone(), lost, drive: Some(drive), prefetch: None })
    }

    async fn nbd(uri: NbdUri, access: &Access) -> Result<Self> {
        let name = if uri.export.is_empty() { "nbd".to_owned() } else { uri.export.replace('/', "_") };
        let config = ClientConfig {
            name: uri.to_string().into(),
            uri,
            contexts: Vec::new(),
            writable: false,
            connections: NBD_CONNECTIONS,
            timeout: access.timeout,
            packing: cheetah_nbd::Packing::Off,
        };
        let client = Client::connect(config).await.map_err(Failure::failed)?;
        let mut opened = Self::plain(Arc::new(ReadOnly::new(Arc::new(client))), name);
        if access.prefetch_bytes > 0 {
            let config = PrefetchConfig { budget_bytes: access.prefetch_bytes, ..PrefetchConfig::default() };
            let prefetch = Prefetch::new(opened.device, config);
            opened.device = prefetch.clone();
            opened.prefetch = Some(prefetch);
        }
        Ok(opened)
    }

    fn raw(path: &Path) -> Result<Self> {
        let name = path.file_stem().map_or_else(|| "image".to_owned(), |stem| stem.to_string_lossy().into_owned());
        Ok(Self::plain(Arc::new(RawFile::open(path)?), name))
    }

    fn plain(device: DynDevice, name: String) -> Self {
        Self { device, name, lost: Vec::new(), drive: None, prefetch: None }
    }

    /// Bytes in it.
    pub fn size(&self) -> u64 {
        self.device.geometry().size
    }

    /// Makes sure that what was written is where it belongs, and lets go.
    pub async fn close(self) -> Result<()> {
        let stats = match &self.drive {
            Some(drive) => drive.prefetch_stats(),
            None => self.prefetch.as_ref().map(|prefetch| prefetch.stats()),
        };
        if let Some(stats) = stats {
            let (fetched, unused) = (Size(stats.prefetched_bytes), Size(stats.unused_bytes + stats.held_bytes));
            tracing::info!(
                "prefetch: {fetched} fetched ahead, of which {unused} not used; {} of {} reads answered from memory",
                stats.hits,
                stats.hits + stats.misses + stats.waits
            );
        }
        drop(self.device);
        match self.drive {
            Some(drive) => Ok(drive.close().await?),
            None => Ok(()),
        }
    }
}

fn overlay(base: DynDevice, place: &OverlayPlace) -> Result<DynDevice> {
    Ok(match place {
        OverlayPlace::Memory(limit) => Arc::new(Overlay::in_memory(base, limit.0)),
        OverlayPlace::File(path) => Arc::new(Overlay::in_file(base, path).context("cannot keep writes apart")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_is_kept_where_the_user_says() {
        assert_eq!("memory".parse(), Ok(OverlayPlace::Memory(Size(256 << 20))));
        assert_eq!("memory:2GiB".parse(), Ok(OverlayPlace::Memory(Size(2 << 30))));
        assert_eq!("/tmp/changes".parse(), Ok(OverlayPlace::File("/tmp/changes".into())));
        assert!("memory:lots".parse::<OverlayPlace>().is_err());
    }
}
