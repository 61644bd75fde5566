//! Requests of the transmission phase.

use bytes::{BufMut, BytesMut};
use cheetah_device::ByteRange;

use super::wire::Reader;
use super::{CommandFlags, ErrorCode, REQUEST_MAGIC, TransmissionFlags, Violation};

/// The command of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// `NBD_CMD_READ`
    Read,
    /// `NBD_CMD_WRITE`: the data follows the header.
    Write,
    /// `NBD_CMD_DISC`: the client disconnects; there is no reply.
    Disconnect,
    /// `NBD_CMD_FLUSH`
    Flush,
    /// `NBD_CMD_TRIM`
    Trim,
    /// `NBD_CMD_CACHE`
    Cache,
    /// `NBD_CMD_WRITE_ZEROES`
    WriteZeroes,
    /// `NBD_CMD_BLOCK_STATUS`
    BlockStatus,
    /// A number that the specification does not define; answered with `EINVAL`.
    Unknown(u16),
}

impl Command {
    /// Converts a command number.
    pub fn from_wire(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            number => Self::Unknown(number),
        }
    }

    /// Returns the command number.
    pub fn wire(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::Cache => 5,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
            Self::Unknown(number) => number,
        }
    }

    /// Returns whether the command changes the device's content; a read-only export refuses it then.
    pub fn modifies(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes)
    }
}

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The flags.
    pub flags: CommandFlags,
    /// The command.
    pub command: Command,
    /// The cookie, which the reply repeats.
    pub cookie: u64,
    /// Offset of the range in bytes.
    pub offset: u64,
    /// Length of the range in bytes, as the client claims: unchecked.
    pub len: u32,
}

impl Request {
    /// Length of a header in bytes.
    pub const LEN: usize = 28;

    /// Parses a header. Fails only on a wrong magic number, since nothing that follows can then be parsed.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, Violation> {
        let mut reader = Reader::new(bytes);
        let fields =
            (|| Some((reader.u32()?, reader.u16()?, reader.u16()?, reader.u64()?, reader.u64()?, reader.u32()?)))();
        match fields {
            Some((REQUEST_MAGIC, flags, command, cookie, offset, len)) => {
                Ok(Self { flags: CommandFlags(flags), command: Command::from_wire(command), cookie, offset, len })
            }
            _ => Err(Violation::new("a request does not start with its magic number")),
        }
    }

    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32(REQUEST_MAGIC);
        out.put_u16(self.flags.0);
        out.put_u16(self.command.wire());
        out.put_u64(self.cookie);
        out.put_u64(self.offset);
        out.put_u32(self.len);
    }

    /// Returns the range.
    pub fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, u64::from(self.len))
    }

    /// Returns the number of bytes that follow the header.
    pub fn payload_len(&self) -> u32 {
        if self.command == Command::Write { self.len } else { 0 }
    }

    /// Checks that the command is known and offered, that its flags apply to it, that a writing command has a writable
    /// export, and that the range lies within `size` bytes. A server checks this before it executes a request.
    pub fn check(&self, offered: TransmissionFlags, size: u64) -> Result<(), ErrorCode> {
        use CommandFlags as F;
        use TransmissionFlags as T;
        let (allowed, offer) = match self.command {
            Command::Read => (F::NONE.with_if(offered.has(T::SEND_DF), F::DF), T::NONE),
            Command::Write | Command::Disconnect => (F::NONE, T::NONE),
            Command::Flush => (F::NONE, T::SEND_FLUSH),
            Command::Trim => (F::NONE, T::SEND_TRIM),
            Command::Cache => (F::NONE, T::SEND_CACHE),
            Command::WriteZeroes => {
                (F::NO_HOLE.with_if(offered.has(T::SEND_FAST_ZERO), F::FAST_ZERO), T::SEND_WRITE_ZEROES)
            }
            Command::BlockStatus => (F::REQ_ONE, T::NONE),
            Command::Unknown(_) => return Err(ErrorCode::Inval),
        };
        // Clients are known to set FUA on anything.
        let allowed = allowed.with_if(offered.has(T::SEND_FUA), F::FUA);
        if self.command.modifies() && offered.has(T::READ_ONLY) {
            return Err(ErrorCode::Perm);
        }
        if !offered.has(offer) || self.flags.without(allowed) != F::NONE {
            return Err(ErrorCode::Inval);
        }
        match self.command {
            Command::Flush | Command::Disconnect => Ok(()),
            Command::Write | Command::WriteZeroes if !self.range().fits(size) => Err(ErrorCode::NoSpc),
            _ if !self.range().fits(size) => Err(ErrorCode::Inval),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_encoded_header_parses_to_itself(flags: u16, command in 0u16..20, cookie: u64, offset: u64, len: u32) {
            let request = Request {
                flags: CommandFlags(flags), command: Command::from_wire(command), cookie, offset, len,
            };
            let mut out = BytesMut::new();
            request.encode(&mut out);
            prop_assert_eq!(Request::parse(out[..].try_into().unwrap()), Ok(request));
            out[0] ^= 1;
            prop_assert!(Request::parse(out[..].try_into().unwrap()).is_err());
            // The check never panics, and never accepts a range out of bounds.
            if request.check(TransmissionFlags::ALL.without(TransmissionFlags::READ_ONLY), 1 << 30).is_ok() {
                let unbounded = matches!(request.command, Command::Flush | Command::Disconnect);
                prop_assert!(unbounded || request.range().fits(1 << 30));
            }
        }
    }

    #[test]
    fn a_command_that_was_not_offered_is_refused() {
        use TransmissionFlags as T;
        let request = |command, flags| Request { flags, command, cookie: 0, offset: 10, len: 10 };
        let check = |command, flags, offered, size| request(command, flags).check(offered, size);
        let none = CommandFlags::NONE;
        assert_eq!(check(Command::Read, none, T::NONE, 20), Ok(()));
        assert_eq!(check(Command::Read, none, T::NONE, 19), Err(ErrorCode::Inval));
        assert_eq!(check(Command::Read, CommandFlags::DF, T::NONE, 20), Err(ErrorCode::Inval));
        assert_eq!(check(Command::Write, none, T::READ_ONLY, 20), Err(ErrorCode::Perm));
        assert_eq!(check(Command::Write, none, T::NONE, 19), Err(ErrorCode::NoSpc));
        assert_eq!(check(Command::Write, CommandFlags::FUA, T::NONE, 20), Err(ErrorCode::Inval));
        assert_eq!(check(Command::Write, CommandFlags::FUA, T::SEND_FUA, 20), Ok(()));
        assert_eq!(check(Command::Trim, none, T::NONE, 20), Err(ErrorCode::Inval));
        assert_eq!(
            check(Command::WriteZeroes, CommandFlags::FAST_ZERO, T::SEND_WRITE_ZEROES, 20),
            Err(ErrorCode::Inval)
        );
        assert_eq!(check(Command::Unknown(99), none, T::ALL, 20), Err(ErrorCode::Inval));
    }
}
