//! Sealed drives: making them, opening them, and the keys that open them.
//!
//! The drive's key is in the drive file, wrapped; the seal record is in a file beside it, `case42.drive.seal`.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cheetah_device::DynDevice;
use cheetah_error::{Error, Result};
use cheetah_image::own_file::OwnFile;
use cheetah_seal::age::Recipient;
use cheetah_seal::device::{Opening, RecordStore};
use cheetah_seal::unit::{DriveBinding, ID_BYTES, SUITE};
use cheetah_seal::{DriveKey, Record, SealError, Sealed, Units, keyring};

use crate::file::check::KEYS_MAX;
use crate::file::{DriveFile, SealSection, WrappedKey, beside};

/// The file of the seal record.
const RECORD: OwnFile = OwnFile { name: "seal record", begins: |head| head.starts_with(b"cheetah-seal-v") };

/// How to seal a new drive.
#[derive(Debug, Clone)]
pub struct SealRequest {
    /// Bytes of content in a unit: 4096 or 65536.
    pub unit: u64,
    /// Keep holes as holes, so that nodes know where they are.
    pub holes: bool,
    /// The recipients of the key; at least one.
    pub recipients: Vec<Recipient>,
}

impl SealRequest {
    /// The bytes that `size` bytes of content take.
    pub(crate) fn sealed_bytes(&self, size: u64) -> Result<u64> {
        let units =
            Units::new(self.unit, size).ok_or_else(|| Error::misuse("a sealed drive of this size is too large"))?;
        Ok(units.sealed_bytes())
    }

    /// The bytes of content that fit into `capacity` bytes.
    pub(crate) fn fitting(&self, capacity: u64) -> u64 {
        Units::fitting(self.unit, capacity)
    }
}

/// Makes the key and the record of a new drive, which has its size, and no seal yet. Keeps the key for this process.
pub(crate) fn begin(file: &mut DriveFile, request: &SealRequest) -> Result<()> {
    let failed = |error: SealError| Error::failed(format!("{} cannot be sealed: {error}", file.name));
    if request.recipients.is_empty() {
        return Err(Error::misuse(
            "a sealed drive needs a key that opens it: --recipient age1…, --identity FILE or --passphrase-file FILE",
        ));
    }
    let id = id(file)?;
    let units =
        Units::new(request.unit, file.size).ok_or_else(|| Error::misuse("a sealed drive of this size is too large"))?;
    let path = record_path(file);
    if path.symlink_metadata().is_ok() {
        return Err(Error::misuse(format!(
            "{} exists already; it may belong to another drive: move it away",
            path.display()
        )));
    }
    let key = DriveKey::random().map_err(failed)?;
    let mut keys: Vec<WrappedKey> = Vec::new();
    for recipient in &request.recipients {
        if !keys.iter().any(|known| known.recipient == recipient.to_string()) {
            keys.push(wrapped(id, &key, recipient).map_err(failed)?);
        }
    }
    let record = Record::new(id, units, request.holes).encode(&key).map_err(failed)?;
    RECORD.replace(&path, &record)?;
    file.sealed = Some(SealSection { suite: SUITE, unit: request.unit, holes: request.holes, keys });
    keyring::keep(id, &key);
    Ok(())
}

/// Takes [`begin`] back.
pub(crate) fn remove(file: &DriveFile) {
    if file.sealed.is_some()
        && let Err(error) = remove_record(file)
    {
        tracing::warn!("a file is left: {error}");
    }
}

/// Removes the record.
pub(crate) fn remove_record(file: &DriveFile) -> Result<()> {
    if file.sealed.is_none() {
        return Ok(());
    }
    keyring::forget(&id(file)?);
    RECORD.remove(&record_path(file))
}

/// Opens the key of a sealed drive with the identities of this process; `None` if the drive is not sealed.
pub(crate) fn unlock(file: &DriveFile) -> Result<Option<DriveKey>> {
    let Some(seal) = &file.sealed else { return Ok(None) };
    if seal.keys.is_empty() {
        return Err(Error::failed(format!(
            "{}: its key was destroyed, so its content cannot be read any more",
            file.name
        )));
    }
    let damaged = || Error::failed(format!("{}: a wrapped key in its drive file is damaged", file.name));
    let files: Option<Vec<Vec<u8>>> = seal.keys.iter().map(|key| BASE64.decode(&key.age).ok()).collect();
    let key = keyring::open(id(file)?, &files.ok_or_else(damaged)?);
    key.map(Some).map_err(|error| error_of(file, &error))
}

/// The sealed device over the device of a drive's nodes.
pub(crate) async fn open(file: &DriveFile, key: DriveKey, below: DynDevice, writable: bool) -> Result<Sealed> {
    let Some(seal) = &file.sealed else { return Err(Error::failed("a drive that is not sealed has no seal to open")) };
    let units = Units::new(seal.unit, file.size)
        .ok_or_else(|| Error::failed(format!("{}: its drive file has a size that cannot be sealed", file.name)))?;
    let store = Arc::new(RecordFile { path: record_path(file), bytes_max: Record::bytes_max(&units) });
    let binding = DriveBinding { drive: id(file)?, unit_bytes: seal.unit };
    let name: Arc<str> = file.name.as_str().into();
    let sealed = Sealed::open(Opening { below, key, store, binding, name, writable }).await;
    let sealed = sealed.map_err(|error| error_of(file, &error))?;
    if cheetah_device::Device::geometry(&sealed).size != file.size {
        return Err(Error::Evidence(format!("{}: its seal record is that of a drive of another size", file.name)));
    }
    if sealed.has_open_epoch() {
        tracing::warn!(
            "{}: a writer has not closed it. What it wrote after its last flush cannot be verified, and is not read",
            file.name
        );
    }
    Ok(sealed)
}

