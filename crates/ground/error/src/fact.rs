//! Why a node, or what it held, cannot be used.

use cheetah_device::error::{EACCES, ECONNREFUSED, EKEYREJECTED, EKEYREVOKED, ENOENT, ENOKEY, ESTALE, ETIMEDOUT};

cheetah_kit::named! {
    /// Why a node, or its part of a drive, cannot be used. These are different facts, and none is told as another: only the
    /// last two say that content is gone.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Fact {
        /// It answers, and does not let this member of the room do this. Others may.
        Refused = "refused",
        /// Its machine cannot be reached.
        Unreachable = "unreachable",
        /// Its machine accepts the connection, and the node does not answer in time.
        Silent = "silent",
        /// Another, empty, instance answers in its place.
        Restarted = "restarted",
        /// What it held is gone: its process has ended, or it has freed the part.
        Lost = "lost",
    }
}

impl Fact {
    /// The fact for which a connection failed with this error of the operating system.
    pub const fn of_errno(errno: i32) -> Self {
        match errno {
            EACCES | ENOKEY | EKEYREVOKED | EKEYREJECTED => Self::Refused,
            ETIMEDOUT => Self::Silent,
            ESTALE => Self::Restarted,
            // Its machine answers, and no process listens there any more; or the process no longer has the export.
            ECONNREFUSED | ENOENT => Self::Lost,
            _ => Self::Unreachable,
        }
    }

    /// Whether content is certainly gone.
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::Restarted | Self::Lost)
    }

    /// Whether it says nothing about the evidence: the operation failed (exit code 1), and that is all (otherwise 3).
    pub const fn is_about_access(self) -> bool {
        matches!(self, Self::Refused | Self::Unreachable)
    }

    /// What `count` of `of` nodes do or are, as a clause.
    pub fn clause(self, count: usize, of: usize) -> String {
        let one = count == 1;
        let what = match self {
            Self::Refused if one => "refuses this member",
            Self::Refused => "refuse this member",
            Self::Unreachable => "cannot be reached",
            Self::Silent if one => "does not answer",
            Self::Silent => "do not answer",
            Self::Restarted if one => "was restarted, and is empty",
            Self::Restarted => "were restarted, and are empty",
            Self::Lost => "lost",
        };
        format!("{count} of {of} nodes {what}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_and_an_unreachable_machine_say_nothing_about_the_evidence() {
        let about_access: Vec<_> = Fact::ALL.into_iter().filter(|fact| fact.is_about_access()).collect();
        assert_eq!(about_access, [Fact::Refused, Fact::Unreachable]);
        let losses: Vec<_> = Fact::ALL.into_iter().filter(|fact| fact.is_loss()).collect();
        assert_eq!(losses, [Fact::Restarted, Fact::Lost]);
        for fact in [Fact::Refused, Fact::Unreachable, Fact::Silent] {
            assert!(!fact.clause(3, 3).contains("lost"), "{}", fact.clause(3, 3));
        }
    }
}
