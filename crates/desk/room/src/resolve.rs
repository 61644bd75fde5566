//! Resolves the name of a room: a room of this machine, a room that it has joined, a credential file, or an invitation.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result, list, next};
use cheetah_kit::file::of_its_owner_alone;
use cheetah_tls::{Credential, Role, RoomId};
use zeroize::Zeroizing;

use crate::client::{Joined, MachineInfo, enrol, is_member};
use crate::credential_file::{CREDENTIAL_LEN_MAX, addresses_in};
use crate::credentials::{Credentials, StoredCredential, stored_credentials};
use crate::directory::OwnDirectory;
use crate::invitation::{Host, Invitation, TEXT_LEN_MAX, parse_host_port};
use crate::key::PrivateKey;
use crate::machine::{PORT, host_name};
use crate::register::Admission;
use crate::room::Room;

/// The variable that names the room where no option does.
pub const VARIABLE: &str = "CHEETAH_ROOM";
/// The name that means no room: connections in clear.
pub const NO_ROOM: &str = "none";

/// The characters of a room's id that distinguish rooms of one name, as in the names of credentials' files.
const ID_CHARS: usize = 8;

/// The purpose for which a command needs the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To lend memory.
    Node,
    /// To serve a disk.
    Agent,
    /// To use drives.
    Client,
}

impl Purpose {
    /// The roles that fit, best first.
    pub const fn roles(self) -> &'static [Role] {
        match self {
            Self::Node => &[Role::TrustedNode, Role::Node],
            Self::Agent => &[Role::Agent],
            Self::Client => &[Role::Examiner, Role::Analyst],
        }
    }

    /// The role that an invitation for it gives, unless the examiner wants more.
    const fn usual(self) -> Role {
        match self {
            Self::Node => Role::Node,
            Self::Agent => Role::Agent,
            Self::Client => Role::Examiner,
        }
    }

    fn fits(self, role: Role) -> bool {
        self.roles().contains(&role)
    }
}

/// This machine's membership of a room.
#[derive(Debug)]
pub struct Membership {
    /// The credential.
    pub credential: Credential,
    /// The room's name.
    pub room: String,
    /// Its file, if it is in this user's directory of credentials.
    pub file: Option<PathBuf>,
    /// The file that holds the credential, if one does.
    pub pem: Option<PathBuf>,
    /// The addresses of the enrolment server, as `host:port`.
    pub at: Vec<String>,
    /// How it came about just now, if it did.
    pub new: Option<NewMembership>,
}

/// A membership that was made just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewMembership {
    /// The clock of the room's machine minus this one's, in seconds.
    pub clock_offset_s: i64,
}

/// How to resolve the name of a room.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The name, if one was given.
    pub text: Option<&'a str>,
    /// The purpose.
    pub purpose: Purpose,
    /// Whether a new credential stays in memory.
    pub ephemeral: bool,
    /// The description of this machine, for joining.
    pub machine: MachineInfo,
}

/// Resolves the room: the one that is wanted, else that of the variable, else the only one of this machine. `None`: no room.
///
/// # Errors
///
/// If the named room or file is missing, damaged, for another role, or cannot be joined.
pub async fn resolve(wanted: &Wanted<'_>) -> Result<Option<Membership>> {
    let text = named_room(wanted.text);
    match text.as_ref().map(|text| text.as_str()) {
        Some(NO_ROOM) => Ok(None),
        Some(text) => named(text.trim(), wanted).await.map(Some),
        None => only_room(wanted),
    }
}

/// Returns the address of the enrolment server to ask, if the name is one: `host:port`, or an address.
pub fn address_to_ask(text: &str) -> Option<(Host, u16)> {
    let text = text.trim();
    if text.contains(['/', '\\']) || Invitation::is_meant(text) || Path::new(text).is_file() {
        return None;
    }
    let address = text.parse::<std::net::IpAddr>().ok().map(|address| (Host::Ip(address), PORT));
    address.or_else(|| parse_host_port(text))
}

/// Returns the name of the room of a command: the option, else the variable.
pub fn named_room(option: Option<&str>) -> Option<Zeroizing<String>> {
    let variable = || std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    option.map(str::to_owned).or_else(variable).map(Zeroizing::new)
}

