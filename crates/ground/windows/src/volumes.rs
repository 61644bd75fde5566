//! The volumes of this machine, and where they are mounted.

use std::io;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Storage::FileSystem::{
    FindFirstVolumeW, FindNextVolumeW, FindVolumeClose, GetVolumePathNamesForVolumeNameW,
    IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS,
};

use crate::buffers::{Extent, extents};
use crate::control::{ask, open_to_ask};
use crate::wide;

/// Room for the name of a volume, which has 50 characters.
const NAME_LEN: usize = 128;
/// Room for the paths at which one volume is mounted.
const PATHS_LEN: usize = 16 << 10;
/// The most volumes that are looked at.
const VOLUMES_MAX: usize = 1024;

/// A volume that Windows knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The paths at which it is mounted: `C:\`.
    pub paths: Vec<String>,
    /// The parts of disks that it consists of; none if its driver does not tell.
    pub extents: Vec<Extent>,
}

/// Returns the volumes of this machine.
///
/// # Errors
///
/// If Windows does not list them.
pub fn volumes() -> io::Result<Vec<Volume>> {
    Ok(names()?.iter().map(|name| look(name)).collect())
}

fn look(name: &str) -> Volume {
    // The device is the name without the backslash at its end, which would name the root folder.
    let device = open_to_ask(name.trim_end_matches('\\'));
    let answer = device.and_then(|device| ask(&device, IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS, &[]));
    Volume { paths: paths(name), extents: answer.map(|answer| extents(&answer)).unwrap_or_default() }
}

/// The paths at which the volume of a name is mounted.
fn paths(name: &str) -> Vec<String> {
    let (name, mut units, mut len) = (wide::terminated(name), vec![0_u16; PATHS_LEN], 0);
    // SAFETY: the name ends with a zero, and the room for the paths is as large as is said.
    let done = unsafe {
        GetVolumePathNamesForVolumeNameW(name.as_ptr(), units.as_mut_ptr(), units.len() as u32, &raw mut len)
    };
    if done == 0 { Vec::new() } else { wide::list(&units) }
}

/// The names of all volumes: `\\?\Volume{…}\`.
fn names() -> io::Result<Vec<String>> {
    let mut units = [0_u16; NAME_LEN];
    // SAFETY: the room for the name is as large as is said.
    let handle = unsafe { FindFirstVolumeW(units.as_mut_ptr(), units.len() as u32) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    let search = Search(handle);
    let mut names = vec![wide::up_to_zero(&units)];
    // SAFETY: the search is open, and the room for the name is as large as is said.
    while names.len() < VOLUMES_MAX && unsafe { FindNextVolumeW(search.0, units.as_mut_ptr(), units.len() as u32) } != 0
    {
        names.push(wide::up_to_zero(&units));
    }
    Ok(names)
}

/// A search of volumes, which ends when it is dropped.
struct Search(HANDLE);

impl Drop for Search {
    fn drop(&mut self) {
        // SAFETY: it is open, and closed here only.
        unsafe { FindVolumeClose(self.0) };
    }
}
