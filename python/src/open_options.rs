//! The options for opening a source.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cheetah_source::{Access, CacheOption, Keys, ShadowCopies};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::{failure, room};

/// The options for opening a source, always read-only.
#[pyclass(frozen, module = "cheetah._native")]
pub struct OpenOptions {
    /// How long a server or a node may take to answer.
    pub timeout: Duration,
    cache: Option<CacheOption>,
    foresight: bool,
    prefetch: u64,
    allow_lost: bool,
    /// The keys that are tried on encrypted volumes.
    unlock: Option<Arc<Keys>>,
    /// Other sources that have parts of the same arrays and volume groups.
    beside: Vec<String>,
    /// The shadow copies that are asked for.
    shadow_copies: ShadowCopies,
}

#[pymethods]
impl OpenOptions {
    /// `cache` is as on the command line: `memory[:SIZE]` or `DIRECTORY[:SIZE]`. `prefetch` is in bytes. The key files in
    /// `unlock` are read at once, if there are any. `beside` are other sources. `shadow_copies` names those that are shown as volumes; an empty list
    /// asks for a list of them.
    #[new]
    #[pyo3(signature = (*, cache, prefetch, foresight, allow_lost, timeout_s, unlock, beside, shadow_copies))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        cache: Option<&str>,
        prefetch: u64,
        foresight: bool,
        allow_lost: bool,
        timeout_s: f64,
        unlock: Vec<PathBuf>,
        beside: Vec<String>,
        shadow_copies: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let timeout = Duration::try_from_secs_f64(timeout_s).ok().filter(|timeout| !timeout.is_zero());
        let timeout = timeout.ok_or_else(|| {
            PyValueError::new_err(format!("timeout_s must be a positive number of seconds, not {timeout_s}"))
        })?;
        let cache = cache.map(str::parse::<CacheOption>).transpose();
        let cache = cache.map_err(|error| PyValueError::new_err(format!("cache: {error}")))?;
        let keys = (!unlock.is_empty()).then(|| py.detach(|| Keys::read(&unlock))).transpose();
        let unlock = keys.map_err(|error| failure::of(&error))?.map(Arc::new);
        let shadow_copies = match shadow_copies {
            Some(names) if names.is_empty() => ShadowCopies::Listed,
            names => ShadowCopies::named(names.unwrap_or_default()),
        };
        Ok(Self { timeout, cache, foresight, prefetch, allow_lost, unlock, beside, shadow_copies })
    }
}

impl OpenOptions {
    /// Returns the options for [`cheetah_source::OpenedSource::open`], as a member of the room.
    ///
    /// # Errors
    ///
    /// If the room cannot be used.
    pub fn access(&self, py: Python<'_>) -> PyResult<Access> {
        let plain = Access::read_once(room::enter(py)?.session(self.timeout));
        Ok(Access {
            cache: self.cache.clone(),
            foresight: self.foresight,
            prefetch_bytes: self.prefetch,
            allow_lost: self.allow_lost,
            in_order: false,
            unlock: self.unlock.clone(),
            with: self.beside.clone(),
            shadow_copies: self.shadow_copies.clone(),
            ..plain
        })
    }
}
