//! The roles of a room's members.

use std::fmt;
use std::str::FromStr;

cheetah_kit::named! {
    /// The rights of a member of a room. The role is part of the member's certificate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Role {
        /// Lends memory.
        Node = "node",
        /// A node that may be lent the keys of sealed drives, for a job.
        TrustedNode = "trusted-node",
        /// Serves the disk of a suspect's machine.
        Agent = "agent",
        /// Reads drives.
        Analyst = "analyst",
        /// Reads and writes drives, and controls nodes.
        Examiner = "examiner",
        /// Enrols members.
        Room = "room",
    }
}

impl Role {
    /// Whether it lends memory.
    pub const fn is_node(self) -> bool {
        Roles::NODES.contains(self)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a text that is not a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a role; the roles are node, trusted-node, agent, analyst and examiner")]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        Self::of_name(text).ok_or_else(|| UnknownRole(text.chars().take(32).collect()))
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Roles(u8);

impl Roles {
    /// The roles that read drives.
    pub const READERS: Self = Self::of(&[Role::Examiner, Role::Analyst]);

    /// The roles that lend memory.
    pub const NODES: Self = Self::of(&[Role::Node, Role::TrustedNode]);

    /// The set of these roles.
    pub const fn of(roles: &[Role]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < roles.len() {
            bits |= 1 << roles[index] as u8;
            index += 1;
        }
        Self(bits)
    }

    /// Whether the set contains `role`.
    pub const fn contains(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Role::ALL.into_iter().filter(|role| self.contains(*role)).map(Role::name);
        f.write_str(names.next().unwrap_or("member"))?;
        names.try_for_each(|name| write!(f, " or {name}"))
    }
}
