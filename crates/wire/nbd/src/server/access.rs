//! What a client may do, by its role.

use std::sync::Arc;

use cheetah_tls::{Role, Standing};

/// Prefixes of the contexts by which a client becomes the writer.
const WRITER_CONTEXTS: [&str; 2] = ["x-cheetah:lease/", "x-cheetah:connection/"];

/// A client, and its identity if it has one.
#[derive(Debug, Clone)]
pub(super) struct Peer(Option<Arc<Standing>>);

impl Peer {
    /// A client over an unencrypted connection.
    pub(super) const UNKNOWN: Self = Self(None);

    /// A member of the room.
    pub(super) fn member(standing: Standing) -> Self {
        Self(Some(Arc::new(standing)))
    }

    /// Whether its certificate was revoked since it connected.
    pub(super) fn is_revoked(&self) -> bool {
        self.0.as_ref().is_some_and(|standing| standing.is_revoked())
    }

    /// Why it may not read exports, if that is so. A client over an unencrypted connection may read them: the command
    /// decides whether to accept such clients.
    pub(super) fn refusal(&self) -> Option<String> {
        let identity = self.0.as_ref()?.identity();
        match identity.role {
            Role::Examiner | Role::Analyst => None,
            Role::Node | Role::TrustedNode | Role::Agent | Role::Room => {
                Some(format!("{identity} may not read exports: its role forbids it"))
            }
        }
    }

    /// Whether it may write.
    pub(super) fn may_write(&self) -> bool {
        self.0.as_ref().is_none_or(|standing| standing.identity().role == Role::Examiner)
    }

    /// The contexts that it may be granted.
    pub(super) fn allowed(&self, contexts: &[String]) -> Vec<String> {
        let is_allowed =
            |context: &&String| self.may_write() || !WRITER_CONTEXTS.iter().any(|prefix| context.starts_with(prefix));
        contexts.iter().filter(is_allowed).cloned().collect()
    }

    /// Its name and role, for the log.
    pub(super) fn name(&self) -> String {
        self.0.as_ref().map_or_else(|| "a client in clear".into(), |standing| standing.identity().to_string())
    }
}
