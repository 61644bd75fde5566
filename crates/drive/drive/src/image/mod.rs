//! A drive's image: loading it, saving it, and verifying it.

pub mod load;
pub mod partial;
mod progress;
pub mod save;
pub mod verify;

pub use self::progress::{LoadProgress, Teller};
