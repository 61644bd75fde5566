//! One way in: whatever holds the evidence becomes a read-only device, chosen by what is given.
//!
//! A URI says what it is. A block device is read as it is. A file is looked at, its content first and its name second:
//! a disk may hold a file called anything, but a format that is recognised and cannot be read is refused by name,
//! never taken for a raw image. `raw:PATH` reads any file as the bytes it is.
//!
//! An image that is not whole has its coverage map beside it ([`coverage`]): what that says was not read, or could not
//! be, is an error when it is read, and not the zeros that stand in the file.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::readonly::ReadOnly;
use cheetah_device::{ByteRange, Device as _, DynDevice};
use cheetah_iscsi::{Initiator, IscsiConfig, IscsiUri};
use cheetah_nbd::Packing;
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::proto::X_CHEETAH;
use cheetah_nbd::uri::NbdUri;

use crate::aff4::Aff4;
use crate::coverage;
use crate::detect::{self, Format};
use crate::error::{Error, Result};
use crate::ewf::{Ewf, EwfFormat};
use crate::identity::{Identity, Kind};
use crate::qemu::{Qemu, Virtual};
use crate::raw::RawFile;
use crate::served::ServedBy;
use crate::split::Split;

/// How to open a source.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// How long a peer may be silent.
    pub timeout: Duration,
    /// Connections to an NBD server, where it allows several: 1 to 16.
    pub connections: usize,
    /// Whether an agent is asked to pack what it sends. Other servers are not asked.
    pub packing: Packing,
    /// Whether the coverage map beside a raw image or an E01 is heeded, so that what it lacks is unreadable. Who reads
    /// the map too, and wants the zeros that stand for that, says no.
    pub heed_map: bool,
}

impl Default for OpenOptions {
    /// 10 s, two connections, enough to keep two cores of a server busy, nothing packed, and maps
    /// heeded.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), connections: 2, packing: Packing::Off, heed_map: true }
    }
}

/// A source that is open. What it needs to be read (files, connections, a child process) lives as long as its device.
pub struct Source {
    /// Its bytes. Refuses writes.
    pub device: DynDevice,
    /// What is known of it.
    pub identity: Identity,
    /// What to call it: the file's name without its extension, or the export's.
    pub name: String,
}

/// Opens what the user calls `spec`: an `nbd://`, `nbd+unix://` or `iscsi://` URI, the path of an image or a disk, or
/// `raw:` and the path of a file that is to be read as the bytes it is.
///
/// # Errors
///
/// [`Error::Misuse`] for what is no source at all, [`Error::Evidence`] for an image that is incomplete or damaged,
/// [`Error::Failed`] for everything else, such as a format that cannot be read.
pub async fn open(spec: &str, options: &OpenOptions) -> Result<Source> {
    match spec.split_once("://") {
        Some(("nbd" | "nbd+unix", _)) => return nbd(spec, options).await,
        Some(("iscsi", _)) => return iscsi(spec, options).await,
        Some((scheme, _)) if !scheme.contains('/') && !Path::new(spec).exists() => {
            return Err(Error::misuse(format!(
                "{spec}: nothing is read over {scheme}; give a path, or an nbd://, nbd+unix:// or iscsi:// URI"
            )));
        }
        _ => {}
    }
    let (file, heed_map) = (spec.to_owned(), options.heed_map);
    let found = cheetah_device::supervise::spawn_blocking(move || look(&file, heed_map))
        .await
        .map_err(|error| Error::failed(format!("opening {spec}: {error}")))??;
    match found {
        Found::Open(source) => Ok(*source),
        Found::Virtual(path, format) => {
            let device = Qemu::open(&path, format, options).await?;
            let identity = Identity::new(format.kind(), spec, device.geometry().size);
            Ok(Source { device: Arc::new(ReadOnly::new(Arc::new(device))), identity, name: stem(&path) })
        }
    }
}

