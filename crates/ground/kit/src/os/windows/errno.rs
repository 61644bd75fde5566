//! The numbers of errors: Windows has others than those on the wire and in facts.

use std::io;

use windows_sys::Win32::Foundation::{
    ERROR_CRC, ERROR_DATA_CHECKSUM_ERROR, ERROR_DEVICE_HARDWARE_ERROR, ERROR_IO_DEVICE, ERROR_READ_FAULT,
    ERROR_SECTOR_NOT_FOUND, ERROR_SEEK, ERROR_UNRECOGNIZED_MEDIA,
};

pub(crate) use super::super::kinds::of;

pub(crate) fn is_of_medium(error: &io::Error) -> bool {
    const MEDIUM: [u32; 8] = [
        ERROR_CRC,
        ERROR_DATA_CHECKSUM_ERROR,
        ERROR_SEEK,
        ERROR_SECTOR_NOT_FOUND,
        ERROR_READ_FAULT,
        ERROR_DEVICE_HARDWARE_ERROR,
        ERROR_IO_DEVICE,
        ERROR_UNRECOGNIZED_MEDIA,
    ];
    error.raw_os_error().is_some_and(|code| MEDIUM.contains(&code.cast_unsigned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::{EACCES, ECONNREFUSED, EIO, ENOENT, ENOSPC};

    #[test]
    fn codes_of_windows_are_numbers_of_linux_and_only_a_bad_sector_is_an_error_of_the_medium() {
        let number = |code: i32| of(&io::Error::from_raw_os_error(code));
        assert_eq!(
            [number(5), number(2), number(10061), number(112)],
            [EACCES, ENOENT, ECONNREFUSED, ENOSPC].map(Some)
        );
        assert_eq!([number(23), number(323), number(1117)], [Some(EIO); 3]);
        // Not ready, not connected, and a code that stands for nothing here.
        for code in [21, 1167, 9999] {
            assert_ne!(number(code), Some(EIO));
        }
        assert_eq!(of(&io::Error::other("no code")), None);
    }
}
