//! What can be read: a drive, or any source of evidence ([`cheetah_image::open`]); opened as one device.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::overlay::Overlay;
use cheetah_device::prefetch::{Prefetch, PrefetchConfig};
use cheetah_device::{Device, DynDevice, Size};
use cheetah_drive::fill::{FillOptions, Filling, Stage};
use cheetah_drive::{Drive, DriveFile, OpenOptions};
use cheetah_image::Identity;
use cheetah_nbd::{Method, Packing};
use tokio::sync::watch;

use crate::commands::lazy;
use crate::failure::{Context, Failure, Result};

/// How every drive file begins.
const DRIVE_FILE_BEGINS: &[u8] = b"# A Cheetah drive";

/// How to open a source.
#[derive(Debug, Clone)]
pub struct Access {
    /// For writing; drives only.
    pub writable: bool,
    /// Keep writes apart.
    pub overlay: Option<OverlayPlace>,
    /// Memory for reading ahead.
    pub prefetch_bytes: u64,
    /// Take the write lease from whoever holds it; or the right to fill a drive that is not full yet.
    pub force_lease: bool,
    /// Fill a drive that is not full yet, while it is read. Otherwise such a drive is refused.
    pub fill: bool,
    /// Open a drive although nodes are lost.
    pub allow_lost: bool,
    /// Open a drive although the load of its image never finished.
    pub half_loaded: bool,
    /// How long a node may be silent.
    pub timeout: Duration,
}

impl Access {
    /// To be read once, from start to end.
    pub fn read_once(timeout: Duration) -> Self {
        let (writable, force_lease, fill, allow_lost, half_loaded) = (false, false, false, false, false);
        Self { writable, overlay: None, prefetch_bytes: 0, force_lease, fill, allow_lost, half_loaded, timeout }
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
    held: Held,
    prefetch: Option<Arc<Prefetch>>,
}

/// What must be let go of in good order.
enum Held {
    Nothing,
    Drive(Drive),
    Filling(Box<Filling>),
}

/// Whether a path is that of a drive file, by its name or its content.
pub fn is_drive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "drive") || begins_like_a_drive(path)
}

/// The drive file that a user's word for a source means, if it is one.
fn drive_file(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    (!text.contains("://") && is_drive(&path)).then_some(path)
}

