//! Sealed drives: making them, opening them, and the keys that open them.
//!
//! The drive's key is in the drive file, wrapped; the seal record is in a file beside it, `case42.drive.seal`.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cheetah_device::{DynDevice, Size};
use cheetah_error::{Error, Next, Result, next};
use cheetah_image::append::Appender;
use cheetah_image::own_file::OwnFile;
use cheetah_kit::file::{Status, if_there};
use cheetah_kit::number::gcd;
use cheetah_seal::age::{Identity, Recipient};
use cheetah_seal::device::{Alternatives, Opening, RecordStore, Version};
use cheetah_seal::unit::{DriveBinding, ID_BYTES, SUITE};
use cheetah_seal::{DriveKey, Keyring, Record, SealError, Sealed, Units, keyring, log};

use cheetah_tls::{Credential, CredentialSet};
use parking_lot::Mutex;

use crate::file::check::KEYS_MAX;
use crate::file::units::{sealed_bytes, units_of};
use crate::file::{DriveFile, SealSection, WrappedKey, beside};
use crate::session::{AcceptanceRecord, Session};

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
        sealed_bytes(self.unit, size)
    }

    /// The bytes of content that fit into `capacity` bytes.
    pub(crate) fn fitting(&self, capacity: u64) -> u64 {
        Units::fitting(self.unit, capacity)
    }
}

/// Makes the key and the record of a new drive, which has its size, and no seal yet. The keyring gets the key.
pub(crate) fn begin(file: &mut DriveFile, request: &SealRequest, keyring: &Keyring) -> Result<()> {
    let failed =
        |error: SealError| Error::failed(format!("{} cannot be sealed: {error}", file.name)).advise(error.next());
    if request.recipients.is_empty() {
        return Err(Error::misuse("a sealed drive needs a key that opens it").next(next::Seal::NameRecipient));
    }
    let id = id(file)?;
    let units = units_of(request.unit, file.size)?;
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
    file.sealed = Some(SealSection { suite: SUITE, unit: request.unit, holes: request.holes, epoch: 0, keys });
    keyring.keep(id, &key);
    Ok(())
}

/// Takes [`begin`] back.
pub(crate) fn remove(file: &DriveFile, keyring: &Keyring) {
    if file.sealed.is_some()
        && let Err(error) = remove_record(file, keyring)
    {
        tracing::warn!("a file is left: {error}");
    }
}

/// Removes the record.
pub(crate) fn remove_record(file: &DriveFile, keyring: &Keyring) -> Result<()> {
    if file.sealed.is_none() {
        return Ok(());
    }
    keyring.forget(&id(file)?);
    RECORD.remove(&record_path(file))
}

/// The recipient of the credential that a process acts as in its room, which that credential alone opens; `None` without a
/// room.
pub fn room_recipient(credentials: &CredentialSet) -> Result<Option<Recipient>> {
    let Some(credential) = credentials.acting_as().filter(|credential| credential.identity().is_some()) else {
        return Ok(None);
    };
    let identity = identity_of(credential).transpose();
    let identity = identity.map_err(|error| Error::failed(format!("the room's key cannot be used: {error}")))?;
    Ok(identity.map(|identity| identity.recipient()))
}

/// The identity that a credential's private key stands for.
fn identity_of(credential: &Credential) -> Option<std::result::Result<Identity, SealError>> {
    credential.secret(b"sealed drives").map(|secret| Identity::from_secret(&secret))
}

/// Opens the key of a sealed drive with the identities of the session; `None` if the drive is not sealed.
pub(crate) fn unlock(file: &DriveFile, session: &Session) -> Result<Option<DriveKey>> {
    let Some(seal) = &file.sealed else { return Ok(None) };
    if seal.keys.is_empty() {
        return Err(Error::failed(format!(
            "{}: its key was destroyed, so its content cannot be read any more",
            file.name
        )));
    }
    let id = id(file)?;
    let damaged = || Error::failed(format!("{}: a wrapped key in its drive file is damaged", file.name));
    let files: Option<Vec<Vec<u8>>> = seal.keys.iter().map(|key| BASE64.decode(&key.age).ok()).collect();
    let files = files.ok_or_else(damaged)?;
    // Those of the rooms last: most drives are sealed for few.
    let of_rooms: std::result::Result<Vec<Identity>, SealError> =
        session.credentials.all().filter_map(identity_of).collect();
    let key = of_rooms.and_then(|of_rooms| session.keyring.open((id, &files), &of_rooms));
    key.map(Some).map_err(|error| error_of(file, &error))
}

