//! The name under which this process holds a lease.

use cheetah_kit::machine::host_name;

pub use cheetah_kit::machine::user_name;

/// Describes this process to another examiner: user, host and process id.
pub(crate) fn holder() -> String {
    let user = user_name();
    let owner: String = format!("{user}@{}", host_name()).chars().filter(|c| !c.is_control()).take(64).collect();
    format!("{owner}, process {}", std::process::id())
}
