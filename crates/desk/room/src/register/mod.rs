//! The register of a room: its invitations and its members. No I/O.
//!
//! One file holds both, so that the use of an invitation and the member that it made are recorded by one write: a crash
//! leaves neither or both. A machine that asks again with the same key, because the answer was lost, gets its
//! certificate again, and no further use is counted.

mod errors;
mod text_forms;

use cheetah_tls::NAME_LEN_MAX;
use cheetah_tls::{Fingerprint, Role};
use serde::{Deserialize, Serialize};

pub use self::errors::{BadRegister, Denied};
use self::text_forms::{hex32, hosts, text};
use crate::invitation::{Host, TokenHash};

/// The most members of a room, revoked ones included.
pub const MEMBERS_MAX: usize = 10_000;
/// The most invitations that a room keeps. Those that are no longer open are dropped, oldest first.
pub const INVITATIONS_MAX: usize = 256;
/// The most uses of an invitation.
pub const USES_MAX: u32 = 5_000;
/// The longest that an invitation may be open, in seconds: 400 days.
pub const OPEN_S_MAX: u64 = 400 * 24 * 3600;
/// The most addresses of a member.
pub const MEMBER_HOSTS_MAX: usize = 16;
/// The most servers of a member that the room knows. Of more, the earliest are forgotten.
pub const SERVERS_MAX: usize = 16;
/// The most bytes of a register as text.
pub const TEXT_LEN_MAX: usize = 16 << 20;

const VERSION: u32 = 1;
const HEADER: &str = "# The register of a Cheetah room. It is changed by inviting and revoking, not by hand.\n";

/// Seconds since 1970, by the clock of the machine that has the room.
pub type Seconds = u64;

/// A room's invitations and members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    version: u32,
    /// Rises with each revocation; the number of the list of revoked certificates.
    #[serde(default)]
    revision: u64,
    #[serde(default, rename = "invitation")]
    invitations: Vec<OpenInvitation>,
    #[serde(default, rename = "member")]
    members: Vec<Member>,
}

/// An invitation, as the room keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenInvitation {
    /// 8 hexadecimal digits: the first of the hash.
    pub id: String,
    /// The hash of the token.
    #[serde(with = "hex32")]
    token_sha256: [u8; 32],
    /// The role that it gives.
    #[serde(with = "text")]
    pub role: Role,
    /// When it was made.
    pub made: Seconds,
    /// When it ends.
    pub expires: Seconds,
    /// How often it may be used.
    pub uses_max: u32,
    /// How often it was used.
    #[serde(default)]
    pub uses: u32,
    /// Whether it was closed before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

/// How a member came to its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// It has the room's own machine.
    Founder,
    /// With an invitation of this id.
    Invitation(String),
    /// Its code was approved.
    Approved,
    /// Its credential was made in advance.
    InAdvance,
    /// Its credential was exported for other programs.
    Exported,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name, unique in the room.
    pub name: String,
    /// Its role.
    #[serde(with = "text")]
    pub role: Role,
    /// The serial number of its certificate: 32 hexadecimal digits.
    pub serial: String,
    /// The fingerprint of its key.
    #[serde(with = "text")]
    pub key: Fingerprint,
    /// When it was admitted.
    pub admitted: Seconds,
    /// How.
    pub by: Admission,
    /// Where it can be reached: the address that it called from, and those that it named and no other member has.
    #[serde(default, with = "hosts")]
    pub hosts: Vec<Host>,
    /// Its servers, as they reported them: one machine may run several, with one credential.
    #[serde(default, rename = "server", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Seconds>,
}

/// A server of a member. It is only the member's claim: a client that dials it verifies the member's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The server's own name, such as a node's; the machine may run several.
    pub name: String,
    /// Its addresses, most promising first; 1 to [`MEMBER_HOSTS_MAX`].
    #[serde(with = "hosts")]
    pub hosts: Vec<Host>,
    /// The port of its NBD server.
    pub nbd_port: u16,
    /// The port of its control API, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_port: Option<u16>,
}

