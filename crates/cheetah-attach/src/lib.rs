//! Attaching a device to this machine: FUSE.
