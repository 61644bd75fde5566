//! The memory of this machine, and of the control groups that this process is in.

pub use crate::os::machine_memory::machine_memory;

/// The memory of a machine or a control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineMemory {
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Bytes available without reclaiming memory in use.
    pub available_bytes: u64,
}

impl MachineMemory {
    /// The stricter of two.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        Self {
            total_bytes: self.total_bytes.min(other.total_bytes),
            available_bytes: self.available_bytes.min(other.available_bytes),
        }
    }
}
