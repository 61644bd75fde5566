//! The room of this process: the credentials with which it opens sources.

use std::path::PathBuf;
use std::sync::OnceLock;

use cheetah_room::client::MachineInfo;
use cheetah_room::resolve::{Purpose, Wanted, every_client, resolve};
use cheetah_tls::credential_store;
use pyo3::prelude::*;

use crate::{failure, runtime};

/// What this process acts as: the file of its credential, if it is in a room; or why it cannot.
type Entered = Result<Option<PathBuf>, cheetah_error::Error>;

static ENTERED: OnceLock<Entered> = OnceLock::new();

/// Sets the credentials of this process, once: for the room that `CHEETAH_ROOM` names, or else the only one that this
/// machine knows, as the command line does. Returns the file with the credential.
///
/// # Errors
///
/// If the room cannot be used.
pub fn enter(py: Python<'_>) -> PyResult<Option<PathBuf>> {
    if ENTERED.get().is_none() {
        let entered = runtime::wait(py, find())?;
        // Another thread may have been faster; both have found the same.
        let _ = ENTERED.set(entered);
    }
    match ENTERED.get() {
        Some(Ok(file)) => Ok(file.clone()),
        Some(Err(error)) => Err(failure::of(error)),
        None => Ok(None),
    }
}

async fn find() -> Entered {
    // A drive file names its room, which may be another.
    every_client()?.into_iter().for_each(credential_store::add);
    let wanted = Wanted { text: None, purpose: Purpose::Client, ephemeral: false, machine: MachineInfo::default() };
    // On a thread of the runtime: it may wait for files.
    let found = tokio::spawn(async move { resolve(&wanted).await }).await;
    let membership = found.map_err(|error| cheetah_error::Error::failed(error.to_string()))??;
    let file = membership.as_ref().and_then(|membership| membership.pem.clone());
    if let Some(membership) = membership {
        credential_store::set_default(Some(membership.credential));
    }
    Ok(file)
}

/// Returns the file with the credential of this process, in PEM, if it is in a room.
#[pyfunction]
pub fn credential_file(py: Python<'_>) -> PyResult<Option<PathBuf>> {
    enter(py)
}
