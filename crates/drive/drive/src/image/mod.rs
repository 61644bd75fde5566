//! A drive's image: loading it, saving it, and verifying it.

pub mod load;
pub mod partial;
pub mod save;
pub mod verify;
