//! How failures reach Python.

use pyo3::exceptions::PyOSError;
use pyo3::{PyErr, import_exception};

import_exception!(cheetah.error, Error);

/// A source that cannot be opened: `cheetah.Error`, with the exit code the command line has for it.
pub fn opening(error: &cheetah_source::Error) -> PyErr {
    Error::new_err((error.to_string(), error.exit_code()))
}

/// Something that could not be done: `cheetah.Error`.
pub fn failed(sentence: String) -> PyErr {
    Error::new_err((sentence, 1))
}

/// What was asked for makes no sense: `cheetah.Error`.
pub fn misused(sentence: String) -> PyErr {
    Error::new_err((sentence, 2))
}

/// Bytes that cannot be read: `OSError` with an errno, as of any file.
pub fn reading(error: &cheetah_device::Error) -> PyErr {
    PyOSError::new_err((error.errno(), error.to_string()))
}
