//! Requests to device drivers (`DeviceIoControl`).

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt as _;
use std::os::windows::io::AsRawHandle as _;
use std::ptr::null_mut;

use windows_sys::Win32::Foundation::{ERROR_INSUFFICIENT_BUFFER, ERROR_MORE_DATA};
use windows_sys::Win32::Storage::FileSystem::{FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE};
use windows_sys::Win32::System::IO::DeviceIoControl;

/// The first room for an answer, and the most.
const ANSWER_LEN: usize = 4 << 10;
const ANSWER_LEN_MAX: usize = 1 << 20;

/// Opens a device to ask it, without the right to read it: this takes no administrator.
pub fn open_to_ask(path: &str) -> io::Result<File> {
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    OpenOptions::new().access_mode(0).share_mode(share).open(path)
}

/// Asks a device; returns the answer. Makes room for an answer that is longer than usual.
pub fn ask(device: &File, code: u32, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; ANSWER_LEN];
    loop {
        let mut len = 0;
        // SAFETY: the handle is open; the question and the answer outlive the call, and their lengths are theirs.
        let done = unsafe {
            DeviceIoControl(
                device.as_raw_handle(),
                code,
                question.as_ptr().cast::<c_void>(),
                question.len() as u32,
                answer.as_mut_ptr().cast::<c_void>(),
                answer.len() as u32,
                &raw mut len,
                null_mut(),
            )
        };
        if done != 0 {
            answer.truncate(len as usize);
            return Ok(answer);
        }
        let error = io::Error::last_os_error();
        let is_short = error
            .raw_os_error()
            .is_some_and(|code| [ERROR_MORE_DATA, ERROR_INSUFFICIENT_BUFFER].contains(&code.cast_unsigned()));
        if !is_short || answer.len() >= ANSWER_LEN_MAX {
            return Err(error);
        }
        answer.resize(answer.len() * 4, 0);
    }
}
