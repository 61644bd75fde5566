//! The room of this process: the credentials with which it opens sources.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cheetah_drive::Session;
use cheetah_error::Error;
use cheetah_room::client::MachineInfo;
use cheetah_room::resolve::{Purpose, Wanted, every_client, resolve};
use cheetah_tls::{Credential, CredentialSet};
use pyo3::prelude::*;

use crate::{failure, runtime};

/// What this module opens sources with.
pub struct Acting {
    /// The file of the credential, in PEM, if this process is in a room.
    file: Option<PathBuf>,
    /// The credentials, and the identities that the environment names.
    session: Session,
}

/// Or why the room cannot be used. A module has no other place for what all of its objects share.
static ENTERED: OnceLock<Result<Acting, Error>> = OnceLock::new();

/// Enters the room, once: the one that `CHEETAH_ROOM` names, or else the only one that this machine knows, as the command
/// line does.
///
/// # Errors
///
/// If the room cannot be used.
pub fn enter(py: Python<'_>) -> PyResult<&'static Acting> {
    if ENTERED.get().is_none() {
        let entered = runtime::wait(py, find())?;
        // Another thread may have been faster; both have found the same.
        let _ = ENTERED.set(entered);
    }
    match ENTERED.get() {
        Some(Ok(acting)) => Ok(acting),
        Some(Err(error)) => Err(failure::of(error)),
        None => Err(failure::failed("the room was not entered".to_owned())),
    }
}

/// The credential that this process acts as, if it has entered a room.
pub fn credential() -> Option<&'static Credential> {
    ENTERED.get()?.as_ref().ok()?.session.credentials.acting_as()
}

impl Acting {
    /// What a source is opened with, if its server or its nodes may take that long to answer.
    pub fn session(&self, timeout: Duration) -> Session {
        self.session.within(timeout)
    }
}

async fn find() -> Result<Acting, Error> {
    // A drive file names its room, which may be another.
    let others = every_client()?;
    let wanted = Wanted { text: None, purpose: Purpose::Client, ephemeral: false, machine: MachineInfo::default() };
    // On a thread of the runtime: it may wait for files.
    let found = tokio::spawn(async move { resolve(&wanted).await }).await;
    let membership = found.map_err(|error| Error::failed(error.to_string()))??;
    let file = membership.as_ref().and_then(|membership| membership.pem.clone());
    let credentials = CredentialSet::new(membership.map(|membership| membership.credential), others);
    Ok(Acting { file, session: Session::new(credentials, Arc::default(), Duration::ZERO) })
}

/// Returns the file with the credential of this process, in PEM, if it is in a room.
#[pyfunction]
pub fn credential_file(py: Python<'_>) -> PyResult<Option<PathBuf>> {
    enter(py).map(|acting| acting.file.clone())
}
