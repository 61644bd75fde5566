//! Encrypted volumes, opened with keys and read like any other volume.
//!
//! [`Unlocking`] tries each key on each of the volumes that it is given, and returns a layer in which the opened ones read
//! decrypted, each sector where it lies encrypted. So the layers below it (a cache, prefetching) hold ciphertext only.
//!
//! A key counts only if the volume's own check confirms it. What cannot be read right, such as a conversion in progress, is refused
//! by name. All numbers of a header have limits, and so has what it can make this machine spend on a key ([`mod@derive`]).
//!
//! | module | content |
//! |---|---|
//! | [`key`] | key files, the forms of keys, and headers that are kept apart from their volumes |
//! | `luks`, `bitlocker`, `veracrypt` | the headers of a format, and how a key opens it. Parsing does no I/O |
//! | `core_storage`, `apfs` | how a key opens volumes of Apple's systems, which [`cheetah_volume::apple`] describes |
//! | `key_wrap` | keys that another key wraps |
//! | `derive` | keys of passphrases, within limits |
//! | `cipher` | ciphers in the modes of volumes, in the caller's buffer |
//! | `beside` | reads that go on while a key is tried |
//! | `opened` | an opened volume: its parts, and reading them |
//! | `layer` | the device in which they are shown |
//! | [`Place`] | where a volume lies, and its name |
//! | [`outcome`](Outcome) | which protector opened which volume, for logs and reports |

#![forbid(unsafe_code)]

mod apfs;
mod beside;
mod bitlocker;
mod cipher;
mod core_storage;
mod derive;
mod key;
mod key_wrap;
mod layer;
mod luks;
pub mod offline;
mod opened;
mod outcome;
mod piece;
mod place;
mod refusal;
mod unlock;
mod veracrypt;

pub use key::{KEYS_MAX, Keys};
pub use layer::OpenedVolumes;
pub use outcome::{LockedVolume, OpenedVolume, Outcome};
pub use place::Place;
pub use refusal::{Refusal, Untried};
pub use unlock::{Candidate, StillLocked, Unlocked, Unlocking};
