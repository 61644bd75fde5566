//! What can be done about the key of a sealed drive.

use serde::{Deserialize, Serialize};

/// What can be done about the key of a sealed drive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Seal {
    /// A sealed drive needs a key that opens it.
    NameRecipient,
    /// The drive is sealed, and no key was given.
    GiveKey {
        /// The variable that names a file of identities.
        identity_variable: String,
        /// The variable that names a file with a passphrase.
        passphrase_variable: String,
    },
    /// The drive is sealed for others.
    AskToShare,
    /// Nobody could open the drive any more.
    ShareOrDestroy,
    /// The text is no recipient.
    PrintRecipient,
    /// The file holds no identity.
    MakeIdentity,
    /// What a writer left unflushed is unverified.
    AcceptUnverified,
    /// A unit is newer than the last flush.
    TakeUnverified,
}
