//! The options for opening a source.

use std::time::Duration;

use cheetah_source::{Access, CacheOption};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The options for opening a source, always read-only.
#[pyclass(frozen, module = "cheetah._native")]
pub struct OpenOptions(Access);

#[pymethods]
impl OpenOptions {
    /// `cache` is as on the command line: `memory[:SIZE]` or `DIRECTORY[:SIZE]`. `prefetch` is in bytes.
    #[new]
    #[pyo3(signature = (*, cache, prefetch, foresight, allow_lost, timeout_s))]
    fn new(cache: Option<&str>, prefetch: u64, foresight: bool, allow_lost: bool, timeout_s: f64) -> PyResult<Self> {
        let timeout = Duration::try_from_secs_f64(timeout_s).ok().filter(|timeout| !timeout.is_zero());
        let timeout = timeout.ok_or_else(|| {
            PyValueError::new_err(format!("timeout_s must be a positive number of seconds, not {timeout_s}"))
        })?;
        let cache = cache.map(str::parse::<CacheOption>).transpose();
        let cache = cache.map_err(|error| PyValueError::new_err(format!("cache: {error}")))?;
        let plain = Access::read_once(timeout);
        Ok(Self(Access { cache, foresight, prefetch_bytes: prefetch, allow_lost, in_order: false, ..plain }))
    }
}

impl OpenOptions {
    /// Returns the options for [`cheetah_source::OpenedSource::open`].
    pub fn access(&self) -> &Access {
        &self.0
    }
}
