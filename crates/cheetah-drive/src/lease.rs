//! The write lease: one writer at a time, on all of a drive's nodes or on none.
