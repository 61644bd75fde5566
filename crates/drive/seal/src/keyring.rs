//! The identities of this process, and the keys that they opened.
//!
//! The command line sets them once; what opens a drive asks here, so that they need not be passed through every layer
//! between. Secrets are read from files only: arguments and environments are visible to others.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::age::{self, Identity, Recipient};
use crate::error::SealError;
use crate::key::{DriveKey, KEY_BYTES};
use crate::unit::{FORMAT, ID_BYTES};

pub use crate::variables::{IDENTITY_VARIABLE, PASSPHRASE_VARIABLE};

/// The longest file of identities or passphrase that is read, in bytes.
const SECRET_FILE_BYTES_MAX: u64 = 64 << 10;

static RING: Mutex<Option<Ring>> = Mutex::new(None);

#[derive(Default)]
struct Ring {
    identities: Vec<Identity>,
    /// Whether the environment was asked.
    asked: bool,
    drives: HashMap<[u8; ID_BYTES], DriveKey>,
    /// The files that were added, for processes that this one starts.
    files: Vec<(&'static str, PathBuf)>,
}

/// Adds the identities in a file as `age-keygen` writes it: one a line; empty lines and lines that begin with `#` are
/// skipped.
pub fn add_identities(path: &Path) -> Result<(), SealError> {
    let found = identities(path)?;
    with(|ring| {
        ring.identities.extend(found);
        ring.files.push((IDENTITY_VARIABLE, absolute(path)));
    });
    Ok(())
}

/// Adds an identity that is in no file.
pub fn add(identity: Identity) {
    with(|ring| ring.identities.push(identity));
}

/// Adds the passphrase in a file: its first line.
pub fn add_passphrase(path: &Path) -> Result<(), SealError> {
    let found = passphrase(path)?;
    with(|ring| {
        ring.identities.push(found);
        ring.files.push((PASSPHRASE_VARIABLE, absolute(path)));
    });
    Ok(())
}

/// The environment in which another process has the identities of this one, those of its own environment included.
pub fn environment() -> Vec<(&'static str, OsString)> {
    let names = [IDENTITY_VARIABLE, PASSPHRASE_VARIABLE].into_iter();
    names
        .filter_map(|name| {
            let given: Vec<PathBuf> = with(|ring| {
                ring.files.iter().filter(|(variable, _)| *variable == name).map(|(_, path)| path.clone()).collect()
            });
            let inherited = std::env::var_os(name).unwrap_or_default();
            let inherited = std::env::split_paths(&inherited).filter(|path| !path.as_os_str().is_empty());
            let all: Vec<PathBuf> = given.into_iter().chain(inherited).collect();
            // A path with a colon in it cannot be handed on.
            Some((name, std::env::join_paths(all).ok().filter(|paths| !paths.is_empty())?))
        })
        .collect()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The recipients that the identities of this process belong to.
pub fn recipients() -> Result<Vec<Recipient>, SealError> {
    Ok(all()?.iter().map(Identity::recipient).collect())
}

/// Keeps the key of a drive for this process.
pub fn keep(drive: [u8; ID_BYTES], key: &DriveKey) {
    with(|ring| ring.drives.insert(drive, key.clone()));
}

/// Forgets the key of a drive, which is wiped once nothing has the drive open.
pub fn forget(drive: &[u8; ID_BYTES]) {
    with(|ring| ring.drives.remove(drive));
}

/// Opens the key of a drive with any identity of this process, and keeps it. `wrapped` are the copies of the key.
///
/// # Errors
///
/// [`SealError::NoIdentity`] or [`SealError::OtherIdentity`] if no identity opens any of them; another if one is damaged and no other opens.
pub fn open(drive: [u8; ID_BYTES], wrapped: &[Vec<u8>]) -> Result<DriveKey, SealError> {
    if let Some(key) = with(|ring| ring.drives.get(&drive).cloned()) {
        return Ok(key);
    }
    let identities = all()?;
    if identities.is_empty() {
        return Err(SealError::NoIdentity);
    }
    let mut damaged = None;
    // Keys first: a passphrase takes a second.
    let is_slow = |identity: &&Identity| matches!(identity, Identity::Passphrase(_));
    for slow in [false, true] {
        for identity in identities.iter().filter(|identity| is_slow(identity) == slow) {
            for file in wrapped {
                match unwrap_key(drive, file, identity) {
                    Ok(Some(key)) => {
                        no_core_dumps();
                        keep(drive, &key);
                        return Ok(key);
                    }
                    Ok(None) => {}
                    Err(error) => damaged = Some(error),
                }
            }
        }
    }
    Err(damaged.unwrap_or(SealError::OtherIdentity))
}

/// Wraps the key of a drive for a recipient.
pub fn wrap_key(drive: [u8; ID_BYTES], key: &DriveKey, recipient: &Recipient) -> Result<Vec<u8>, SealError> {
    let mut secret = Zeroizing::new(Vec::with_capacity(FORMAT.len() + ID_BYTES + KEY_BYTES));
    secret.extend_from_slice(FORMAT);
    secret.extend_from_slice(&drive);
    secret.extend_from_slice(key.bytes());
    age::wrap(&secret, recipient)
}

/// Unwraps the key of a drive; `None` if it is wrapped for another identity.
///
/// # Errors
///
/// If it was changed, or is the key of another drive.
pub fn unwrap_key(drive: [u8; ID_BYTES], file: &[u8], identity: &Identity) -> Result<Option<DriveKey>, SealError> {
    let Some(secret) = age::unwrap(file, identity)? else { return Ok(None) };
    let bytes: Option<[&[u8]; 3]> = secret.split_at_checked(FORMAT.len()).and_then(|(format, rest)| {
        let (id, key) = rest.split_at_checked(ID_BYTES)?;
        Some([format, id, key])
    });
    match bytes {
        Some([format, id, key]) if format == FORMAT && id == drive => {
            let key: Zeroizing<[u8; KEY_BYTES]> =
                Zeroizing::new(key.try_into().map_err(|_| SealError::Malformed("a wrapped key has the wrong length"))?);
            DriveKey::from_bytes(&key).map(Some)
        }
        _ => Err(SealError::NotAuthentic("a wrapped key is that of another drive")),
    }
}

fn with<T>(change: impl FnOnce(&mut Ring) -> T) -> T {
    change(RING.lock().get_or_insert_default())
}

/// All identities, those of the environment included.
fn all() -> Result<Vec<Identity>, SealError> {
    if !with(|ring| std::mem::replace(&mut ring.asked, true)) {
        let named = |variable| std::env::var_os(variable).unwrap_or_default();
        for path in std::env::split_paths(&named(IDENTITY_VARIABLE)).filter(|path| !path.as_os_str().is_empty()) {
            let found = identities(&path)?;
            with(|ring| ring.identities.extend(found));
        }
        for path in std::env::split_paths(&named(PASSPHRASE_VARIABLE)).filter(|path| !path.as_os_str().is_empty()) {
            let found = passphrase(&path)?;
            with(|ring| ring.identities.push(found));
        }
    }
    Ok(with(|ring| ring.identities.clone()))
}

/// Reads the identities in a file.
pub fn identities(path: &Path) -> Result<Vec<Identity>, SealError> {
    let text = read(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let found: Vec<Identity> = lines
        .map(str::parse)
        .collect::<Result<_, SealError>>()
        .map_err(|error| SealError::NoIdentityFile(format!("{}: {error}", path.display())))?;
    match found.is_empty() {
        true => Err(SealError::NoKey(format!("{} holds no identity (AGE-SECRET-KEY-1…)", path.display()))),
        false => Ok(found),
    }
}

/// Reads the passphrase in a file.
pub fn passphrase(path: &Path) -> Result<Identity, SealError> {
    let text = read(path)?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(Identity::Passphrase(Arc::new(Zeroizing::new(line.to_owned())))),
        None => Err(SealError::NoKey(format!("{}: its first line, the passphrase, is empty", path.display()))),
    }
}

fn read(path: &Path) -> Result<Zeroizing<String>, SealError> {
    let failed = |error: std::io::Error| SealError::system(&format!("reading {}", path.display()), &error);
    // Never reallocated, which would leave a copy.
    let mut text = Zeroizing::new(String::with_capacity(SECRET_FILE_BYTES_MAX as usize + 1));
    let file = File::open(path).map_err(failed)?;
    file.take(SECRET_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > SECRET_FILE_BYTES_MAX {
        true => Err(SealError::NoKey(format!("{} is too long for a file of identities", path.display()))),
        false => Ok(text),
    }
}

/// Forbids core dumps of this process from now on, and to other users' debuggers its memory, because it holds keys and
/// content.
fn no_core_dumps() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
    let limit = getrlimit(Resource::Core);
    let none = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: limit.maximum });
    // A limit does not count for a program that the kernel pipes core dumps to.
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Err(error) = none.and(hidden) {
        tracing::info!(%error, "core dumps cannot be forbidden");
    }
}
