//! A room on the machine that has its key.
//!
//! ```text
//! rooms/NAME/            0700
//!   room.toml            name and id; written once
//!   ca-key.pem           the room's private key; written once
//!   ca-cert.pem          its certificate; written once
//!   examiner.pem         the credential of this machine's examiner; written once
//!   register.toml        invitations and members
//!   pending.toml         machines that wait for approval
//!   ca-crl.pem           revoked certificates, for tools; the register decides
//!   heads.jsonl          the heads of custody logs ([`crate::heads`])
//!   drives/              drive files to hand out ([`crate::drives`])
//!   serving.toml         the process and the address of the enrolment server
//!   lock, serving.lock   held while the register is changed, or enrolment is served
//! ```
//!
//! A new room is made under a temporary name and renamed when it is complete.

use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result, next};
use cheetah_kit::clock::now_s;
use cheetah_kit::random;
use cheetah_tls::{Credential, Fingerprint, Role, RoomId};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::authority::{Authority, Subject};
use crate::credential_file::{CREDENTIAL_LEN_MAX, address_line, der_of_list, parse_credential};
use crate::directory::{Lock, OwnDirectory, names_in, rename_new};
use crate::invitation::{Host, Invitation, Token};
use crate::key::PrivateKey;
use crate::machine::{check_room_name, host_name, rooms};
use crate::pending::Pending;
use crate::register::{self, Admission, Applicant, Member, Register, Server};

const ROOM: &str = "room.toml";
const KEY: &str = "ca-key.pem";
const CERTIFICATE: &str = "ca-cert.pem";
const EXAMINER: &str = "examiner.pem";
const REGISTER: &str = "register.toml";
const PENDING: &str = "pending.toml";
const REVOCATIONS: &str = "ca-crl.pem";
const SERVING: &str = "serving.toml";
/// The lock that is held while a file of the room is changed.
pub(crate) const LOCK: &str = "lock";
const SERVING_LOCK: &str = "serving.lock";

/// The most bytes of a small file.
const SMALL_LEN_MAX: usize = 64 << 10;

/// A room, with its key.
#[derive(Debug)]
pub struct Room {
    name: String,
    directory: OwnDirectory,
    authority: Authority,
}

/// `room.toml`.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    version: u32,
    name: String,
    id: String,
}

/// The enrolment server of a room, as another process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// The process.
    pub pid: u32,
    /// The port that it listens on.
    pub port: u16,
    /// The address that it listens on; unspecified for all of the machine.
    pub address: std::net::IpAddr,
}

impl Room {
    /// Makes a room, with a member for the examiner at this machine.
    ///
    /// # Errors
    ///
    /// If there is a room of that name, or it cannot be written.
    pub fn init(name: &str, examiner: &str) -> Result<Self> {
        check_room_name(name)?;
        let rooms = OwnDirectory::open_or_create(&rooms()?)?;
        let path = rooms.at(name);
        let exists =
            || Error::misuse(format!("there is a room '{name}' on this machine already")).next(next::Room::UseRoom);
        if path.symlink_metadata().is_ok() {
            return Err(exists());
        }
        let temporary = rooms.at(&format!(".{name}.{:016x}", random::bits_64()?));
        let made = Self::make(name, examiner, &temporary);
        let named = made.and_then(|()| rename_new(&temporary, &path));
        if !matches!(named, Ok(true)) {
            // An unfinished room is useless.
            let _ = std::fs::remove_dir_all(&temporary);
        }
        if named? { Self::open(name) } else { Err(exists()) }
    }

    fn make(name: &str, examiner: &str, path: &Path) -> Result<()> {
        let directory = OwnDirectory::open_or_create(path)?;
        let authority = Authority::generate(name)?;
        let about = About { version: 1, name: name.to_owned(), id: authority.room().to_string() };
        directory.write(ROOM, toml_of(&about)?.as_bytes())?;
        directory.write(KEY, authority.key_pem().as_bytes())?;
        directory.write(CERTIFICATE, authority.certificate_pem().as_bytes())?;
        let room = Self { name: name.to_owned(), directory, authority };
        room.put_register(&Register::new())?;
        let key = PrivateKey::generate()?;
        let (member, _) = room.admit(&key, examiner, Role::Examiner, Admission::Founder)?;
        room.directory.write(EXAMINER, room.credential_pem(&key, &member)?.as_bytes())?;
        Ok(())
    }

