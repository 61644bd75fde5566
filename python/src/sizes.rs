//! Sizes as users write them.

use cheetah_device::Size;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Returns the bytes of a size as the command line takes it: `64KiB`, `1.5G`, `12GB`. Raises `ValueError`, whose text is a
/// sentence, for anything else.
#[pyfunction]
pub fn parse_size(text: &str) -> PyResult<u64> {
    text.parse::<Size>().map(|size| size.0).map_err(|error| PyValueError::new_err(error.to_string()))
}