/// Whether this machine knows no room at all.
///
/// # Errors
///
/// If a directory cannot be read.
pub fn knows_no_room() -> Result<bool> {
    Ok(Room::names()?.is_empty() && stored_credentials()?.is_empty())
}

async fn named(text: &str, wanted: &Wanted<'_>) -> Result<Membership> {
    if Invitation::is_meant(text) {
        return joined(text, wanted).await;
    }
    if text.contains(['/', '\\']) || Path::new(text).is_file() {
        return from_file(Path::new(text), wanted).await;
    }
    let is_meant = |name: &str, id: Option<RoomId>| name == text || id.is_some_and(|id| text == with_id(name, id));
    let mut own_rooms = Room::names()?.into_iter().filter_map(|name| Some((Room::open(&name).ok()?.id(), name)));
    let own_named = own_rooms.find(|(id, name)| is_meant(name, Some(*id)));
    let stored = stored_credentials()?.into_iter();
    let mut found: Vec<StoredCredential> =
        stored.filter(|stored| is_meant(&stored.room, stored.credential.room())).collect();
    if let Some((id, name)) = own_named {
        // This machine may lend memory in its own room, with a credential of its own.
        let mut others = found.iter().filter_map(|stored| stored.credential.room()).filter(|other| *other != id);
        return match others.next() {
            None => own(&Room::open(&name)?, wanted.purpose),
            Some(other) => Err(Error::misuse(format!(
                "this machine knows two rooms named '{text}': {}, which it made, and {}, of which it is a member; name one \
                 of them so",
                with_id(&name, id),
                with_id(&name, other)
            ))),
        };
    }
    if Room::names()?.iter().any(|name| name == text) {
        // It is damaged; the error says how.
        return own(&Room::open(text)?, wanted.purpose);
    }
    if found.is_empty() {
        let known = known_names()?;
        let known = if known.is_empty() { "it knows none".into() } else { format!("it knows {}", list(&known)) };
        return Err(Error::misuse(format!("this machine knows no room '{text}' ({known})"))
            .next(next::Room::InviteOrInit { name: text.to_string() }));
    }
    let rooms: Vec<RoomId> = found.iter().filter_map(|stored| stored.credential.room()).collect();
    if rooms.iter().any(|room| *room != rooms[0]) {
        let mut names: Vec<_> = rooms.iter().map(|room| with_id(text, *room)).collect();
        names.dedup();
        return Err(Error::misuse(format!("several rooms have the name '{text}'; name one of them: {}", list(&names))));
    }
    pick(&mut found, wanted.purpose).ok_or_else(|| {
        let own = found.iter().filter_map(|stored| stored.credential.identity());
        let own: Vec<_> = own.map(|identity| identity.role.name()).collect();
        other_role(text, &list(&own), wanted.purpose)
    })
}

/// The name of a room with the beginning of its id, which distinguishes it from another of the same name.
pub fn with_id(name: &str, id: RoomId) -> String {
    format!("{name}-{}", &id.to_string()[..ID_CHARS])
}

/// Takes the credential that fits best.
fn pick(found: &mut Vec<StoredCredential>, purpose: Purpose) -> Option<Membership> {
    let role = |stored: &StoredCredential| stored.credential.identity().map(|identity| identity.role);
    let best =
        purpose.roles().iter().find_map(|wanted| found.iter().position(|stored| role(stored) == Some(*wanted)))?;
    let stored = found.swap_remove(best);
    Some(known(stored))
}

/// The membership by a stored credential.
pub fn known(stored: StoredCredential) -> Membership {
    Membership {
        credential: stored.credential,
        room: stored.room,
        pem: Some(stored.path.clone()),
        file: Some(stored.path),
        at: stored.at,
        new: None,
    }
}

fn other_role(room: &str, has: &str, purpose: Purpose) -> Error {
    let roles: Vec<_> = purpose.roles().iter().map(|role| role.name()).collect();
    Error::failed(format!("this machine is in room {room} as {has}, and this needs the role {}", roles.join(" or ")))
        .next(next::Room::InviteWithRole { role: purpose.usual().to_string() })
}

fn known_names() -> Result<Vec<String>> {
    let mut names = Room::names()?;
    names.extend(stored_credentials()?.into_iter().map(|stored| stored.room));
    names.sort();
    names.dedup();
    Ok(names)
}

