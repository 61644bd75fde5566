//! Sets of flags.

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$flag_doc:meta])* $flag:ident = $bit:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self(1 << $bit);)*

            /// No flag.
            pub const NONE: Self = Self(0);
            /// Every known flag.
            pub const ALL: Self = Self(0 $(| 1 << $bit)*);

            /// Returns whether every flag of `other` is set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the union of both sets.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns the union with `other` if `wanted`, or the set itself.
            pub const fn with_if(self, wanted: bool, other: Self) -> Self {
                if wanted { self.with(other) } else { self }
            }

            /// Returns the flags that are not in `other`.
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut separator = "";
                $(if self.has(Self::$flag) {
                    write!(f, "{separator}{}", stringify!($flag))?;
                    separator = "|";
                })*
                let unknown = self.without(Self::ALL).0;
                if unknown != 0 || separator.is_empty() {
                    write!(f, "{separator}{unknown:#x}")?;
                }
                Ok(())
            }
        }
    };
}

flags! {
    /// The flags in the greeting of a newstyle server.
    HandshakeFlags: u16 {
        /// `NBD_FLAG_FIXED_NEWSTYLE`
        FIXED_NEWSTYLE = 0;
        /// `NBD_FLAG_NO_ZEROES`: may omit the padding after `NBD_OPT_EXPORT_NAME`.
        NO_ZEROES = 1;
    }
}

flags! {
    /// The response of a client to [`HandshakeFlags`].
    ClientFlags: u32 {
        /// `NBD_FLAG_C_FIXED_NEWSTYLE`
        FIXED_NEWSTYLE = 0;
        /// `NBD_FLAG_C_NO_ZEROES`
        NO_ZEROES = 1;
    }
}

flags! {
    /// The capabilities of an export (transmission flags).
    TransmissionFlags: u16 {
        /// `NBD_FLAG_HAS_FLAGS`, always set.
        HAS_FLAGS = 0;
        /// `NBD_FLAG_READ_ONLY`
        READ_ONLY = 1;
        /// `NBD_FLAG_SEND_FLUSH`
        SEND_FLUSH = 2;
        /// `NBD_FLAG_SEND_FUA`
        SEND_FUA = 3;
        /// `NBD_FLAG_ROTATIONAL`
        ROTATIONAL = 4;
        /// `NBD_FLAG_SEND_TRIM`
        SEND_TRIM = 5;
        /// `NBD_FLAG_SEND_WRITE_ZEROES`
        SEND_WRITE_ZEROES = 6;
        /// `NBD_FLAG_SEND_DF`: only with structured replies.
        SEND_DF = 7;
        /// `NBD_FLAG_CAN_MULTI_CONN`: all connections see one consistent device.
        CAN_MULTI_CONN = 8;
        /// `NBD_FLAG_SEND_CACHE`
        SEND_CACHE = 10;
        /// `NBD_FLAG_SEND_FAST_ZERO`
        SEND_FAST_ZERO = 11;
    }
}

impl TransmissionFlags {
    /// Those that concern changes of the content only.
    pub const CHANGES: Self = Self::SEND_FLUSH
        .with(Self::SEND_FUA)
        .with(Self::SEND_TRIM)
        .with(Self::SEND_WRITE_ZEROES)
        .with(Self::SEND_FAST_ZERO);
}

flags! {
    /// The flags of a command.
    CommandFlags: u16 {
        /// `NBD_CMD_FLAG_FUA`: on stable storage before the reply.
        FUA = 0;
        /// `NBD_CMD_FLAG_NO_HOLE`: write zeros and keep the space allocated.
        NO_HOLE = 1;
        /// `NBD_CMD_FLAG_DF`: one content chunk in reply to a read.
        DF = 2;
        /// `NBD_CMD_FLAG_REQ_ONE`: one extent in reply to a block status request.
        REQ_ONE = 3;
        /// `NBD_CMD_FLAG_FAST_ZERO`: fail if it is not faster than writing.
        FAST_ZERO = 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_print_by_name() {
        assert_eq!(format!("{:?}", CommandFlags::FUA | CommandFlags(1 << 9)), "FUA|0x200");
        assert_eq!(format!("{:?}", TransmissionFlags::NONE), "0x0");
    }
}