/// The seal record of a drive, as it is stored now.
pub(crate) async fn record(file: &DriveFile, key: &DriveKey) -> Result<Record> {
    let Some(seal) = &file.sealed else { return Err(not_sealed(file)) };
    let (store, key) = (RecordFile::of(file, units_of(seal.unit, file.size)?), key.clone());
    let loading = tokio::task::spawn_blocking(move || {
        let bytes = store.load().map_err(|error| SealError::system("its seal record cannot be read", &error))?;
        log::decode(&bytes, &key)
    });
    let loaded = loading.await.map_err(|_| Error::failed("reading a seal record broke off"))?;
    let mut record = loaded.map_err(|error| error_of(file, &error))?.record;
    if record.binding() != (DriveBinding { drive: id(file)?, unit_bytes: seal.unit }) {
        return Err(error_of(file, &SealError::NotAuthentic("its seal record is that of another drive")));
    }
    if record.epochs.last().map_or(0, |last| last.number) < seal.epoch {
        return Err(error_of(file, &SealError::OldRecord));
    }
    record.enlarge(file.size).map_err(|error| error_of(file, &error))?;
    Ok(record)
}

/// The device of a drive's nodes, for the sealed device over it.
pub(crate) struct Below {
    /// The device.
    pub device: DynDevice,
    /// The ways to read a range otherwise, if it has redundancy.
    pub alternatives: Option<Arc<dyn Alternatives>>,
}

/// The sealed device over the device of a drive's nodes.
pub(crate) async fn open(
    file: &DriveFile,
    key: DriveKey,
    below: Below,
    (writable, session): (bool, &Session),
) -> Result<Sealed> {
    let Some(seal) = &file.sealed else { return Err(Error::failed("a drive that is not sealed has no seal to open")) };
    let units = units_of(seal.unit, file.size)?;
    let store = Arc::new(RecordFile::of(file, units));
    let binding = DriveBinding { drive: id(file)?, unit_bytes: seal.unit };
    let name: Arc<str> = file.name.as_str().into();
    let (boundary, Below { device: below, alternatives }) = (boundary(file), below);
    let (size, epoch) = (file.size, seal.epoch);
    let opening = Opening { below, key, store, binding, size, epoch, name, writable, boundary, alternatives };
    let sealed = Sealed::open(opening).await.map_err(|error| error_of(file, &error))?;
    if let Some(epoch) = sealed.epoch() {
        file.clone().update_existing(|file| {
            if let Some(seal) = &mut file.sealed {
                seal.epoch = seal.epoch.max(epoch);
            }
        })?;
    }
    if sealed.has_open_epoch() {
        match &session.acceptance {
            Some(record) => accept(file, &sealed, record.as_ref()).await?,
            None => tracing::warn!(
                next = %Next::from(next::Seal::AcceptUnverified).record(),
                "{}: a writer has not closed it. What it wrote after its last flush is unverified, and is not read",
                file.name
            ),
        }
    }
    Ok(sealed)
}

async fn accept(file: &DriveFile, sealed: &Sealed, record: &dyn AcceptanceRecord) -> Result<()> {
    let ranges = sealed.unverified().await.map_err(Error::device("looking for unverified units"))?;
    let bytes: u64 = ranges.iter().map(|range| range.len).sum();
    tracing::warn!("{}: {} that a writer never closed are accepted, unverified", file.name, Size(bytes));
    record.accepted(file, &ranges)?;
    sealed.accept_unverified().await.map_err(Error::device("accepting unverified units"))
}

/// The number of bytes at whose multiples a drive goes on to another node; `None` if it never does.
fn boundary(file: &DriveFile) -> Option<u64> {
    let mut start = 0u64;
    let mut common = 0;
    for set in &file.sets {
        let units = match set.layout().unit() {
            _ if set.nodes.len() == 1 => 0,
            Some(unit) => unit,
            None => {
                set.nodes[..set.nodes.len() - 1]
                    .iter()
                    .fold((0, 0u64), |(common, end), node| {
                        let end = end.saturating_add(node.size);
                        (gcd(common, end), end)
                    })
                    .0
            }
        };
        common = gcd(gcd(common, start), units);
        start = start.saturating_add(set.size);
    }
    Some(common).filter(|common| *common > 0)
}

