//! An iSCSI initiator that only reads.

#![forbid(unsafe_code)]
