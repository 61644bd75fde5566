//! Error numbers on the wire.

use std::fmt;

/// An error in a reply. The specification assigns the numbers; they do not depend on the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// `NBD_EPERM`: the export is read-only, or the writer was fenced.
    Perm = 1,
    /// `NBD_EIO`
    Io = 5,
    /// `NBD_ENOMEM`
    NoMem = 12,
    /// `NBD_EINVAL`: unknown command or flag, or out of bounds; unknown numbers count as this.
    Inval = 22,
    /// `NBD_ENOSPC`: no space left, or a write beyond the end.
    NoSpc = 28,
    /// `NBD_EOVERFLOW`: the request is too large.
    Overflow = 75,
    /// `NBD_ENOTSUP`: zeros cannot be written fast.
    NotSup = 95,
    /// `NBD_ESHUTDOWN`: the server is shutting down.
    Shutdown = 108,
}

impl ErrorCode {
    /// Parses a reply's error field. 0 is no error; unknown numbers count as `EINVAL`, as the specification requires.
    pub fn from_wire(number: u32) -> Result<(), Self> {
        Err(match number {
            0 => return Ok(()),
            1 => Self::Perm,
            5 => Self::Io,
            12 => Self::NoMem,
            28 => Self::NoSpc,
            75 => Self::Overflow,
            95 => Self::NotSup,
            108 => Self::Shutdown,
            _ => Self::Inval,
        })
    }

    /// Converts an errno (Linux numbering).
    pub fn from_errno(errno: i32) -> Self {
        match errno {
            // EPERM, EACCES, EROFS
            1 | 13 | 30 => Self::Perm,
            12 => Self::NoMem,
            22 => Self::Inval,
            // EFBIG, ENOSPC, EDQUOT
            27 | 28 | 122 => Self::NoSpc,
            75 => Self::Overflow,
            95 => Self::NotSup,
            108 => Self::Shutdown,
            _ => Self::Io,
        }
    }

    /// Returns the errno (Linux numbering).
    pub fn errno(self) -> i32 {
        match self {
            Self::Perm => 1,
            Self::Io => 5,
            Self::NoMem => 12,
            Self::Inval => 22,
            Self::NoSpc => 28,
            Self::Overflow => 75,
            Self::NotSup => 95,
            Self::Shutdown => 108,
        }
    }

    /// Returns the number for a reply's error field.
    pub fn wire(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Perm => "operation not permitted",
            Self::Io => "input/output error",
            Self::NoMem => "out of memory",
            Self::Inval => "invalid argument",
            Self::NoSpc => "no space left on device",
            Self::Overflow => "value too large",
            Self::NotSup => "operation not supported",
            Self::Shutdown => "the server is shutting down",
        })
    }
}

impl From<&cheetah_device::Error> for ErrorCode {
    fn from(error: &cheetah_device::Error) -> Self {
        match error {
            // The loss of a node says nothing about the bytes: a client must not take it for a bad sector.
            cheetah_device::Error::Lost { .. } => Self::Shutdown,
            error => Self::from_errno(error.errno()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_wire_and_unknown_ones_become_einval() {
        use ErrorCode::*;
        for code in [Perm, Io, NoMem, Inval, NoSpc, Overflow, NotSup, Shutdown] {
            assert_eq!(ErrorCode::from_wire(code.wire()), Err(code));
            assert_eq!(ErrorCode::from_errno(code.errno()), code);
        }
        assert_eq!(ErrorCode::from_wire(0), Ok(()));
        assert_eq!(ErrorCode::from_wire(4711), Err(Inval));
        assert_eq!(ErrorCode::from(&cheetah_device::Error::ReadOnly), Perm);
        assert_eq!(ErrorCode::from_errno(9), Io);
        let (device, range, why) = ("sda".into(), cheetah_device::ByteRange::new(0, 512), "gone".into());
        assert_eq!(ErrorCode::from(&cheetah_device::Error::Lost { device, range, why }), Shutdown);
    }
}
