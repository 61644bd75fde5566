//! Errors as Python exceptions.

use pyo3::exceptions::PyOSError;
use pyo3::{PyErr, import_exception};

import_exception!(cheetah.error, Error);

/// Returns `cheetah.Error` for a source that cannot be opened, with the exit code of the command line. If the system refuses
/// the path, it also has the errno and the path, and so is a `FileNotFoundError` or the like.
pub fn opening(source: &str, error: &cheetah_error::Error) -> PyErr {
    let errno = refusal(source);
    let path = errno.map(|_| source.to_owned());
    Error::new_err((error.to_string(), error.exit_code(), errno, path))
}

/// Returns the errno with which the system refuses to open a path.
fn refusal(source: &str) -> Option<i32> {
    if source.contains("://") {
        return None;
    }
    let path = source.strip_prefix("raw:").unwrap_or(source);
    // Opening a pipe would wait for its other end.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return None;
    }
    std::fs::File::open(path).err().and_then(|error| error.raw_os_error())
}

/// Returns `cheetah.Error` for a source that cannot be closed.
pub fn closing(error: &cheetah_error::Error) -> PyErr {
    Error::new_err((error.to_string(), error.exit_code()))
}

/// Returns `cheetah.Error` for a room that cannot be used.
pub fn in_room(sentence: &str, exit_code: u8) -> PyErr {
    Error::new_err((sentence.to_owned(), exit_code))
}

/// Returns `cheetah.Error` for an operation that failed.
pub fn failed(sentence: String) -> PyErr {
    Error::new_err((sentence, 1))
}

/// Returns `cheetah.Error` for a request that makes no sense.
pub fn misused(sentence: String) -> PyErr {
    Error::new_err((sentence, 2))
}

/// Returns an `OSError` with an errno for bytes that cannot be read.
pub fn reading(error: &cheetah_device::Error) -> PyErr {
    PyOSError::new_err((error.errno(), error.to_string()))
}
