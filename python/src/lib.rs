//! `cheetah._native`: the Rust part of the Python package.
//!
//! [`device`] opens sources as the command line does ([`cheetah_source`]), as a member of the same room ([`room`]), and
//! reads and searches ([`search`]) them; [`share`] serves them to other processes. [`membership`] checks the peers of connections that Python makes.
//! [`custody`] records what is done with evidence; [`tables`] reads partition tables, and names formats; [`yara`] divides rules for a
//! search; [`sizes`] and
//! [`path_text`] read what users write. Everything runs on one tokio runtime ([`runtime`]). The Python code in `cheetah/`
//! turns devices into file objects.

#![deny(unsafe_code)]

mod custody;
mod device;
mod failure;
mod membership;
mod open_options;
mod path_text;
mod room;
mod runtime;
mod search;
mod share;
mod sizes;
mod tables;
mod yara;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<open_options::OpenOptions>()?;
    module.add_class::<device::Device>()?;
    module.add_class::<share::Share>()?;
    module.add_class::<search::Hit>()?;
    module.add_class::<search::Hits>()?;
    module.add_function(wrap_pyfunction!(search::read_words, module)?)?;
    module.add_function(wrap_pyfunction!(yara::split_rules, module)?)?;
    module.add_function(wrap_pyfunction!(yara::rules_need_whole_files, module)?)?;
    module.add_class::<membership::Membership>()?;
    module.add_class::<membership::Peer>()?;
    module.add_class::<custody::CustodyLog>()?;
    module.add_function(wrap_pyfunction!(custody::custody_state, module)?)?;
    module.add_class::<tables::PartitionPlace>()?;
    module.add_class::<tables::PartitionTables>()?;
    module.add_function(wrap_pyfunction!(tables::read_partition_tables, module)?)?;
    module.add_function(wrap_pyfunction!(tables::identify, module)?)?;
    module.add_function(wrap_pyfunction!(sizes::parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(path_text::path_to_text, module)?)?;
    module.add_function(wrap_pyfunction!(path_text::text_to_path, module)?)?;
    module.add_function(wrap_pyfunction!(room::credential_file, module)?)
}