async fn from_file(path: &Path, wanted: &Wanted<'_>) -> Result<Membership> {
    let shown = path.display();
    let doing = |error| Error::io(format_args!("reading {shown}"), &error);
    let bytes = Zeroizing::new(read_limited(path).map_err(doing)?);
    if let Ok(text) = std::str::from_utf8(&bytes)
        && Invitation::is_meant(text)
    {
        return joined(text, wanted).await;
    }
    let (membership, role) = of_credential(path, &bytes)?;
    if !wanted.purpose.fits(role) {
        return Err(other_role(&shown.to_string(), role.name(), wanted.purpose));
    }
    Ok(membership)
}

/// The membership by the credential in a file, of any role.
///
/// # Errors
///
/// If the file cannot be read or used.
pub fn of_file(path: &Path) -> Result<Membership> {
    if let Some(stored) = stored_credentials()?.into_iter().find(|stored| stored.path == path) {
        return Ok(known(stored));
    }
    let doing = |error| Error::io(format_args!("reading {}", path.display()), &error);
    let bytes = Zeroizing::new(read_limited(path).map_err(doing)?);
    Ok(of_credential(path, &bytes)?.0)
}

/// The membership by the credential in a file with these bytes, and its role.
fn of_credential(path: &Path, bytes: &[u8]) -> Result<(Membership, Role)> {
    let shown = path.display();
    let failed = |error: cheetah_tls::TlsError| {
        Error::misuse(format!("{shown} is neither an invitation nor a credential that can be used: {error}"))
    };
    let credential = Credential::from_file(path).map_err(failed)?;
    let identity = credential.identity().ok_or_else(|| Error::misuse(format!("{shown} names no member of a room")))?;
    let (room, role) = (identity.room.to_string(), identity.role);
    Ok((
        Membership { credential, room, file: None, pem: Some(path.to_owned()), at: addresses_in(bytes), new: None },
        role,
    ))
}

