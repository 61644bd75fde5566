//! selfcheck
