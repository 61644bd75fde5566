//! The names of this machine and of its user.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

/// The most bytes of a user's entry that are taken.
const ENTRY_BYTES_MAX: usize = 16 << 10;

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// From the system's directory of users, of which `/etc/passwd` is only a part on macOS.
pub(crate) fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    name_of(uid).unwrap_or_else(|| format!("uid {uid}"))
}

fn name_of(uid: u32) -> Option<String> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut text: Vec<libc::c_char> = vec![0; ENTRY_BYTES_MAX];
    let mut found = null_mut();
    // SAFETY: the call writes the entry, at most as many bytes of text as it is told, and where the entry is.
    let failed = unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), text.as_mut_ptr(), text.len(), &raw mut found) };
    let found = NonNull::new(found).filter(|_| failed == 0)?;
    // SAFETY: the call has filled the entry; its name lies in `text`, and ends with a zero.
    let name = unsafe { CStr::from_ptr(found.as_ref().pw_name) };
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_name_is_found_by_number() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(name_of(u32::MAX - 7), None);
    }
}
