//! Whether checksums of metadata are compared.

/// Whether checksums are compared; a fuzzer cannot make right ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checks {
    Compared,
    Ignored,
}
