//! The credentials of a machine that is a member of other machines' rooms.
//!
//! ```text
//! credentials/                      0700
//!   NAME-ID.ROLE.pem                key, certificate, authority, revoked certificates; ID is the start of the room's id
//!   .ROOMID.ROLE.key.pem            a key whose certificate was asked for and has not arrived yet
//!   lock                            held while a room is joined
//! ```
//!
//! The key is kept before its certificate is asked for: if the machine or the room's machine fails in between, the next
//! attempt asks with the same key, and uses no second place of the invitation.

use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result};
use cheetah_tls::{Credential, Role, RoomId};
use zeroize::Zeroizing;

use crate::client::Joined;
use crate::directory::{Lock, OwnDirectory};
use crate::key::PrivateKey;
use crate::place::credentials;
use crate::register::clean_name;
use crate::room::{names_in, parse_credential};

/// The most bytes of a credential: with a list of as many revoked certificates as a room can have.
pub const CREDENTIAL_LEN_MAX: usize = 2 << 20;
const LOCK: &str = "lock";
/// The list of revoked certificates is the last section of a credential's file.
const LIST_BEGINS: &str = "-----BEGIN X509 CRL-----";
/// The characters of a room's id in a file's name.
const ID_CHARS: usize = 8;

/// The directory of credentials.
pub struct Credentials(OwnDirectory);

/// A credential that is kept.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The room's name.
    pub room: String,
    /// The credential.
    pub credential: Credential,
    /// Its file.
    pub path: PathBuf,
}

impl Credentials {
    /// Opens the directory, which is made if there is none.
    ///
    /// # Errors
    ///
    /// If it is not the user's alone.
    pub fn open() -> Result<Self> {
        OwnDirectory::open_or_create(&credentials()?).map(Self)
    }

    /// Waits until no other process of this user joins a room, and keeps others waiting.
    ///
    /// # Errors
    ///
    /// If another process takes longer than 30 s.
    pub fn lock(&self) -> Result<Lock> {
        self.0.lock(LOCK)
    }

    /// The credential of a room and role.
    ///
    /// # Errors
    ///
    /// If it is damaged or others may read it.
    pub fn find(&self, room: RoomId, role: Role) -> Result<Option<Kept>> {
        let suffix = suffix(room, role);
        for name in names_in(self.0.path(), |name| Some(name.to_owned()).filter(|name| name.ends_with(&suffix)))? {
            let found = self.read(&name)?.filter(|kept| kept.credential.room() == Some(room));
            if found.as_ref().is_some_and(|kept| kept.credential.identity().is_some_and(|own| own.role == role)) {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn read(&self, name: &str) -> Result<Option<Kept>> {
        let path = self.0.at(name);
        let Some(pem) = self.0.read(name, CREDENTIAL_LEN_MAX)? else { return Ok(None) };
        let credential = parse_credential(&pem, &path)?;
        let room = name.split_once('.').and_then(|(stem, _)| stem.rsplit_once('-')).map_or(name, |(room, _)| room);
        Ok(Some(Kept { room: room.to_owned(), credential, path }))
    }

    /// Keeps a new credential, which replaces an earlier one of the same room and role.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn keep(&self, joined: &Joined) -> Result<Kept> {
        let identity = joined.credential.identity().ok_or_else(|| Error::failed("the credential is nobody's"))?;
        let room = clean_name(&joined.room).replace('.', "-");
        let name = format!("{room}{}", suffix(identity.room, identity.role));
        self.0.write(&name, joined.pem.as_bytes())?;
        self.0.remove(&key_name(identity.room, identity.role))?;
        Ok(Kept { room, credential: joined.credential.clone(), path: self.0.at(&name) })
    }

    /// The key to join a room with: the one of an earlier attempt whose answer did not arrive, or a new one, which is on
    /// stable storage when this returns.
    ///
    /// # Errors
    ///
    /// If it cannot be read or written.
    pub fn key_for(&self, room: RoomId, role: Role) -> Result<PrivateKey> {
        let name = key_name(room, role);
        if let Some(pem) = self.0.read(&name, 4096)?
            && let Ok(key) = PrivateKey::from_pem(&pem)
        {
            return Ok(key);
        }
        let key = PrivateKey::generate()?;
        self.0.write(&name, key.to_pem().as_bytes())?;
        Ok(key)
    }

    /// Replaces the list of revoked certificates, in DER, in the file of a credential: a process that is started later
    /// knows them, too.
    ///
    /// # Errors
    ///
    /// If it cannot be read or written.
    pub fn put_revocations(&self, path: &Path, list: &[u8]) -> Result<()> {
        use base64::Engine as _;
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
        let _lock = self.lock()?;
        let Some(pem) = self.0.read(name, CREDENTIAL_LEN_MAX)? else { return Ok(()) };
        let text = std::str::from_utf8(&pem).map_err(|_| Error::failed(format!("{} is not text", path.display())))?;
        let kept = text.split_once(LIST_BEGINS).map_or(text, |(kept, _)| kept);
        let mut new = Zeroizing::new(String::with_capacity(text.len() + 2 * list.len() + 128));
        new.push_str(kept);
        new.push_str(LIST_BEGINS);
        for line in base64::engine::general_purpose::STANDARD.encode(list).as_bytes().chunks(64) {
            new.push('\n');
            new.push_str(&String::from_utf8_lossy(line));
        }
        new.push_str("\n-----END X509 CRL-----\n");
        self.0.write(name, new.as_bytes())
    }
}

/// All credentials that are kept. A file that cannot be used is reported and left out.
///
/// # Errors
///
/// If the directory is not the user's alone.
pub fn all() -> Result<Vec<Kept>> {
    // Without a home directory, nothing is kept for this user.
    let Ok(path) = credentials() else { return Ok(Vec::new()) };
    let Some(directory) = OwnDirectory::open(&path)? else { return Ok(Vec::new()) };
    let directory = Credentials(directory);
    let mut kept = Vec::new();
    let wanted = |name: &str| (name.ends_with(".pem") && !name.starts_with('.')).then(|| name.to_owned());
    for name in names_in(directory.0.path(), wanted)? {
        match directory.read(&name) {
            Ok(found) => kept.extend(found),
            Err(error) => tracing::warn!("a credential is not used: {error}"),
        }
    }
    Ok(kept)
}

fn suffix(room: RoomId, role: Role) -> String {
    format!("-{}.{role}.pem", &room.to_string()[..ID_CHARS])
}

fn key_name(room: RoomId, role: Role) -> String {
    format!(".{room}.{role}.key.pem")
}
