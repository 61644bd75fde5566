//! The custody log of what Python does with evidence.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use cheetah_custody as custody;
use cheetah_custody::{Custodian, CustodyEvent, Known, SigningKey, verify_log};
use pyo3::prelude::*;

use crate::{failure, room};

/// A log open for appending: see `_native.pyi`.
#[pyclass(frozen, module = "cheetah._native")]
pub struct CustodyLog {
    /// `None` once it was closed.
    log: Mutex<Option<custody::CustodyLog>>,
    /// The short name of the key that signs.
    #[pyo3(get)]
    key: String,
}

#[pymethods]
impl CustodyLog {
    /// Opens the log at `path`, or creates it, to append records signed with the user's own key, which is made on first
    /// use.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| {
            let key = SigningKey::own()?;
            let id = key.public().id().to_string();
            custody::CustodyLog::open(&path, key, &Custodian::of_user(room::credential())).map(|log| (log, id))
        });
        let (log, key) = opened.map_err(|error| failure::of(&error))?;
        Ok(Self { log: Mutex::new(Some(log)), key })
    }

    /// Appends an event, in its JSON form, and flushes it. Returns the SHA-256 of its line.
    fn append(&self, py: Python<'_>, event: &str) -> PyResult<String> {
        let event: CustodyEvent = serde_json::from_str(event)
            .map_err(|error| failure::misused(format!("a custody log has no such record: {error}")))?;
        let appended = py.detach(|| {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.as_mut().map(|log| log.append(&event))
        });
        let appended = appended.ok_or_else(|| failure::misused("the custody log was closed".to_owned()))?;
        appended.map(|receipt| receipt.sha256).map_err(|error| failure::of(&error))
    }

    /// Closes the log, so that another process may write it.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.log.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

/// Returns the source and the case of the last `started` record of a log, as JSON.
#[pyfunction]
pub fn custody_state(path: PathBuf) -> PyResult<(Option<String>, Option<String>)> {
    let report = verify_log(&path, &Known::default()).map_err(|error| failure::of(&error))?;
    Ok((report.source.map(|source| source.to_string()), report.case.map(|case| case.to_string())))
}
