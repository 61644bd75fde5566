//! The basic header segment (RFC 7143, 11.2.1).

/// The length of a basic header segment, in bytes.
pub const HEADER_LEN: usize = 48;

/// A basic header segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER_LEN]);

/// PDU types: those a read-only initiator sends, and all a target may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "named as in RFC 7143, 11.2.1.2")]
pub enum Opcode {
    NopOut = 0x00,
    ScsiCommand = 0x01,
    LoginRequest = 0x03,
    TextRequest = 0x04,
    LogoutRequest = 0x06,
    NopIn = 0x20,
    ScsiResponse = 0x21,
    TaskManagementResponse = 0x22,
    LoginResponse = 0x23,
    TextResponse = 0x24,
    DataIn = 0x25,
    LogoutResponse = 0x26,
    ReadyToTransfer = 0x31,
    AsyncMessage = 0x32,
    Reject = 0x3F,
}

/// Flag: immediate delivery, outside the order of commands.
const IMMEDIATE: u8 = 0x40;

impl Header {
    /// Makes a header that is zero except for the opcode.
    pub const fn new(opcode: Opcode) -> Self {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = opcode as u8;
        Self(bytes)
    }

    /// Makes the same header for immediate delivery.
    #[must_use]
    pub const fn immediate(mut self) -> Self {
        self.0[0] |= IMMEDIATE;
        self
    }

    /// The opcode's number.
    pub const fn opcode(&self) -> u8 {
        self.0[0] & 0x3F
    }

    /// The length of the additional header segments, at most 1020 bytes.
    pub const fn ahs_len(&self) -> usize {
        self.0[4] as usize * 4
    }

    /// The length of the data segment without padding: less than 16 MiB.
    pub const fn data_len(&self) -> usize {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]) as usize
    }

    /// Sets the length of the data segment, truncated to 24 bits.
    pub const fn set_data_len(&mut self, len: u32) {
        let [_, high, middle, low] = len.to_be_bytes();
        [self.0[5], self.0[6], self.0[7]] = [high, middle, low];
    }

    /// The initiator task tag.
    pub fn itt(&self) -> u32 {
        self.u32(16)
    }

    /// The 16-bit field at `at`.
    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// The 32-bit field at `at`.
    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Sets the bytes from `at` on.
    #[must_use]
    pub(crate) fn with<const N: usize>(mut self, at: usize, bytes: [u8; N]) -> Self {
        self.0[at..at + N].copy_from_slice(&bytes);
        self
    }
}