async fn nbd(spec: &str, options: &OpenOptions) -> Result<Source> {
    let uri = NbdUri::from_str(spec).map_err(|error| Error::misuse(error.to_string()))?;
    let OpenOptions { timeout, connections, packing, .. } = *options;
    let export = uri.export.clone();
    let config = ClientConfig { connections, packing, timeout, ..ClientConfig::new(uri) };
    let client = Client::connect(config).await.map_err(|error| Error::failed(error.to_string()))?;
    let server = ServedBy::new(&export, client.description());
    let name = server.file_name();
    let identity = Identity { server: Some(server), ..exported(spec, client.geometry().size, client.description()) };
    Ok(Source { device: Arc::new(ReadOnly::new(Arc::new(client))), identity, name })
}

/// An export, and what an agent of ours says of the disk behind it: enough to know it again.
fn exported(spec: &str, size: u64, description: Option<&str>) -> Identity {
    let plain = Identity::new(Kind::Nbd, spec, size);
    let told = description.and_then(|text| text.strip_prefix(X_CHEETAH));
    match told.and_then(|json| serde_json::from_str::<Identity>(json).ok()).filter(|told| told.size == size) {
        Some(Identity { model, serial, .. }) => Identity { model, serial, ..plain }.cleaned(),
        None => plain,
    }
}

async fn iscsi(spec: &str, options: &OpenOptions) -> Result<Source> {
    let uri = IscsiUri::from_str(spec).map_err(|error| Error::misuse(error.to_string()))?;
    // Without the password, which belongs in no report.
    let location = uri.to_string();
    let name = uri.unit.as_ref().map_or_else(|| "iscsi".to_owned(), |unit| format!("{}-lun{}", unit.target, unit.lun));
    let config = IscsiConfig { timeout: options.timeout, ..IscsiConfig::new(uri) };
    let initiator = Initiator::connect(config).await.map_err(|error| Error::failed(error.to_string()))?;
    let unit = initiator.inquiry();
    let identity = Identity {
        sector_size: Some(unit.block_bytes),
        physical_sector_size: Some(unit.physical_block_bytes),
        model: Some(format!("{} {}", unit.vendor, unit.product).trim().to_owned()).filter(|model| !model.is_empty()),
        serial: unit.serial.clone(),
        write_protected: unit.write_protected,
        ..Identity::new(Kind::Iscsi, location, initiator.geometry().size)
    }
    .cleaned();
    Ok(Source { device: Arc::new(ReadOnly::new(Arc::new(initiator))), identity, name: name.replace(['/', ':'], "_") })
}

/// What a look at a path found.
enum Found {
    Open(Box<Source>),
    /// An image that takes a process to read.
    Virtual(PathBuf, Virtual),
}

fn look(spec: &str, heed_map: bool) -> Result<Found> {
    let as_it_is = spec.strip_prefix("raw:").filter(|_| !Path::new(spec).exists());
    let path = Path::new(as_it_is.unwrap_or(spec));
    let file = RawFile::open(path)?;
    // What is on a disk is the disk's content: whoever wrote it must not choose how it is read.
    if as_it_is.is_some() || file.is_block() {
        return Ok(Found::Open(Box::new(raw(spec, path, file))));
    }
    let open = |device: DynDevice, identity| Ok(Found::Open(Box::new(Source { device, identity, name: stem(path) })));
    // These may be incomplete images of our own, or of ddrescue's.
    let mapped = |source: Source| {
        let source = if heed_map { coverage::heeded(source, path)? } else { source };
        Ok(Found::Open(Box::new(source)))
    };
    match format(&file)? {
        Format::Ewf => {
            let image = Ewf::open(path)?;
            let identity = of_ewf(spec, &image);
            mapped(Source { device: Arc::new(image), identity, name: stem(path) })
        }
        Format::Zip => {
            let image = Aff4::open(path)?;
            let identity = image.identity(spec);
            open(Arc::new(image), identity)
        }
        Format::Qcow2 => Ok(Found::Virtual(path.into(), Virtual::Qcow2)),
        Format::Vmdk => Ok(Found::Virtual(path.into(), Virtual::Vmdk)),
        Format::Vhd => Ok(Found::Virtual(path.into(), Virtual::Vhd)),
        Format::Vhdx => Ok(Found::Virtual(path.into(), Virtual::Vhdx)),
        Format::Refused(refusal) => Err(Error::failed(format!(
            "{spec} is {}, which is not read here; {} (its own bytes are read as raw:{spec})",
            refusal.what, refusal.instead
        ))),
        Format::Unknown => {
            if let Some(claimed) = claimed(path) {
                return Err(Error::Evidence(format!(
                    "{spec} is named like {claimed}, and does not begin like one: it is damaged, or something else; to \
                     read the bytes as they are, say raw:{spec}"
                )));
            }
            if Split::is_part(path) {
                let image = Split::open(path)?;
                let identity = Identity::new(Kind::Split, spec, image.geometry().size);
                return open(Arc::new(image), identity);
            }
            mapped(raw(spec, path, file))
        }
    }
}

