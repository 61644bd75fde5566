//! The credentials of a machine that is a member of other machines' rooms.
//!
//! ```text
//! credentials/                      0700
//!   NAME-ID.ROLE.pem                key, certificate, authority, revoked certificates; ID is the start of the room's id.
//!                                   The first line has the addresses of the enrolment server
//!   .ROOMID.ROLE.key.pem            a key whose certificate was requested and has not arrived yet
//!   lock                            held while a room is joined
//! ```
//!
//! The key is stored before its certificate is requested. If either machine fails in between, the next attempt requests a
//! certificate for the same key, which counts no second use of the invitation.

use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result};
use cheetah_tls::{Credential, Role, RoomId};
use zeroize::Zeroizing;

use crate::client::Joined;
use crate::credential_file::{
    CREDENTIAL_LEN_MAX, LIST_BEGINS, address_line, addresses_in, der_of_list, parse_credential,
};
use crate::directory::{Lock, OwnDirectory, names_in};
use crate::key::PrivateKey;
use crate::machine::credentials;
use crate::register::clean_name;

const LOCK: &str = "lock";
/// The characters of a room's id in a file's name.
const ID_CHARS: usize = 8;

/// The directory of credentials.
pub struct Credentials(OwnDirectory);

/// A credential in the directory.
#[derive(Debug, Clone)]
pub struct StoredCredential {
    /// The room's name.
    pub room: String,
    /// The credential.
    pub credential: Credential,
    /// The addresses of the enrolment server, as `host:port`.
    pub at: Vec<String>,
    /// Its file.
    pub path: PathBuf,
}

impl Credentials {
    /// Opens the directory, and creates it if necessary.
    ///
    /// # Errors
    ///
    /// If other users can access it.
    pub fn open() -> Result<Self> {
        OwnDirectory::open_or_create(&credentials()?).map(Self)
    }

    /// Waits until no other process of this user is joining a room, and makes other processes wait until the lock is dropped.
    ///
    /// # Errors
    ///
    /// If another process holds the lock for 30 s.
    pub fn lock(&self) -> Result<Lock> {
        self.0.lock(LOCK)
    }

    /// The credential of a room and role.
    ///
    /// # Errors
    ///
    /// If it is damaged, or other users can read it.
    pub fn find(&self, room: RoomId, role: Role) -> Result<Option<StoredCredential>> {
        let suffix = suffix(room, role);
        for name in names_in(self.0.path(), |name| Some(name.to_owned()).filter(|name| name.ends_with(&suffix)))? {
            let found = self.read(&name)?.filter(|stored| stored.credential.room() == Some(room));
            if found.as_ref().is_some_and(|stored| stored.credential.identity().is_some_and(|own| own.role == role)) {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn read(&self, name: &str) -> Result<Option<StoredCredential>> {
        let path = self.0.at(name);
        let Some(pem) = self.0.read(name, CREDENTIAL_LEN_MAX)? else { return Ok(None) };
        let credential = parse_credential(&pem, &path)?;
        let room = name.split_once('.').and_then(|(stem, _)| stem.rsplit_once('-')).map_or(name, |(room, _)| room);
        Ok(Some(StoredCredential { room: room.to_owned(), credential, at: addresses_in(&pem), path }))
    }

    /// Stores a new credential. It replaces an earlier one of the same room and role.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn store(&self, joined: &Joined) -> Result<StoredCredential> {
        let identity = joined.credential.identity().ok_or_else(|| Error::failed("the credential names no member"))?;
        let room = clean_name(&joined.room).replace('.', "-");
        let name = format!("{room}{}", suffix(identity.room, identity.role));
        let text = Zeroizing::new([&*address_line(&joined.at), joined.pem.as_str()].concat());
        self.0.write(&name, text.as_bytes())?;
        self.0.remove(&key_name(identity.room, identity.role))?;
        Ok(StoredCredential {
            room,
            credential: joined.credential.clone(),
            at: joined.at.clone(),
            path: self.0.at(&name),
        })
    }

    /// Returns the key to join a room with: that of an earlier attempt whose answer did not arrive, or else a new one,
    /// which is on stable storage when this returns.
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

    /// The list of revoked certificates, in DER, in the file of a credential, if there is one.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn revocations(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
        let Some(pem) = self.0.read(name, CREDENTIAL_LEN_MAX)? else { return Ok(None) };
        let text = std::str::from_utf8(&pem).unwrap_or_default();
        let list = text.find(LIST_BEGINS).map(|at| &text[at..]);
        list.map(|list| der_of_list(list.as_bytes())).transpose()
    }

    /// Replaces the list of revoked certificates, in DER, in the file of a credential, for other processes with this
    /// credential and for those started later.
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
        let stored = text.split_once(LIST_BEGINS).map_or(text, |(stored, _)| stored);
        let mut new = Zeroizing::new(String::with_capacity(text.len() + 2 * list.len() + 128));
        new.push_str(stored);
        new.push_str(LIST_BEGINS);
        for line in base64::engine::general_purpose::STANDARD.encode(list).as_bytes().chunks(64) {
            new.push('\n');
            new.push_str(&String::from_utf8_lossy(line));
        }
        new.push_str("\n-----END X509 CRL-----\n");
        self.0.write(name, new.as_bytes())
    }
}

