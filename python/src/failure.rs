//! How failures reach Python.

use pyo3::exceptions::PyOSError;
use pyo3::{PyErr, import_exception};

import_exception!(cheetah.error, Error);

/// A source that cannot be opened: `cheetah.Error`, with the exit code of the command line. Where the system refuses the
/// source's path, it also has the errno and the path, and so is a `FileNotFoundError` or the like.
pub fn opening(source: &str, error: &cheetah_source::Error) -> PyErr {
    let errno = refusal(source);
    let path = errno.map(|_| source.to_owned());
    Error::new_err((error.to_string(), error.exit_code(), errno, path))
}

/// Why the system does not open a path.
fn refusal(source: &str) -> Option<i32> {
    if source.contains("://") {
        return None;
    }
    std::fs::File::open(source.strip_prefix("raw:").unwrap_or(source)).err().and_then(|error| error.raw_os_error())
}

/// A source that cannot be closed in good order: `cheetah.Error`.
pub fn closing(error: &cheetah_source::Error) -> PyErr {
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