    /// Opens the room of this name.
    ///
    /// # Errors
    ///
    /// If there is none, others may read it, or it is damaged.
    pub fn open(name: &str) -> Result<Self> {
        check_room_name(name)?;
        let missing = || {
            Error::misuse(format!("there is no room '{name}' on this machine"))
                .next(next::Room::InitOrGoThere { name: name.to_string() })
        };
        let directory = OwnDirectory::open(&rooms()?.join(name))?.ok_or_else(missing)?;
        let damaged = |what: &str, why: String| {
            Error::failed(format!("{}: {why}", directory.at(what).display())).next(next::Room::RestoreOrInit)
        };
        let read = |what: &str| {
            let bytes = directory.read(what, SMALL_LEN_MAX)?;
            bytes.ok_or_else(|| damaged(what, "the file is missing".into()))
        };
        let about = read(ROOM)?;
        let about: About = toml::from_slice(&about).map_err(|_| damaged(ROOM, "it is malformed".into()))?;
        if about.version != 1 || check_room_name(&about.name).is_err() {
            return Err(damaged(ROOM, "it is malformed, or of a newer Cheetah".into()));
        }
        let authority = Authority::from_pem(&about.name, &read(KEY)?, &read(CERTIFICATE)?);
        let authority = authority.map_err(|why| damaged(&format!("{KEY} or {CERTIFICATE}"), why.to_string()))?;
        if authority.room().to_string() != about.id {
            return Err(damaged(KEY, format!("it is not the key of room {}", about.id)));
        }
        Ok(Self { name: about.name, directory, authority })
    }

