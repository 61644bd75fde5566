//! The names of this machine and of its user.

use crate::os;

/// The name of this machine, as the operating system has it.
pub fn host_name() -> String {
    os::machine::host_name()
}

/// The name of the user as which this process runs, as the system has it: variables of the environment may be unset, or name
/// another user.
pub fn user_name() -> String {
    os::machine::user_name()
}