impl Server {
    fn is_sound(&self) -> bool {
        let hosts = (1..=MEMBER_HOSTS_MAX).contains(&self.hosts.len());
        hosts && self.nbd_port != 0 && self.control_port != Some(0) && clean_name(&self.name) == self.name
    }

    /// Whether both cannot run at the same time.
    fn excludes(&self, other: &Self) -> bool {
        self.nbd_port == other.nbd_port && self.hosts.iter().any(|host| other.hosts.contains(host))
    }
}

/// A machine that asks to be a member. All but the key is only its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicant {
    /// The name that it requests.
    pub name: String,
    /// The fingerprint of its key.
    pub key: Fingerprint,
    /// The address that it called from.
    pub called_from: Option<Host>,
    /// Its other addresses.
    pub hosts: Vec<Host>,
}

impl Register {
    /// A register without members.
    pub fn new() -> Self {
        Self { version: VERSION, ..Self::default() }
    }

    /// Parses the text of a register.
    ///
    /// # Errors
    ///
    /// If it is malformed, exceeds the limits, or contradicts itself.
    pub fn decode(text: &str) -> Result<Self, BadRegister> {
        let malformed = |why: &str| BadRegister::Malformed(why.replace('\n', " ").chars().take(200).collect());
        if text.len() > TEXT_LEN_MAX {
            return Err(malformed("it is too long"));
        }
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| malformed(error.message()))?;
        match table.get("version").and_then(toml::Value::as_integer) {
            Some(version) if version > i64::from(VERSION) => {
                return Err(BadRegister::Newer(u32::try_from(version).unwrap_or(u32::MAX)));
            }
            Some(1) => {}
            _ => return Err(malformed("its version is missing")),
        }
        let register: Self =
            toml::Value::Table(table).try_into().map_err(|error: toml::de::Error| malformed(error.message()))?;
        register.check().map_err(malformed)?;
        Ok(register)
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.members.len() > MEMBERS_MAX || self.invitations.len() > INVITATIONS_MAX {
            return Err("it has too many entries");
        }
        let mut names = std::collections::HashSet::new();
        let mut serials = std::collections::HashSet::new();
        for member in &self.members {
            if clean_name(&member.name) != member.name || !names.insert(member.name.to_ascii_lowercase()) {
                return Err("the name of a member is malformed or not unique");
            }
            if !is_serial(&member.serial) || !serials.insert(&member.serial) {
                return Err("the serial number of a member is malformed or not unique");
            }
            if member.servers.len() > SERVERS_MAX || !member.servers.iter().all(Server::is_sound) {
                return Err("a server of a member is malformed");
            }
            if member.hosts.len() > MEMBER_HOSTS_MAX || member.role == Role::Room {
                return Err("a member has too many addresses, or no member's role");
            }
        }
        let odd = |invitation: &OpenInvitation| {
            invitation.uses > invitation.uses_max || invitation.role == Role::Room || invitation.id.len() != 8
        };
        if self.invitations.iter().any(odd) {
            return Err("an invitation contradicts itself");
        }
        Ok(())
    }

    /// The register as text.
    ///
    /// # Errors
    ///
    /// If it cannot be encoded.
    pub fn encode(&self) -> Result<String, BadRegister> {
        let body = toml::to_string(self).map_err(|error| BadRegister::Malformed(error.to_string()))?;
        Ok(format!("{HEADER}{body}"))
    }

    /// The members, in the order of their admission.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The invitations that are kept, oldest first.
    pub fn invitations(&self) -> &[OpenInvitation] {
        &self.invitations
    }

    /// The number of the list of revoked certificates.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revoked members.
    pub fn revoked(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.revoked.is_some())
    }

    /// The member of this name, in any case of letters.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name.eq_ignore_ascii_case(name))
    }

    /// Registers an invitation, for `open_s` seconds from `now` and `uses_max` uses, each limited.
    pub fn invite(
        &mut self,
        token: TokenHash,
        role: Role,
        now: Seconds,
        open_s: u64,
        uses_max: u32,
    ) -> &OpenInvitation {
        while self.invitations.len() >= INVITATIONS_MAX {
            let ended = self.invitations.iter().position(|invitation| !invitation.is_open(now));
            self.invitations.remove(ended.unwrap_or(0));
        }
        self.invitations.push(OpenInvitation {
            id: token.0[..4].iter().map(|byte| format!("{byte:02x}")).collect(),
            token_sha256: token.0,
            role,
            made: now,
            expires: now.saturating_add(open_s.min(OPEN_S_MAX)),
            uses_max: uses_max.clamp(1, USES_MAX),
            uses: 0,
            closed: false,
        });
        let last = self.invitations.len() - 1;
        &self.invitations[last]
    }

    /// Closes the invitation of this id; returns whether it was open.
    pub fn close(&mut self, id: &str, now: Seconds) -> bool {
        let open = self.invitations.iter_mut().find(|invitation| invitation.id == id && invitation.is_open(now));
        open.map(|invitation| invitation.closed = true).is_some()
    }

    /// Whether any invitation can still be used.
    pub fn is_open(&self, now: Seconds) -> bool {
        self.invitations.iter().any(|invitation| invitation.is_open(now))
    }

    /// Admits a machine that has the token of an invitation, and counts the use.
    ///
    /// The role is the invitation's. Asking again with the same key and token returns the same member.
    ///
    /// # Errors
    ///
    /// If the machine is not admitted.
    pub fn admit_invited(
        &mut self,
        token: TokenHash,
        applicant: &Applicant,
        serial: u128,
        now: Seconds,
    ) -> Result<&Member, Denied> {
        // Each comparison takes the same time, however many bytes agree.
        let mut found =
            self.invitations.iter().enumerate().filter(|(_, invitation)| TokenHash(invitation.token_sha256) == token);
        let (index, invitation) = found.next_back().ok_or(Denied::Unknown)?;
        let (by, role) = (Admission::Invitation(invitation.id.clone()), invitation.role);
        if let Some(at) = self.members.iter().position(|member| member.key == applicant.key) {
            let member = &self.members[at];
            return match member.revoked {
                Some(_) => Err(Denied::RevokedKey),
                None if member.by == by && member.role == role => Ok(&self.members[at]),
                None => Err(Denied::KeyTaken),
            };
        }
        invitation.check(now)?;
        if self.members.len() >= MEMBERS_MAX {
            return Err(Denied::Full);
        }
        self.invitations[index].uses += 1;
        self.admit(applicant, role, by, serial, now)
    }

    /// Admits a machine without an invitation.
    ///
    /// # Errors
    ///
    /// If it has a member's key, or the room is full.
    pub fn admit(
        &mut self,
        applicant: &Applicant,
        role: Role,
        by: Admission,
        serial: u128,
        now: Seconds,
    ) -> Result<&Member, Denied> {
        if let Some(member) = self.members.iter().find(|member| member.key == applicant.key) {
            return Err(if member.revoked.is_some() { Denied::RevokedKey } else { Denied::KeyTaken });
        }
        if self.members.len() >= MEMBERS_MAX {
            return Err(Denied::Full);
        }
        let hosts = self.hosts_of(applicant);
        self.members.push(Member {
            name: self.free_name(&applicant.name),
            role,
            serial: format!("{:032x}", as_serial(serial)),
            key: applicant.key,
            admitted: now,
            by,
            hosts,
            servers: Vec::new(),
            revoked: None,
        });
        let last = self.members.len() - 1;
        Ok(&self.members[last])
    }

    /// Records a server of the member with this key, in place of one that had its address; or that it has ended.
    ///
    /// # Errors
    ///
    /// If there is no such member, or it is revoked.
    pub fn check_in(&mut self, key: &Fingerprint, server: Option<Server>, ended: bool) -> Result<(), Denied> {
        let member = self.members.iter_mut().find(|member| member.key == *key).ok_or(Denied::NoMember)?;
        if member.revoked.is_some() {
            return Err(Denied::RevokedKey);
        }
        let Some(server) = server.filter(Server::is_sound) else { return Ok(()) };
        if ended {
            member.servers.retain(|known| *known != server);
        } else if !member.servers.contains(&server) {
            member.servers.retain(|known| !known.excludes(&server));
            if member.servers.len() >= SERVERS_MAX {
                member.servers.remove(0);
            }
            member.servers.push(server);
        }
        Ok(())
    }

    /// The addresses that go into a machine's certificate. Tools of others find a server by them, so no member gets the
    /// address of another: only the one that it called from, and claims that nobody else has.
    fn hosts_of(&self, applicant: &Applicant) -> Vec<Host> {
        let others = |host: &Host| {
            let active = self.members.iter().filter(|member| member.revoked.is_none());
            active.into_iter().any(|member| member.hosts.contains(host))
        };
        let mut hosts: Vec<Host> = applicant.called_from.iter().cloned().collect();
        for host in &applicant.hosts {
            let is_address = matches!(host, Host::Ip(address) if is_assignable(*address));
            if is_address && !hosts.contains(host) && !others(host) && hosts.len() < MEMBER_HOSTS_MAX {
                hosts.push(host.clone());
            }
        }
        hosts
    }

    /// The name that a machine gets: the one that it would like, or with a number after it if another member has it. A
    /// revoked member's name is not given away: logs would confuse the two.
    fn free_name(&self, wanted: &str) -> String {
        let wanted = clean_name(wanted);
        if self.member(&wanted).is_none() {
            return wanted;
        }
        // One of these is free: there are fewer members.
        let numbered = (2..=MEMBERS_MAX + 2).map(|number| {
            let suffix = format!("-{number}");
            let kept = wanted.len().min(NAME_LEN_MAX - suffix.len());
            format!("{}{suffix}", &wanted[..kept])
        });
        numbered.into_iter().find(|name| self.member(name).is_none()).unwrap_or(wanted)
    }

    /// Revokes members, and closes the invitations that admitted them: each such machine may know the string, and could
    /// join again with another key. Returns the ids of the invitations closed now.
    pub fn revoke(&mut self, names: &[&str], now: Seconds) -> Vec<String> {
        let mut closed = Vec::new();
        let mut revoked = false;
        for member in &mut self.members {
            if member.revoked.is_some() || !names.iter().any(|name| member.name.eq_ignore_ascii_case(name)) {
                continue;
            }
            member.revoked = Some(now);
            revoked = true;
            let Admission::Invitation(id) = &member.by else { continue };
            for invitation in self.invitations.iter_mut().filter(|invitation| invitation.id == *id) {
                if invitation.is_open(now) {
                    closed.push(invitation.id.clone());
                }
                invitation.closed = true;
            }
        }
        if revoked {
            self.revision += 1;
        }
        closed
    }
}

