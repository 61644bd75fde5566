//! Ids of drives, writers and requests.

use cheetah_error::{Error, Result};
use cheetah_image::hash::hex;

/// 32 random hexadecimal digits.
///
/// # Errors
///
/// If the kernel gives no random numbers.
pub fn random_id() -> Result<String> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Error::failed(format!("no random numbers for an id: {error}")))?;
    Ok(hex(&id))
}
