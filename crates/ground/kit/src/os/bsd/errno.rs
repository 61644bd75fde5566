//! The numbers of errors: these systems have others than Linux, whose numbers are those on the wire and in facts.

use std::io;

use rustix::io::Errno;

pub(crate) use super::super::kinds::of;

/// Drivers return EIO for a bad sector, and ENXIO for a disk that is gone.
pub(crate) fn is_of_medium(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::{ECONNREFUSED, EIO, EROFS, ETIMEDOUT};

    #[test]
    fn numbers_are_those_of_linux_and_only_a_bad_sector_is_an_error_of_the_medium() {
        let number = |errno: Errno| of(&errno.into());
        assert_eq!(number(Errno::IO), Some(EIO));
        assert_eq!(
            [number(Errno::CONNREFUSED), number(Errno::TIMEDOUT), number(Errno::ROFS)],
            [ECONNREFUSED, ETIMEDOUT, EROFS].map(Some)
        );
        for errno in [Errno::NXIO, Errno::ILSEQ, Errno::STALE] {
            assert_ne!(number(errno), Some(EIO));
        }
        assert_eq!(of(&io::Error::other("no number")), None);
    }
}