fn raw(spec: &str, path: &Path, file: RawFile) -> Source {
    let size = file.geometry().size;
    let identity = match file.disk() {
        None => Identity::new(Kind::Raw, spec, size),
        Some(disk) => Identity {
            sector_size: disk.sector_size,
            physical_sector_size: disk.physical_sector_size,
            model: disk.model,
            serial: disk.serial,
            write_protected: disk.write_protected,
            ..Identity::new(Kind::Block, spec, size)
        }
        .cleaned(),
    };
    Source { device: Arc::new(file), identity, name: stem(path) }
}

fn format(file: &RawFile) -> Result<Format> {
    let size = file.geometry().size;
    let all = ByteRange::new(0, size);
    let read = |range: ByteRange| {
        let range = range.intersection(all).unwrap_or_default();
        file.read_now(range).map(cheetah_device::Data::into_bytes)
    };
    let ends = read(ByteRange::new(0, detect::START_LEN as u64))
        .and_then(|start| Ok((start, read(ByteRange::between(size.saturating_sub(detect::END_LEN as u64), size))?)));
    match ends {
        Ok((start, end)) => Ok(detect::detect(&start, &end, size)),
        Err(error) => Err(Error::device(format!("looking at {}", file.path()))(error)),
    }
}

/// The format that a file's name claims, where that format has marks we would have seen.
fn claimed(path: &Path) -> Option<&'static str> {
    const NAMES: [(&str, &str); 12] = [
        ("e01", "an E01 image"),
        ("s01", "an S01 image"),
        ("ex01", "an Ex01 image"),
        ("l01", "an L01 image"),
        ("lx01", "an Lx01 image"),
        ("ad1", "an AD1 image"),
        ("aff4", "an AFF4 image"),
        ("af4", "an AFF4 image"),
        ("qcow2", "a QCOW2 image"),
        ("vmdk", "a VMDK image"),
        ("vhd", "a VHD image"),
        ("vhdx", "a VHDX image"),
    ];
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    NAMES.into_iter().find(|(name, _)| *name == extension).map(|(_, what)| what)
}

fn of_ewf(spec: &str, image: &Ewf) -> Identity {
    let info = image.info();
    let kind = if info.format == EwfFormat::Ex01 { Kind::Ex01 } else { Kind::E01 };
    Identity {
        sector_size: Some(info.sector_size),
        model: info.model.clone(),
        serial: info.serial.clone(),
        hashes: info.hashes.clone(),
        unreadable: info.unreadable.clone(),
        case: info.case.clone(),
        ..Identity::new(kind, spec, info.size)
    }
    .cleaned()
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "image".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_says_of_its_disk_is_known_and_anything_else_is_not_heeded() {
        let told = Identity { serial: Some("WD-1".into()), ..Identity::new(Kind::Block, "/dev/sda", 1024) };
        let mut line = serde_json::json!(told);
        line["host"] = "lab".into();
        let line = format!("{X_CHEETAH}{line}");
        let plain = Identity::new(Kind::Nbd, "nbd://h", 1024);
        let known = exported("nbd://h", 1024, Some(&line));
        assert_eq!(known, Identity { serial: Some("WD-1".into()), ..plain.clone() });
        assert_eq!(exported("nbd://h", 512, Some(&line)).serial, None, "said of something else");
        for other in [None, Some("a disk"), Some("x-cheetah:{}"), Some("x-cheetah:")] {
            assert_eq!(exported("nbd://h", 1024, other), plain);
        }
    }
}