/// Lets a recipient open the drive, too. This process must be able to open it.
///
/// # Errors
///
/// If no identity of this process opens it, or it is not sealed.
pub fn share(file: &mut DriveFile, recipient: &Recipient) -> Result<()> {
    let key = unlock(file)?.ok_or_else(|| not_sealed(file))?;
    let new = wrapped(id(file)?, &key, recipient).map_err(|error| error_of(file, &error))?;
    let mut full = false;
    file.update(|file| {
        let Some(seal) = &mut file.sealed else { return };
        seal.keys.retain(|key| key.recipient != new.recipient || key.recipient == PASSPHRASE);
        full = seal.keys.len() >= KEYS_MAX;
        if !full {
            seal.keys.push(new);
        }
    })?;
    match full {
        true => Err(Error::misuse(format!("{} is shared with {KEYS_MAX} others already", file.name))),
        false => Ok(()),
    }
}

/// Removes the key that is wrapped for a recipient (`age1…`, or `passphrase` for all passphrases). Returns whether
/// there was one.
///
/// # Errors
///
/// If no other could open the drive afterwards.
pub fn unshare(file: &mut DriveFile, recipient: &str) -> Result<bool> {
    let seal = file.sealed.as_ref().ok_or_else(|| not_sealed(file))?;
    let left = seal.keys.iter().filter(|key| key.recipient != recipient).count();
    if left == 0 && !seal.keys.is_empty() {
        return Err(Error::misuse(format!(
            "no other can open {}: share it first, or destroy it (cheetah destroy)",
            file.path.display()
        )));
    }
    let found = left < seal.keys.len();
    file.update(|file| {
        if let Some(seal) = &mut file.sealed {
            seal.keys.retain(|key| key.recipient != recipient);
        }
    })?;
    Ok(found)
}

/// Destroys the wrapped keys in the drive file: replaces the file, and overwrites the former one. Returns false if the
/// drive is not sealed.
pub(crate) fn destroy_key(file: &DriveFile) -> Result<bool> {
    if file.sealed.is_none() {
        return Ok(false);
    }
    keyring::forget(&id(file)?);
    let overwriting =
        |error: std::io::Error| Error::io(format_args!("destroying the key in {}", file.path.display()), &error);
    let mut former = match File::options().write(true).open(&file.path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        opened => Some(opened.map_err(overwriting)?),
    };
    file.clone().update(|kept| {
        if let Some(seal) = &mut kept.sealed {
            seal.keys.clear();
        }
    })?;
    if let Some(former) = &mut former {
        let len = former.metadata().map_err(overwriting)?.len();
        let zeros = vec![0; usize::try_from(len).unwrap_or_default()];
        former.write_all(&zeros).and_then(|()| former.sync_all()).map_err(overwriting)?;
    }
    Ok(true)
}

/// Refuses operations that sealed drives do not support yet.
pub fn refuse(file: &DriveFile, what: &str) -> Result<()> {
    match file.sealed {
        Some(_) => Err(Error::misuse(format!(
            "{} is sealed, and a sealed drive cannot {what} yet; create a new drive with --seal, and load it",
            file.name
        ))),
        None => Ok(()),
    }
}

/// The path of the seal record.
pub fn record_path(file: &DriveFile) -> PathBuf {
    beside(&file.path, "seal")
}

/// The name of a passphrase among the recipients.
const PASSPHRASE: &str = "passphrase";

fn not_sealed(file: &DriveFile) -> Error {
    Error::misuse(format!(
        "{} is not sealed: anyone with its drive file and access to its nodes can read it",
        file.name
    ))
}

fn wrapped(id: [u8; ID_BYTES], key: &DriveKey, recipient: &Recipient) -> std::result::Result<WrappedKey, SealError> {
    let age = keyring::wrap_key(id, key, recipient)?;
    Ok(WrappedKey { recipient: recipient.to_string(), age: BASE64.encode(age) })
}

/// The drive's id as bytes.
fn id(file: &DriveFile) -> Result<[u8; ID_BYTES]> {
    let digits = (0..ID_BYTES).map(|n| file.id.get(2 * n..2 * n + 2).and_then(|two| u8::from_str_radix(two, 16).ok()));
    let bytes: Option<Vec<u8>> = digits.collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Error::failed(format!("the id of {} is not 32 hexadecimal digits", file.name)))
}

fn error_of(file: &DriveFile, error: &SealError) -> Error {
    let text = format!("{}: {error}", file.path.display());
    match error {
        SealError::NoKey(_) => Error::misuse(text),
        SealError::NotAuthentic(_) | SealError::Malformed(_) => Error::Evidence(text),
        SealError::Exhausted(_) | SealError::System(_) => Error::failed(text),
    }
}

/// The record, in a file beside the drive file.
struct RecordFile {
    path: PathBuf,
    /// A longer file is no record of this drive, and is not read.
    bytes_max: u64,
}

impl RecordStore for RecordFile {
    fn load(&self) -> std::io::Result<Vec<u8>> {
        match RECORD.read(&self.path, self.bytes_max) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(missing(&self.path)),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        }
    }

    fn store(&self, record: &[u8]) -> std::io::Result<()> {
        RECORD.replace(&self.path, record).map_err(|error| std::io::Error::other(error.to_string()))
    }

    fn version(&self) -> Option<[u64; 3]> {
        let metadata = self.path.metadata().ok()?;
        Some([
            metadata.dev(),
            metadata.ino(),
            metadata.mtime_nsec().cast_unsigned() ^ metadata.mtime().cast_unsigned() << 30,
        ])
    }
}

fn missing(path: &Path) -> std::io::Error {
    std::io::Error::other(format!("{} is missing; it belongs beside the drive file: copy it there", path.display()))
}
