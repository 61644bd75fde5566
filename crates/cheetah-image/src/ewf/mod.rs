//! The Expert Witness Compression Format: E01 and Ex01 images.

pub mod write;
