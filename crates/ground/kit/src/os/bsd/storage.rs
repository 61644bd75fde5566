//! The disks of this machine and its mounted file systems, as the kernel lists them.

use std::ffi::{CStr, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// More file systems than may be mounted between two questions.
const MOUNTED_MEANWHILE: usize = 16;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// What is mounted: a device, such as `/dev/ada0p2`, or another name, such as that of a pool.
    pub from: String,
    /// The folder on which it is mounted.
    pub on: String,
}

/// The names of the disks, below `/dev`, in no order.
///
/// # Errors
///
/// If the kernel does not list them.
#[cfg(target_os = "freebsd")]
pub fn disk_names() -> io::Result<Vec<String>> {
    /// Some thousand disks.
    const LIST_BYTES_MAX: usize = 64 << 10;
    let mut list = vec![0u8; LIST_BYTES_MAX];
    let mut len = list.len();
    // SAFETY: the name ends with a zero; the call writes at most `len` bytes, and how many it wrote.
    super::checked(unsafe {
        libc::sysctlbyname(c"kern.disks".as_ptr(), list.as_mut_ptr().cast(), &raw mut len, null_mut(), 0)
    })?;
    list.truncate(len);
    let list = String::from_utf8_lossy(&list);
    Ok(list.trim_end_matches('\0').split_whitespace().map(str::to_owned).collect())
}

/// The names of the disks, below `/dev`, in no order. Containers of APFS are among them.
///
/// # Errors
///
/// If the folder cannot be read.
#[cfg(target_os = "macos")]
pub fn disk_names() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir("/dev")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("disk").filter(|number| !number.is_empty());
        if number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The file systems that are mounted now.
///
/// # Errors
///
/// If the kernel does not list them.
pub fn mounts() -> io::Result<Vec<Mount>> {
    // SAFETY: without a place for them, the call only counts.
    let count = counted(unsafe { libc::getfsstat(null_mut(), 0, libc::MNT_NOWAIT) })?;
    let mut found: Vec<MaybeUninit<libc::statfs>> = Vec::new();
    found.resize_with(count.saturating_add(MOUNTED_MEANWHILE), MaybeUninit::zeroed);
    let bytes = size_of_val(found.as_slice()).try_into().map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: the call writes at most `bytes` bytes, those of the list.
    let count = counted(unsafe { libc::getfsstat(found.as_mut_ptr().cast(), bytes, libc::MNT_NOWAIT) })?;
    let mounts = found.iter().take(count).map(|one| {
        // SAFETY: zeros are a value of the structure, and the call has filled this one.
        let one = unsafe { one.assume_init_ref() };
        Mount { from: text(&one.f_mntfromname), on: text(&one.f_mntonname) }
    });
    Ok(mounts.collect())
}

fn counted(count: i32) -> io::Result<usize> {
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// A text that ends with a zero; a text without one is empty.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|byte| byte.to_ne_bytes()[0]).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_mounted_on_the_root() {
        assert!(mounts().unwrap().iter().any(|mount| mount.on == "/"));
        disk_names().unwrap();
    }
}