/// Returns all credentials in this user's directory. A file that cannot be used is logged and left out.
///
/// # Errors
///
/// If other users can access the directory.
pub fn stored_credentials() -> Result<Vec<StoredCredential>> {
    // Without a home directory, nothing is stored for this user.
    let Ok(path) = credentials() else { return Ok(Vec::new()) };
    let Some(directory) = OwnDirectory::open(&path)? else { return Ok(Vec::new()) };
    let directory = Credentials(directory);
    let mut stored = Vec::new();
    let wanted = |name: &str| (name.ends_with(".pem") && !name.starts_with('.')).then(|| name.to_owned());
    for name in names_in(directory.0.path(), wanted)? {
        match directory.read(&name) {
            Ok(found) => stored.extend(found),
            Err(error) => tracing::warn!("a credential is not used: {error}"),
        }
    }
    Ok(stored)
}

fn suffix(room: RoomId, role: Role) -> String {
    format!("-{}.{role}.pem", &room.to_string()[..ID_CHARS])
}

fn key_name(room: RoomId, role: Role) -> String {
    format!(".{room}.{role}.key.pem")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority;
    use crate::directory::OwnDirectory;
    use crate::register::{Admission, Applicant, Register};

    /// A node's credential in a directory, with the authority and the register of its room.
    fn stored() -> (tempfile::TempDir, Credentials, StoredCredential, Authority, Register) {
        let authority = Authority::generate("lab").unwrap();
        let (key, mut register) = (PrivateKey::generate().unwrap(), Register::new());
        let applicant = |name: &str, key| Applicant { name: name.into(), key, called_from: None, hosts: Vec::new() };
        let own = applicant("one", key.public().unwrap().fingerprint());
        let member = register.admit(&own, Role::Node, Admission::Approved, 1, 0).unwrap().clone();
        let other = applicant("two", PrivateKey::generate().unwrap().public().unwrap().fingerprint());
        register.admit(&other, Role::Node, Admission::Approved, 2, 0).unwrap();
        let certificate = authority.issue(&(&member).into(), &key.public().unwrap()).unwrap();
        let list = authority.revocations_pem(&register).unwrap();
        let pem = Zeroizing::new([key.to_pem().as_str(), &certificate, authority.certificate_pem(), &list].concat());
        let credential = Credential::from_pem(pem.as_bytes()).unwrap();
        let at = vec!["10.0.0.5:10812".to_owned(), "[fd00::5]:10812".to_owned(), "desk:1".to_owned()];
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials(OwnDirectory::open_or_create(&directory.path().join("c")).unwrap());
        let joined = Joined { credential, pem, room: "lab".into(), at, clock_offset_s: 0 };
        let stored = credentials.store(&joined).unwrap();
        (directory, credentials, stored, authority, register)
    }

    #[test]
    fn a_stored_credential_knows_its_room_and_where_to_ask_it() {
        let (_directory, credentials, stored, authority, _) = stored();
        let found = credentials.find(authority.room(), Role::Node).unwrap().unwrap();
        assert_eq!((&*found.room, &found.at), ("lab", &stored.at));
        assert_eq!(found.at.len(), 3);
        assert!(credentials.find(authority.room(), Role::Agent).unwrap().is_none());
    }

    #[test]
    fn a_peer_of_another_tls_library_is_accepted_by_its_rooms_signature_until_it_is_revoked() {
        use rustls::pki_types::{CertificateDer, pem::PemObject as _};
        let (_directory, _, stored, authority, mut register) = stored();
        let key = PrivateKey::generate().unwrap();
        let public = key.public().unwrap();
        let applicant =
            Applicant { name: "ann".into(), key: public.fingerprint(), called_from: None, hosts: Vec::new() };
        let ann = register.admit(&applicant, Role::Analyst, Admission::Approved, 3, 0).unwrap().clone();
        let certificate = |authority: &Authority| {
            let pem = authority.issue(&(&ann).into(), &public).unwrap();
            CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
        };
        let own = certificate(&authority);
        let standing = stored.credential.standing(&own).unwrap();
        assert_eq!((standing.identity().role, standing.is_revoked()), (Role::Analyst, false));
        let other = Authority::generate("lab").unwrap();
        assert!(stored.credential.standing(&certificate(&other)).is_err());
        let mut changed = own.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(stored.credential.standing(&changed).is_err());
        assert!(stored.credential.standing(&[]).is_err());
        register.revoke(&["ann"], 7);
        let list = der_of_list(authority.revocations_pem(&register).unwrap().as_bytes()).unwrap();
        stored.credential.replace_revocations(&list).unwrap();
        assert!(standing.is_revoked());
        assert!(stored.credential.standing(&own).is_err());
    }

    #[test]
    fn a_list_of_revoked_certificates_that_is_put_into_the_file_is_in_force_when_it_is_read_again() {
        let (_directory, credentials, stored, authority, mut register) = stored();
        assert_eq!(stored.credential.revoked(), 0);
        register.revoke(&["two"], 7);
        let list = der_of_list(authority.revocations_pem(&register).unwrap().as_bytes()).unwrap();
        for _ in 0..2 {
            credentials.put_revocations(&stored.path, &list).unwrap();
            assert_eq!(credentials.revocations(&stored.path).unwrap().as_ref(), Some(&list));
        }
        let again = credentials.find(authority.room(), Role::Node).unwrap().unwrap();
        assert_eq!((again.credential.revoked(), again.credential.revocations()), (1, Some(list.clone())));
        assert_eq!(again.at, stored.at, "the rest of the file is unchanged");
        // The running process takes it from the file, and no older one after it.
        stored.credential.replace_revocations(&list).unwrap();
        let old = der_of_list(authority.revocations_pem(&Register::new()).unwrap().as_bytes()).unwrap();
        assert!(stored.credential.replace_revocations(&old).is_err());
        // A file that is gone is not made again.
        std::fs::remove_file(&stored.path).unwrap();
        credentials.put_revocations(&stored.path, &list).unwrap();
        assert!(!stored.path.exists() && credentials.revocations(&stored.path).unwrap().is_none());
    }
}
