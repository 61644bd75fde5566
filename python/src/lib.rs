//! `cheetah._native`: what the Python package does in Rust.
//!
//! It opens what the command line opens, in the same way ([`cheetah_source`]), and reads it: [`device`]. It serves what
//! it has open to other processes: [`share`]. All of it runs on one tokio runtime: [`runtime`]. The Python around it,
//! in `cheetah/`, makes files of devices.

#![deny(unsafe_code)]

mod device;
mod failure;
mod how;
mod runtime;
mod share;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<how::How>()?;
    module.add_class::<device::Device>()?;
    module.add_class::<share::Share>()
}