fn read_limited(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::with_capacity(TEXT_LEN_MAX);
    File::open(path)?.take(CREDENTIAL_LEN_MAX as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The membership that an invitation gives. A machine that has joined before counts no use.
async fn joined(text: &str, wanted: &Wanted<'_>) -> Result<Membership> {
    let invitation: Invitation = text.parse().map_err(|error| Error::misuse(format!("{error}")))?;
    let (room, role) = (invitation.room(), invitation.role);
    if !wanted.purpose.fits(role) {
        let needed = wanted.purpose.usual();
        return Err(Error::misuse(format!("the invitation is for the role {role}, and this needs {needed}"))
            .next(next::Room::InviteWithRole { role: needed.to_string() }));
    }
    if wanted.ephemeral {
        let joined = enrol(&invitation, &PrivateKey::generate()?, &wanted.machine).await?;
        return Ok(membership(joined, None));
    }
    let credentials = Credentials::open()?;
    let _lock = tokio::task::block_in_place(|| credentials.lock())?;
    if let Some(stored) = credentials.find(room, role)? {
        // A member that was revoked comes back with a new invitation, and a new key.
        let at: Vec<_> = invitation.hosts.iter().map(|host| (host.clone(), invitation.port)).collect();
        if is_member(&stored.credential, &at).await != Some(false) {
            return Ok(known(stored));
        }
        tracing::info!("room {} does not know this machine as {role} any more: it joins again", stored.room);
    }
    let key = credentials.key_for(room, role)?;
    let joined = enrol(&invitation, &key, &wanted.machine).await?;
    let stored = credentials.store(&joined)?;
    Ok(membership(joined, Some(stored.path)))
}

fn membership(joined: Joined, file: Option<PathBuf>) -> Membership {
    let new = Some(NewMembership { clock_offset_s: joined.clock_offset_s });
    Membership { credential: joined.credential, room: joined.room, pem: file.clone(), file, at: joined.at, new }
}

/// The membership of this machine in its own room. As a node or an agent it gets a credential of its own.
fn own(room: &Room, purpose: Purpose) -> Result<Membership> {
    let name = room.name().to_owned();
    let role = match purpose {
        Purpose::Client => {
            let credential = room.examiner()?;
            let pem = Some(room.examiner_path());
            return Ok(Membership { credential, room: name, file: None, pem, at: Vec::new(), new: None });
        }
        Purpose::Node => Role::Node,
        Purpose::Agent => Role::Agent,
    };
    let credentials = Credentials::open()?;
    let _lock = credentials.lock()?;
    if let Some(stored) = credentials.find(room.id(), role)? {
        room.update(&stored.credential)?;
        return Ok(known(stored));
    }
    let key = PrivateKey::generate()?;
    let (member, _) = room.admit(&key, &host_name(), role, Admission::Founder)?;
    let pem = room.credential_pem(&key, &member)?;
    let credential = Credential::from_pem(pem.as_bytes()).map_err(|error| Error::failed(error.to_string()))?;
    let joined = Joined { credential, pem, room: name, at: Vec::new(), clock_offset_s: 0 };
    let stored = credentials.store(&joined)?;
    Ok(membership(joined, Some(stored.path)))
}

/// The only room for which this machine has, or can make, a fitting credential.
fn only_room(wanted: &Wanted<'_>) -> Result<Option<Membership>> {
    let rooms = Room::names()?;
    let mut stored: Vec<StoredCredential> = stored_credentials()?;
    stored.retain(|stored| stored.credential.identity().is_some_and(|identity| wanted.purpose.fits(identity.role)));
    match &*rooms {
        [] => {}
        [name] => {
            let room = Room::open(name)?;
            let others = stored.iter().any(|stored| stored.credential.room() != Some(room.id()));
            return if others { Ok(None) } else { own(&room, wanted.purpose).map(Some) };
        }
        _ => return Ok(None),
    }
    let first = stored.first().and_then(|stored| stored.credential.room());
    if stored.iter().any(|stored| stored.credential.room() != first) {
        return Ok(None);
    }
    Ok(pick(&mut stored, wanted.purpose))
}

/// Every credential with which this machine can use drives: of its own rooms, and of those that it has joined. One that
/// cannot be used is reported and left out.
///
/// # Errors
///
/// If the directories cannot be read.
pub fn every_client() -> Result<Vec<Credential>> {
    let mut credentials = Vec::new();
    for name in Room::names()? {
        match Room::open(&name).and_then(|room| room.examiner()) {
            Ok(credential) => credentials.push(credential),
            Err(error) => tracing::warn!("room {name} is not used: {error}"),
        }
    }
    let fits =
        |stored: &StoredCredential| stored.credential.identity().is_some_and(|own| Purpose::Client.fits(own.role));
    credentials.extend(stored_credentials()?.into_iter().filter(fits).map(|stored| stored.credential));
    Ok(credentials)
}

/// The room of this machine with this id, if it has its key.
///
/// # Errors
///
/// If the directory of rooms cannot be read.
pub fn own_room(id: RoomId) -> Result<Option<Room>> {
    for name in Room::names()? {
        if let Ok(room) = Room::open(&name)
            && room.id() == id
        {
            return Ok(Some(room));
        }
    }
    Ok(None)
}

/// A new file that its owner alone can read. It is removed if it is dropped before it is written.
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
    file: File,
    is_written: bool,
}

impl SecretFile {
    /// Creates it, before the secret is made: a secret that cannot be written must not exist.
    ///
    /// # Errors
    ///
    /// If there is a file of that name, or it cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let file = of_its_owner_alone(File::options().write(true).create_new(true)).open(path);
        let file = file.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Error::misuse(format!("{} exists, and is not overwritten; choose another name", path.display()))
            }
            _ => Error::io(format_args!("creating {}", path.display()), &error),
        })?;
        Ok(Self { path: path.to_owned(), file, is_written: false })
    }

    /// Writes the secret to stable storage.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(mut self, content: &[u8]) -> Result<()> {
        let written = self.file.write_all(content).and_then(|()| self.file.sync_all());
        written.map_err(|error| Error::io(format_args!("writing {}", self.path.display()), &error))?;
        self.is_written = true;
        Ok(())
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        if !self.is_written {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A directory that others cannot read, for exported files.
///
/// # Errors
///
/// As [`OwnDirectory::open_or_create`].
pub fn secret_directory(path: &Path) -> Result<OwnDirectory> {
    OwnDirectory::open_or_create(path)
}