/// Lets a recipient open the drive, too. An identity of the session must open it.
///
/// # Errors
///
/// If none does, or it is not sealed.
pub fn share(file: &mut DriveFile, recipient: &Recipient, session: &Session) -> Result<()> {
    let key = unlock(file, session)?.ok_or_else(|| not_sealed(file))?;
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
        return Err(
            Error::misuse(format!("no other can open {}", file.path.display())).next(next::Seal::ShareOrDestroy)
        );
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
pub(crate) fn destroy_key(file: &DriveFile, keyring: &Keyring) -> Result<bool> {
    if file.sealed.is_none() {
        return Ok(false);
    }
    keyring.forget(&id(file)?);
    let overwriting =
        |error: std::io::Error| Error::io(format_args!("destroying the key in {}", file.path.display()), &error);
    let mut former = if_there(File::options().write(true).open(&file.path)).map_err(overwriting)?;
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

/// Overwrites the drive file in place, wrapped keys included: needs no space. The file must then be removed.
pub(crate) fn overwrite(file: &DriveFile) -> Result<()> {
    let failed = |error: std::io::Error| Error::io(format_args!("overwriting {}", file.path.display()), &error);
    let mut there = File::options().write(true).open(&file.path).map_err(failed)?;
    let len = there.metadata().map_err(failed)?.len();
    let zeros = vec![0; usize::try_from(len).unwrap_or_default()];
    there.write_all(&zeros).and_then(|()| there.sync_all()).map_err(failed)
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
        SealError::NotAuthentic(_) | SealError::OldRecord | SealError::Malformed(_) => Error::evidence(text),
        _ if error.is_misuse() => Error::misuse(text),
        _ => Error::failed(text),
    }
    .advise(error.next())
}

/// The record, in a file beside the drive file.
struct RecordFile {
    /// The drive file.
    drive: PathBuf,
    path: PathBuf,
    /// The units of the drive when it was opened.
    units: Units,
    /// The file that this process has stored last, open for appending.
    own: Mutex<Option<Appender<File>>>,
}

impl RecordFile {
    fn of(file: &DriveFile, units: Units) -> Self {
        Self { drive: file.path.clone(), path: record_path(file), units, own: Mutex::default() }
    }

    /// The length of the longest record of this drive, in bytes. The drive may have been enlarged since it was opened.
    fn bytes_max(&self) -> u64 {
        let now = DriveFile::load(&self.drive).ok().and_then(|file| Units::new(self.units.bytes(), file.size));
        let units = now.filter(|now| now.size() > self.units.size()).unwrap_or(self.units);
        let record_bytes = Record::bytes_max(&units);
        record_bytes.saturating_add(log::bytes_max(record_bytes))
    }
}

impl RecordStore for RecordFile {
    fn load(&self) -> std::io::Result<Vec<u8>> {
        match RECORD.read(&self.path, self.bytes_max()) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(missing(&self.path)),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        }
    }

    fn store(&self, record: &[u8]) -> std::io::Result<Version> {
        let mut own = self.own.lock();
        let other = |error: Error| std::io::Error::other(error.to_string());
        RECORD.replace(&self.path, record).map_err(other)?;
        let file = RECORD.open(&self.path).map_err(other)?.ok_or_else(|| missing(&self.path))?;
        let status = Status::of(&file)?;
        *own = Some(Appender::new(file, status.len));
        Ok(version(&status))
    }

    fn append(&self, entry: &[u8], durable: bool) -> std::io::Result<Version> {
        let mut own = self.own.lock();
        let file = own.as_mut().ok_or_else(|| missing(&self.path))?;
        file.append(entry, durable)?;
        Ok(version(&Status::of(file.file())?))
    }

    fn undo_append(&self) -> Option<Version> {
        let mut own = self.own.lock();
        let file = own.as_mut()?;
        file.mend().and_then(|()| Status::of(file.file())).map(|status| version(&status)).ok()
    }

    fn version(&self) -> Option<Version> {
        Status::at(&self.path).ok().map(|status| version(&status))
    }
}

/// A file that was replaced or appended to has another version.
fn version(status: &Status) -> Version {
    let (s, ns) = status.modified;
    let modified = ns.cast_unsigned() ^ s.cast_unsigned() << 30;
    // A number of 64 bits, as most file systems have them, stays as it is.
    let number = (status.id.number >> 64) as u64 ^ status.id.number as u64;
    [status.id.volume, number, status.len, modified]
}

fn missing(path: &Path) -> std::io::Error {
    std::io::Error::other(format!("{} is missing; it belongs beside the drive file: copy it there", path.display()))
}
