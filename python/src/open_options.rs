//! The options for opening a source.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cheetah_source::{Access, CacheOption, Keys};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure;

/// The options for opening a source, always read-only.
#[pyclass(frozen, module = "cheetah._native")]
pub struct OpenOptions(Access);

#[pymethods]
impl OpenOptions {
    /// `cache` is as on the command line: `memory[:SIZE]` or `DIRECTORY[:SIZE]`. `prefetch` is in bytes. The key files in
    /// `unlock` are read at once, if there are any.
    #[new]
    #[pyo3(signature = (*, cache, prefetch, foresight, allow_lost, timeout_s, unlock))]
    fn new(
        py: Python<'_>,
        cache: Option<&str>,
        prefetch: u64,
        foresight: bool,
        allow_lost: bool,
        timeout_s: f64,
        unlock: Vec<PathBuf>,
    ) -> PyResult<Self> {
        let timeout = Duration::try_from_secs_f64(timeout_s).ok().filter(|timeout| !timeout.is_zero());
        let timeout = timeout.ok_or_else(|| {
            PyValueError::new_err(format!("timeout_s must be a positive number of seconds, not {timeout_s}"))
        })?;
        let cache = cache.map(str::parse::<CacheOption>).transpose();
        let cache = cache.map_err(|error| PyValueError::new_err(format!("cache: {error}")))?;
        let keys = (!unlock.is_empty()).then(|| py.detach(|| Keys::read(&unlock))).transpose();
        let unlock = keys.map_err(|error| failure::of(&error))?.map(Arc::new);
        let plain = Access::read_once(timeout);
        Ok(Self(Access { cache, foresight, prefetch_bytes: prefetch, allow_lost, in_order: false, unlock, ..plain }))
    }
}

impl OpenOptions {
    /// Returns the options for [`cheetah_source::OpenedSource::open`].
    pub fn access(&self) -> &Access {
        &self.0
    }
}
