//! How Python wants a source opened.

use std::time::Duration;

use cheetah_source::Access;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// How to open a source: always for reading.
#[pyclass(frozen, module = "cheetah._native")]
pub struct How(Access);

#[pymethods]
impl How {
    /// `cache` and `prefetch` are in bytes; 0 is none.
    #[new]
    #[pyo3(signature = (*, cache, prefetch, foresight, allow_lost, timeout_s))]
    fn new(cache: u64, prefetch: u64, foresight: bool, allow_lost: bool, timeout_s: f64) -> PyResult<Self> {
        let timeout = Duration::try_from_secs_f64(timeout_s).ok().filter(|timeout| !timeout.is_zero());
        let timeout = timeout.ok_or_else(|| {
            PyValueError::new_err(format!("timeout_s must be a positive number of seconds, not {timeout_s}"))
        })?;
        let _ = (cache, foresight);
        Ok(Self(Access { prefetch_bytes: prefetch, allow_lost, ..Access::read_once(timeout) }))
    }
}

impl How {
    /// The same, for [`cheetah_source::Opened::open`].
    pub fn access(&self) -> &Access {
        &self.0
    }
}
