//! Errors as Python exceptions.

use cheetah_error::Next;
use pyo3::exceptions::PyOSError;
use pyo3::{PyErr, import_exception};

import_exception!(cheetah.error, Error);

/// Returns `cheetah.Error` for a source that cannot be opened, with the exit code of the command line. If the system refuses
/// the path, it also has the errno and the path, and so is a `FileNotFoundError` or the like.
pub fn opening(source: &str, error: &cheetah_error::Error) -> PyErr {
    let errno = refusal(source);
    let path = errno.map(|_| source.to_owned());
    raised(error, errno, path)
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

/// Returns `cheetah.Error` with the kind and the next steps.
pub fn of(error: &cheetah_error::Error) -> PyErr {
    raised(error, None, None)
}

fn raised(error: &cheetah_error::Error, errno: Option<i32>, path: Option<String>) -> PyErr {
    let next: Vec<String> = error.steps().iter().map(Next::record).collect();
    let sentence = cheetah_words::sentence(error);
    Error::new_err((sentence, error.exit_code(), errno, path, error.kind().name(), next))
}

/// Returns `cheetah.Error` for an operation that failed.
pub fn failed(sentence: String) -> PyErr {
    of(&cheetah_error::Error::failed(sentence))
}

/// Returns `cheetah.Error` for a request that makes no sense.
pub fn misused(sentence: String) -> PyErr {
    of(&cheetah_error::Error::misuse(sentence))
}

/// Returns an `OSError` with an errno for bytes that cannot be read.
pub fn reading(error: &cheetah_device::Error) -> PyErr {
    let sentence = cheetah_words::with(error, Next::of_device(error).as_slice());
    PyOSError::new_err((error.errno(), sentence))
}