impl OpenInvitation {
    /// Whether it can still be used.
    pub fn is_open(&self, now: Seconds) -> bool {
        self.check(now).is_ok()
    }

    fn check(&self, now: Seconds) -> Result<(), Denied> {
        if self.closed {
            Err(Denied::Closed)
        } else if now >= self.expires {
            Err(Denied::Expired)
        } else if self.uses >= self.uses_max {
            Err(Denied::UsedUp)
        } else {
            Ok(())
        }
    }
}

/// A name that a member may have: letters, digits, `.`, `-` and `_`; other characters become `-`. At most 64 bytes.
pub fn clean_name(wanted: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let name: String = wanted.chars().take(NAME_LEN_MAX).map(|c| if legal(c) { c } else { '-' }).collect();
    let name = name.trim_matches(['-', '.', '_']);
    if name.is_empty() { "member".to_owned() } else { name.to_owned() }
}

/// Whether a certificate may name the address. Loopback ones are added by the issuer; the others name no machine.
pub(crate) fn is_assignable(address: std::net::IpAddr) -> bool {
    let link_local = matches!(address, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local());
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || link_local)
}

/// A positive serial number of 16 bytes, none of them a leading zero.
fn as_serial(random: u128) -> u128 {
    random >> 1 | 1 << 126
}

fn is_serial(text: &str) -> bool {
    let number = u128::from_str_radix(text, 16);
    text.len() == 32 && number.is_ok_and(|number| number == as_serial(number << 1) && format!("{number:032x}") == text)
}

#[cfg(test)]
mod tests;
