//! Encrypted volumes of Apple's systems, as far as they can be read without a key: what they are, what opens them, and where their
//! content lies.
//!
//! | module | content |
//! |---|---|
//! | [`core_storage`] | FileVault 2 of OS X 10.7 to macOS 10.15, in Core Storage |
//! | [`apfs`] | encrypted volumes in a container of APFS |
//! | `plist` | property lists |
//! | `xts` | the cipher of metadata whose key lies beside them |
//! | `part` | reading within the bounds of a volume |

pub mod apfs;
pub mod core_storage;
mod flaw;
mod part;
mod plist;
mod uuid;
mod xts;

pub use self::flaw::Flaw;
pub use self::uuid::Uuid;

type Result<T> = std::result::Result<T, Flaw>;