fn begins_like_a_drive(path: &Path) -> bool {
    let mut start = [0; DRIVE_FILE_BEGINS.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == DRIVE_FILE_BEGINS
}

impl Opened {
    /// Opens what the user calls `text`.
    pub async fn open(text: &str, access: &Access) -> Result<Self> {
        let drive = drive_file(text);
        if access.writable && drive.is_none() {
            return Err(Failure::misused(format!(
                "{text} is evidence and only ever read; to let tools write, keep what they write apart with --overlay memory"
            )));
        }
        let mut opened = match drive {
            Some(path) => Self::some_drive(&path, access).await?,
            None => Self::source(text, access).await?,
        };
        if let Some(place) = &access.overlay {
            opened.device = overlay(opened.device, place)?;
        }
        Ok(opened)
    }

    async fn some_drive(path: &Path, access: &Access) -> Result<Self> {
        let mut file = DriveFile::load(path)?;
        if file.fill.is_some() && access.fill {
            if let Some(opened) = Self::filling(&file, access).await? {
                return Ok(opened);
            }
            // Somebody else has finished it.
            file = DriveFile::load(path)?;
        }
        Self::drive(&file, access).await
    }

    /// A drive that is not full yet; `None` if it turns out to be.
    async fn filling(file: &DriveFile, access: &Access) -> Result<Option<Self>> {
        if access.writable {
            return Err(Failure::misused(format!(
                "{} is still being filled and can only be read; let tools write with --overlay memory, or finish it \
                 first (cheetah load)",
                file.path.display()
            )));
        }
        let options = FillOptions {
            force_lease: access.force_lease,
            without_source: true,
            timeout: access.timeout,
            prefetch_budget: access.prefetch_bytes,
        };
        let Some(filling) = Filling::open(file, lazy::opener(access.timeout), options).await? else { return Ok(None) };
        let (device, name) = (filling.device(), file.name.clone());
        let held = Held::Filling(Box::new(filling));
        Ok(Some(Self { device, name, lost: Vec::new(), held, prefetch: None }))
    }

    async fn drive(file: &DriveFile, access: &Access) -> Result<Self> {
        if access.force_lease && !access.writable {
            return Err(Failure::misused(
                "--force-lease takes the right to write or to fill, and this is opened for neither; say --writable too",
            ));
        }
        let options = OpenOptions {
            writable: access.writable,
            force_lease: access.force_lease,
            allow_lost: access.allow_lost,
            half_loaded: access.half_loaded,
            timeout: access.timeout,
            prefetch_budget: access.prefetch_bytes,
            ..OpenOptions::default()
        };
        let drive = Drive::open(file, options).await?;
        let (device, lost) = (drive.device(), drive.lost().to_vec());
        Ok(Self { device, name: file.name.clone(), lost, held: Held::Drive(drive), prefetch: None })
    }

    async fn source(text: &str, access: &Access) -> Result<Self> {
        let source = cheetah_image::open(text, &source_options(access.timeout)).await?;
        let lost = unreadable(&source.identity).into_iter().collect();
        let mut opened = Self { device: source.device, name: source.name, lost, held: Held::Nothing, prefetch: None };
        if access.prefetch_bytes > 0 && source.identity.kind.is_remote() {
            let config = PrefetchConfig { budget_bytes: access.prefetch_bytes, ..PrefetchConfig::default() };
            let prefetch = Prefetch::new(opened.device, config);
            opened.device = prefetch.clone();
            opened.prefetch = Some(prefetch);
        }
        Ok(opened)
    }

    /// Bytes in it.
    pub fn size(&self) -> u64 {
        self.device.geometry().size
    }

    /// How far the filling of a drive has come that is not full yet.
    pub fn filled(&self) -> Option<watch::Receiver<Stage>> {
        match &self.held {
            Held::Filling(filling) => Some(filling.stage()),
            Held::Nothing | Held::Drive(_) => None,
        }
    }

    /// Makes sure that what was written is where it belongs, and lets go.
    pub async fn close(self) -> Result<()> {
        let stats = match &self.held {
            Held::Drive(drive) => drive.prefetch_stats(),
            Held::Filling(filling) => filling.prefetch_stats(),
            Held::Nothing => self.prefetch.as_ref().map(|prefetch| prefetch.stats()),
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
        match self.held {
            Held::Drive(drive) => Ok(drive.close().await?),
            Held::Filling(filling) => Ok(filling.close().await?),
            Held::Nothing => Ok(()),
        }
    }
}

/// Opens a source to be read once, with what is known of it.
pub async fn identified(text: &str, timeout: Duration) -> cheetah_image::Result<cheetah_image::Source> {
    let Some(path) = drive_file(text) else {
        return cheetah_image::open(text, &source_options(timeout)).await;
    };
    let file = DriveFile::load(&path)?;
    let options = OpenOptions { timeout, prefetch_budget: 0, ..OpenOptions::default() };
    // Read only, so there is nothing to let go of but the device.
    let device = Drive::open(&file, options).await?.device();
    let mut identity = Identity::new(cheetah_image::Kind::Drive, text, file.size);
    identity.serial = Some(file.id);
    Ok(cheetah_image::Source { device, identity, name: file.name })
}

/// How sources are opened. Agents are asked to pack what they send as they see fit.
fn source_options(timeout: Duration) -> cheetah_image::OpenOptions {
    let packing = Packing::Wanted(Method::Auto);
    cheetah_image::OpenOptions { timeout, packing, ..cheetah_image::OpenOptions::default() }
}

/// A sentence about what an image says it could not read when it was made.
fn unreadable(identity: &Identity) -> Option<String> {
    let bytes = identity.unreadable.iter().map(|range| range.len).sum();
    let ranges = identity.unreadable.len();
    let what = if ranges == 1 { "one range".to_owned() } else { format!("{ranges} ranges") };
    (ranges > 0).then(|| {
        format!(
            "{}: the image itself does not have {what} ({} in all); reading there fails",
            identity.location,
            Size(bytes)
        )
    })
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
