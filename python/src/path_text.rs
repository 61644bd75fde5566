//! Paths as text, as the command line writes and reads them.

use cheetah_device::path_text;
use pyo3::prelude::*;
use std::ffi::OsString;

/// Returns the text of a path.
#[pyfunction]
pub fn path_to_text(path: OsString) -> String {
    path_text::path_to_text(&path).into_owned()
}

/// Returns the path of a text.
#[pyfunction]
pub fn text_to_path(text: &str) -> OsString {
    path_text::text_to_path(text).into()
}
