//! The environment variables that name the keys of this process.

/// The environment variable that names files of identities, separated by colons.
pub const IDENTITY_VARIABLE: &str = "CHEETAH_IDENTITY";
/// The environment variable that names files with a passphrase, separated by colons.
pub const PASSPHRASE_VARIABLE: &str = "CHEETAH_PASSPHRASE_FILE";
