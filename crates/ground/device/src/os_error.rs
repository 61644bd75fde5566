//! Errors of the operating system, in words.

use std::error::Error as StdError;
use std::io::{Error, ErrorKind};

use crate::os;

/// Describes an error, with the next step where that is clear. The path of a temporary file, which `tempfile` adds, is left out:
/// the caller names the file that the user knows. So is the errno, but not a code of Windows.
pub fn describe(error: &Error) -> String {
    let errno = innermost(error);
    let text = errno.map_or_else(|| error.to_string(), |errno| Error::from_raw_os_error(errno).to_string());
    let text = os::words_of(&text);
    let kind = errno.map_or(error.kind(), |errno| Error::from_raw_os_error(errno).kind());
    let next = match kind {
        ErrorKind::PermissionDenied => os::MAY_NOT,
        ErrorKind::NotFound => "; check the path",
        ErrorKind::ReadOnlyFilesystem => "; choose another place",
        ErrorKind::StorageFull => "; free some space, or choose another place",
        _ => "",
    };
    format!("{text}{next}")
}

/// Returns the errno of an error, or of the error that it wraps.
fn innermost(error: &Error) -> Option<i32> {
    let mut cause: Option<&(dyn StdError + 'static)> = error.get_ref().map(|inner| inner as _);
    let mut errno = error.raw_os_error();
    while let (None, Some(inner)) = (errno, cause) {
        errno = inner.downcast_ref::<Error>().and_then(Error::raw_os_error);
        cause = inner.source();
    }
    errno
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_temporary_file_names_neither_it_nor_an_errno() {
        let error = tempfile::Builder::new().prefix("secret-7").tempfile_in("/nonexistent").unwrap_err();
        assert!(error.to_string().contains("secret-7"), "{error}");
        assert_eq!(describe(&error), "No such file or directory; check the path");
    }

    #[test]
    fn permission_denied_says_what_to_do() {
        let text = describe(&Error::from_raw_os_error(13));
        assert_eq!(text, "Permission denied; check its owner and mode, or run as root");
    }

    #[test]
    fn error_without_an_errno_keeps_its_text() {
        assert_eq!(describe(&Error::other("out of order")), "out of order");
        // As glibc and musl call it.
        let text = describe(&Error::from_raw_os_error(5));
        assert!(["Input/output error", "I/O error"].contains(&text.as_str()), "{text}");
    }
}
