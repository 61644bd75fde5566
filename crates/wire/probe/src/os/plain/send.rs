//! No backends.

use crate::route::Route;
use crate::send::{Options, SendError, Sender};

/// Fails: no backend exists.
///
/// # Errors
///
/// Always.
pub fn open(_route: &Route, _options: Options) -> Result<Box<dyn Sender>, SendError> {
    Err(SendError::NotOffered)
}