    /// The names of this machine's rooms.
    ///
    /// # Errors
    ///
    /// If the directory of rooms cannot be read.
    pub fn names() -> Result<Vec<String>> {
        // Without a home directory, nothing is kept for this user.
        let Ok(rooms) = rooms() else { return Ok(Vec::new()) };
        names_in(&rooms, |name| Some(name.to_owned()).filter(|name| check_room_name(name).is_ok()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id.
    pub fn id(&self) -> RoomId {
        self.authority.room()
    }

    /// The fingerprint of its key.
    pub fn key(&self) -> Fingerprint {
        self.authority.fingerprint()
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn directory(&self) -> &OwnDirectory {
        &self.directory
    }

    /// Its authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Its register.
    ///
    /// # Errors
    ///
    /// If it is missing or damaged.
    pub fn register(&self) -> Result<Register> {
        let damaged = |why: String| {
            Error::failed(format!("{}: {why}", self.directory.at(REGISTER).display())).next(next::Room::RestoreOrInit)
        };
        let bytes = self.directory.read(REGISTER, register::TEXT_LEN_MAX)?;
        let bytes = bytes.ok_or_else(|| damaged("the file is missing".into()))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged("it is not text".into()))?;
        Register::decode(text).map_err(|why| damaged(why.to_string()))
    }

    fn put_register(&self, register: &Register) -> Result<()> {
        let text = register.encode().map_err(|why| Error::failed(format!("writing the register: {why}")))?;
        self.directory.write(REGISTER, text.as_bytes())
    }

    /// Changes the register. It is on stable storage when this returns. Other processes wait.
    ///
    /// # Errors
    ///
    /// If `change` fails, the register cannot be read or written, or it is not released within 30 s.
    pub fn change<T>(&self, change: impl FnOnce(&mut Register) -> Result<T>) -> Result<T> {
        let _lock = self.directory.lock(LOCK)?;
        let old = self.register()?;
        let mut register = old.clone();
        let changed = change(&mut register)?;
        if register != old {
            self.put_register(&register)?;
        }
        if register.revision() != old.revision() {
            self.directory.write(REVOCATIONS, self.authority.revocations_pem(&register)?.as_bytes())?;
        }
        Ok(changed)
    }

    /// Records a server of the member with this key, or that it has ended.
    ///
    /// # Errors
    ///
    /// As [`Self::change`], and if there is no such member, or it is revoked.
    pub fn check_in(&self, key: &Fingerprint, server: Option<Server>, ended: bool) -> Result<()> {
        // In most cases nothing is new, and no process need wait.
        let check_in = |register: &mut Register| {
            let known = register.check_in(key, server.clone(), ended);
            known.map_err(|denied| Error::failed(denied.to_string()))
        };
        let known = self.register()?;
        let mut changed = known.clone();
        check_in(&mut changed)?;
        if changed == known { Ok(()) } else { self.change(check_in) }
    }

    /// The machines that wait for approval.
    ///
    /// # Errors
    ///
    /// If the table is damaged.
    pub fn pending(&self) -> Result<Pending> {
        let Some(bytes) = self.directory.read(PENDING, crate::pending::TEXT_LEN_MAX)? else {
            return Ok(Pending::default());
        };
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        Pending::decode(text).map_err(|why| {
            let path = self.directory.at(PENDING);
            Error::failed(format!("{}: it is damaged ({why}); remove it: machines that wait ask again", path.display()))
        })
    }

    /// Changes the table of machines that wait.
    ///
    /// # Errors
    ///
    /// As [`Self::change`].
    pub fn change_pending<T, E: Into<Error>>(
        &self,
        change: impl FnOnce(&mut Pending) -> std::result::Result<T, E>,
    ) -> Result<T> {
        let _lock = self.directory.lock(LOCK)?;
        let old = self.pending()?;
        let mut pending = old.clone();
        let changed = change(&mut pending);
        if pending != old {
            let text = pending.encode().map_err(|why| Error::failed(format!("writing {PENDING}: {why}")))?;
            self.directory.write(PENDING, text.as_bytes())?;
        }
        changed.map_err(Into::into)
    }

    /// Registers an invitation, and returns it for a server at these addresses, with its id.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn invite(
        &self,
        role: Role,
        (hosts, port): (Vec<Host>, u16),
        open_s: u64,
        uses: u32,
    ) -> Result<(Invitation, String)> {
        let token = Token::random()?;
        let id = self.change(|register| Ok(register.invite(token.hash(), role, now_s(), open_s, uses).id.clone()))?;
        Ok((Invitation { role, hosts, port, room_key: self.key(), token }, id))
    }

    /// Admits a member whose key was made at this machine. Returns it and its certificate.
    ///
    /// # Errors
    ///
    /// If the room is full, or the register cannot be written.
    pub fn admit(&self, key: &PrivateKey, name: &str, role: Role, by: Admission) -> Result<(Member, String)> {
        let public = key.public()?;
        let applicant = Applicant {
            name: name.to_owned(),
            key: public.fingerprint(),
            called_from: None,
            hosts: if by == Admission::InAdvance { Vec::new() } else { crate::machine::own_addresses() },
        };
        let serial = serial()?;
        let member = self.change(|register| {
            let admitted = register.admit(&applicant, role, by, serial, now_s()).cloned();
            admitted.map_err(|denied| Error::failed(denied.to_string()))
        })?;
        let certificate = self.authority.issue(&(&member).into(), &public)?;
        Ok((member, certificate))
    }

    /// The credential of a member, in PEM: its key and certificate, the authority's certificate, and the list of
    /// revoked certificates.
    ///
    /// # Errors
    ///
    /// If the register cannot be read, or the library refuses.
    pub fn credential_pem(&self, key: &PrivateKey, member: &Member) -> Result<Zeroizing<String>> {
        let certificate = self.authority.issue(&member.into(), &key.public()?)?;
        Ok(Zeroizing::new(
            [key.to_pem().as_str(), &certificate, self.authority.certificate_pem(), &self.revocations_pem()?].concat(),
        ))
    }

    /// The same as a file to be carried to a machine: before it, a line has the addresses of the enrolment server.
    ///
    /// # Errors
    ///
    /// As [`Self::credential_pem`].
    pub fn credential_file(&self, key: &PrivateKey, member: &Member) -> Result<Zeroizing<String>> {
        let pem = self.credential_pem(key, member)?;
        Ok(Zeroizing::new([address_line(&self.server_addresses()?).as_str(), &pem].concat()))
    }

    /// The list of revoked certificates, in PEM.
    ///
    /// # Errors
    ///
    /// As [`Self::credential_pem`].
    pub fn revocations_pem(&self) -> Result<String> {
        self.authority.revocations_pem(&self.register()?)
    }

    /// The file with the credential of the examiner at this machine.
    pub fn examiner_path(&self) -> PathBuf {
        self.directory.at(EXAMINER)
    }

    /// The credential of the examiner at this machine, in PEM.
    ///
    /// # Errors
    ///
    /// If it is missing.
    pub fn examiner_pem(&self) -> Result<Zeroizing<Vec<u8>>> {
        let pem = self.directory.read(EXAMINER, SMALL_LEN_MAX)?;
        pem.ok_or_else(|| {
            let path = self.directory.at(EXAMINER);
            Error::failed(format!("{}: the file is missing; put it back from a backup", path.display()))
        })
    }

    /// The credential of the examiner at this machine, with the revoked certificates of now.
    ///
    /// # Errors
    ///
    /// If it is missing or damaged.
    pub fn examiner(&self) -> Result<Credential> {
        let credential = parse_credential(&self.examiner_pem()?, &self.directory.at(EXAMINER))?;
        self.update(&credential)?;
        Ok(credential)
    }

    /// Gives a credential of this room the revoked certificates of now.
    ///
    /// # Errors
    ///
    /// If the register is damaged.
    pub fn update(&self, credential: &Credential) -> Result<()> {
        let der = self.revocations_der()?;
        credential.replace_revocations(&der).map_err(|error| Error::failed(error.to_string()))
    }

    /// The list of revoked certificates, in DER.
    ///
    /// # Errors
    ///
    /// As [`Self::revocations_pem`].
    pub fn revocations_der(&self) -> Result<Vec<u8>> {
        der_of_list(self.revocations_pem()?.as_bytes())
    }

    /// The list of revoked certificates, in PEM, as it was written when the last member was revoked: cheap to read
    /// repeatedly.
    ///
    /// # Errors
    ///
    /// If the file or, in its place, the register cannot be read.
    pub fn revocations_kept(&self) -> Result<String> {
        match self.directory.read(REVOCATIONS, CREDENTIAL_LEN_MAX)? {
            Some(pem) => Ok(String::from_utf8_lossy(&pem).into_owned()),
            None => self.revocations_pem(),
        }
    }

    /// A credential for the enrolment server. Its key is new and never written.
    ///
    /// # Errors
    ///
    /// If the library refuses.
    pub fn enrolment_credential(&self) -> Result<Credential> {
        let key = PrivateKey::generate()?;
        let serial = format!("{:032x}", serial()? >> 1 | 1 << 126);
        let name = host_name();
        let subject = Subject {
            name: &register::clean_name(&name),
            role: Role::Room,
            serial: &serial,
            is_named: true,
            hosts: &[],
        };
        let certificate = self.authority.issue(&subject, &key.public()?)?;
        let pem = Zeroizing::new([key.to_pem().as_str(), &certificate, self.authority.certificate_pem()].concat());
        Credential::from_pem(pem.as_bytes()).map_err(|error| Error::failed(error.to_string()))
    }

    /// Claims the enrolment of this room for this process, until the lock is dropped; `None` if another process serves
    /// it, or asks at this moment whether one does.
    ///
    /// # Errors
    ///
    /// If the lock cannot be made.
    pub fn claim_serving(&self) -> Result<Option<Lock>> {
        self.directory.try_lock(SERVING_LOCK)
    }

    /// Records this process as the enrolment server.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn set_serving(&self, serving: &Serving) -> Result<()> {
        self.directory.write(SERVING, toml_of(serving)?.as_bytes())
    }

    /// The enrolment server that was recorded last, which may have ended.
    ///
    /// # Errors
    ///
    /// If the record cannot be read.
    pub fn last_serving(&self) -> Result<Option<Serving>> {
        let bytes = self.directory.read(SERVING, SMALL_LEN_MAX)?;
        Ok(bytes.and_then(|bytes| toml::from_slice(&bytes).ok()))
    }

    /// Returns the addresses of the enrolment server that was recorded last, as `host:port`. Its port is kept.
    ///
    /// # Errors
    ///
    /// As [`Self::last_serving`].
    pub fn server_addresses(&self) -> Result<Vec<String>> {
        let Some(last) = self.last_serving()? else { return Ok(Vec::new()) };
        let hosts = match last.address.is_unspecified() {
            true => crate::machine::own_addresses(),
            false => vec![Host::Ip(last.address)],
        };
        Ok(hosts.iter().map(|host| host.with_port(last.port)).collect())
    }

    /// Forgets the enrolment server that was recorded last.
    ///
    /// # Errors
    ///
    /// If the record cannot be removed.
    pub fn clear_serving(&self) -> Result<()> {
        self.directory.remove(SERVING)
    }

    /// Whether a process has claimed the enrolment of this room.
    ///
    /// # Errors
    ///
    /// If the lock cannot be looked at.
    pub fn is_claimed(&self) -> Result<bool> {
        self.directory.is_locked(SERVING_LOCK)
    }

    /// The enrolment server, if one runs.
    ///
    /// # Errors
    ///
    /// As [`Self::last_serving`].
    pub fn serving(&self) -> Result<Option<Serving>> {
        if self.is_claimed()? { self.last_serving() } else { Ok(None) }
    }

    /// A path in its directory for the messages of a detached server.
    pub fn log_path(&self) -> PathBuf {
        self.directory.at("serving.log")
    }
}

/// A random serial number.
pub(crate) fn serial() -> Result<u128> {
    Ok(random::bits_128()?)
}

fn toml_of(value: &impl Serialize) -> Result<String> {
    toml::to_string(value).map_err(|error| Error::failed(format!("writing TOML: {error}")))
}
