//! The check that every opened source passes.

use cheetah_error::{Error, Result};
use cheetah_image::{Evidence, Identity};

/// Fails if a source has no content: nothing could be told from an image of it.
pub(crate) fn not_empty(evidence: Evidence) -> Result<Evidence> {
    let Identity { location, size, .. } = &evidence.source.identity;
    if *size == 0 {
        return Err(Error::failed(format!(
            "{location} is empty: it has 0 bytes; check that the right disk, file or export is served, and that it is ready"
        )));
    }
    Ok(evidence)
}
