//! A membership of a room, for connections that Python's own TLS makes.

use std::path::PathBuf;

use cheetah_room::resolve::of_file;
use cheetah_room::upkeep;
use cheetah_tls::{Credential, Standing};
use pyo3::prelude::*;

use crate::{failure, runtime};

/// A membership of a room, by the credential in a file. Its list of revoked members is kept current while the process runs.
#[pyclass(frozen, module = "cheetah._native")]
pub struct Membership {
    credential: Credential,
}

/// Another member of the room, as known from its certificate.
#[pyclass(frozen, module = "cheetah._native")]
pub struct Peer(Standing);

#[pymethods]
impl Membership {
    /// Reads the credential.
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let membership = of_file(&path).map_err(|error| failure::of(&error))?;
        let _guard = runtime::get()?.enter();
        upkeep::start(&membership);
        Ok(Self { credential: membership.credential })
    }

    /// The peer with a certificate in DER: see `cheetah._native.Membership.peer`.
    fn peer(&self, certificate: &[u8]) -> PyResult<Peer> {
        self.credential.standing(certificate).map(Peer).map_err(|error| failure::failed(error.to_string()))
    }
}

#[pymethods]
impl Peer {
    /// Its role.
    #[getter]
    fn role(&self) -> &'static str {
        self.0.identity().role.name()
    }

    /// Whether its certificate has been revoked.
    fn is_revoked(&self) -> bool {
        self.0.is_revoked()
    }
}
