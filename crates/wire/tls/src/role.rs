//! The roles of a room's members.

use std::fmt;
use std::str::FromStr;

/// The rights of a member of a room. The role is part of the member's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Lends memory.
    Node,
    /// A node that may be lent the keys of sealed drives, for a job.
    TrustedNode,
    /// Serves the disk of a suspect's machine.
    Agent,
    /// Reads drives.
    Analyst,
    /// Reads and writes drives, and controls nodes.
    Examiner,
    /// Enrols members.
    Room,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Node, Self::TrustedNode, Self::Agent, Self::Analyst, Self::Examiner, Self::Room];

    /// Whether it lends memory.
    pub const fn is_node(self) -> bool {
        Roles::NODES.contains(self)
    }

    /// The name in certificates, options and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::TrustedNode => "trusted-node",
            Self::Agent => "agent",
            Self::Analyst => "analyst",
            Self::Examiner => "examiner",
            Self::Room => "room",
        }
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
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| UnknownRole(text.chars().take(32).collect()))
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
