//! Identities, and the keys of drives that they opened.
//!
//! Secrets are read from files only: arguments and environments are visible to others.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
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

/// The identities that a program was given, those that its environment names, and the keys of drives that they opened.
#[derive(Default)]
pub struct Keyring(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    identities: Vec<Identity>,
    /// Whether the environment was asked.
    asked: bool,
    drives: HashMap<[u8; ID_BYTES], DriveKey>,
    /// The files that were added, for processes that this one starts.
    files: Vec<(&'static str, PathBuf)>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").finish_non_exhaustive()
    }
}

impl Keyring {
    /// Adds the identities in a file as `age-keygen` writes it: one a line; empty lines and lines that begin with `#` are
    /// skipped.
    pub fn add_identities(&self, path: &Path) -> Result<(), SealError> {
        let found = identities(path)?;
        let mut ring = self.0.lock();
        ring.identities.extend(found);
        ring.files.push((IDENTITY_VARIABLE, absolute(path)));
        Ok(())
    }

    /// Adds the passphrase in a file: its first line.
    pub fn add_passphrase(&self, path: &Path) -> Result<(), SealError> {
        let found = passphrase(path)?;
        let mut ring = self.0.lock();
        ring.identities.push(found);
        ring.files.push((PASSPHRASE_VARIABLE, absolute(path)));
        Ok(())
    }

    /// The environment in which another process has these identities, those of this process's environment included.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let ring = self.0.lock();
        let names = [IDENTITY_VARIABLE, PASSPHRASE_VARIABLE].into_iter();
        names
            .filter_map(|name| {
                let given = ring.files.iter().filter(|(variable, _)| *variable == name).map(|(_, path)| path.clone());
                let inherited = std::env::var_os(name).unwrap_or_default();
                let inherited = std::env::split_paths(&inherited).filter(|path| !path.as_os_str().is_empty());
                let all: Vec<PathBuf> = given.chain(inherited).collect();
                // A path with a colon in it cannot be handed on.
                Some((name, std::env::join_paths(all).ok().filter(|paths| !paths.is_empty())?))
            })
            .collect()
    }

    /// The recipients that the identities belong to.
    pub fn recipients(&self) -> Result<Vec<Recipient>, SealError> {
        Ok(self.all()?.iter().map(Identity::recipient).collect())
    }

    /// Keeps the key of a drive.
    pub fn keep(&self, drive: [u8; ID_BYTES], key: &DriveKey) {
        self.0.lock().drives.insert(drive, key.clone());
    }

    /// Forgets the key of a drive, which is wiped once nothing has the drive open.
    pub fn forget(&self, drive: &[u8; ID_BYTES]) {
        self.0.lock().drives.remove(drive);
    }

    /// Opens the key of a drive with any identity of the ring, or of `further` ones, and keeps it. `wrapped` are the copies
    /// of the key.
    ///
    /// # Errors
    ///
    /// [`SealError::NoIdentity`] or [`SealError::OtherIdentity`] if no identity opens any of them; another if one is damaged
    /// and no other opens.
    pub fn open(
        &self,
        (drive, wrapped): ([u8; ID_BYTES], &[Vec<u8>]),
        further: &[Identity],
    ) -> Result<DriveKey, SealError> {
        if let Some(key) = self.0.lock().drives.get(&drive).cloned() {
            return Ok(key);
        }
        let own = self.all()?;
        if own.is_empty() && further.is_empty() {
            return Err(SealError::NoIdentity);
        }
        let mut damaged = None;
        // Keys first: a passphrase takes a second.
        let is_slow = |identity: &&Identity| matches!(identity, Identity::Passphrase(_));
        for slow in [false, true] {
            for identity in own.iter().chain(further).filter(|identity| is_slow(identity) == slow) {
                for file in wrapped {
                    match unwrap_key(drive, file, identity) {
                        Ok(Some(key)) => {
                            no_core_dumps();
                            self.keep(drive, &key);
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

    /// All identities, those of the environment included.
    fn all(&self) -> Result<Vec<Identity>, SealError> {
        let has_asked = std::mem::replace(&mut self.0.lock().asked, true);
        if !has_asked {
            let named = |variable| std::env::var_os(variable).unwrap_or_default();
            for path in std::env::split_paths(&named(IDENTITY_VARIABLE)).filter(|path| !path.as_os_str().is_empty()) {
                let found = identities(&path)?;
                self.0.lock().identities.extend(found);
            }
            for path in std::env::split_paths(&named(PASSPHRASE_VARIABLE)).filter(|path| !path.as_os_str().is_empty()) {
                let found = passphrase(&path)?;
                self.0.lock().identities.push(found);
            }
        }
        Ok(self.0.lock().identities.clone())
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
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
    if let Err(error) = cheetah_kit::process::forbid_core_dumps() {
        tracing::info!(%error, "core dumps cannot be forbidden");
    }
}
