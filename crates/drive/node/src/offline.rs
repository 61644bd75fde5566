//! Compiling the order of a search as a client sends it, for tests and fuzzing.

use cheetah_control::jobs::SearchOrder;
use cheetah_error::{Error, Result};
use cheetah_search::{Limits, Search};

use crate::jobs::patterns;

/// The version that an order must have.
pub const VERSION: &str = patterns::VERSION;

/// Checks an order, and compiles it within limits.
///
/// # Errors
///
/// `Kind::Misuse` if it is beyond the limits, or makes no sense.
pub fn search_of(order: &SearchOrder, limits: Limits) -> Result<Search> {
    patterns::check(order).map_err(Error::misuse)?;
    patterns::compiled(order, limits)
}
