//! Headers of a target's PDUs.

use super::{Header, Opcode, Violation};

/// The numbers every response carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sequence {
    /// The status number, if present.
    pub stat_sn: u32,
    /// The number of the next expected command.
    pub exp_cmd_sn: u32,
    /// The highest command number the target accepts.
    pub max_cmd_sn: u32,
}

/// A parsed response, without the fields this initiator ignores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named and described in RFC 7143, section 11")]
pub enum Response {
    /// The end of a command (11.4).
    Scsi { itt: u32, response: u8, status: u8, sequence: Sequence },
    /// A part of a command's data (11.7); the last may carry the status.
    DataIn { itt: u32, status: Option<u8>, data_sn: u32, offset: u32, sequence: Sequence },
    /// A ping, or the answer to one (11.19).
    NopIn { itt: u32, ttt: u32, lun: [u8; 8], sequence: Sequence },
    /// A step of a login (11.13). `stage` and `next` are numbers of [`Stage`](super::request::Stage)s.
    Login {
        itt: u32,
        transit: bool,
        more: bool,
        stage: u8,
        next: u8,
        version_active: u8,
        isid: [u8; 6],
        tsih: u16,
        class: u8,
        detail: u8,
        sequence: Sequence,
    },
    /// A part of a text (11.11).
    Text { itt: u32, last: bool, more: bool, ttt: u32, sequence: Sequence },
    /// The end of a session (11.15).
    Logout { itt: u32, response: u8, sequence: Sequence },
    /// An asynchronous message (11.9).
    Async { event: u8, vendor_code: u8, sequence: Sequence },
    /// The rejection of a request (11.17).
    Reject { reason: u8, sequence: Sequence },
    /// The target wants data to write (11.8).
    ReadyToTransfer { itt: u32 },
}

impl Response {
    /// Parses a header.
    ///
    /// # Errors
    ///
    /// If a target never sends this type to a read-only initiator.
    pub fn parse(header: &Header) -> Result<Self, Violation> {
        let itt = header.itt();
        let flags = header.0[1];
        let sequence = Sequence { stat_sn: header.u32(24), exp_cmd_sn: header.u32(28), max_cmd_sn: header.u32(32) };
        let opcode = |opcode: Opcode| opcode as u8;
        Ok(match header.opcode() {
            code if code == opcode(Opcode::ScsiResponse) => {
                Self::Scsi { itt, response: header.0[2], status: header.0[3], sequence }
            }
            code if code == opcode(Opcode::DataIn) => {
                let status = (flags & 0x01 != 0).then_some(header.0[3]);
                Self::DataIn { itt, status, data_sn: header.u32(36), offset: header.u32(40), sequence }
            }
            code if code == opcode(Opcode::NopIn) => {
                let mut lun = [0; 8];
                lun.copy_from_slice(&header.0[8..16]);
                Self::NopIn { itt, ttt: header.u32(20), lun, sequence }
            }
            code if code == opcode(Opcode::LoginResponse) => {
                let mut isid = [0; 6];
                isid.copy_from_slice(&header.0[8..14]);
                Self::Login {
                    itt,
                    transit: flags & 0x80 != 0,
                    more: flags & 0x40 != 0,
                    stage: flags >> 2 & 3,
                    next: flags & 3,
                    version_active: header.0[3],
                    isid,
                    tsih: header.u16(14),
                    class: header.0[36],
                    detail: header.0[37],
                    sequence,
                }
            }
            code if code == opcode(Opcode::TextResponse) => {
                Self::Text { itt, last: flags & 0x80 != 0, more: flags & 0x40 != 0, ttt: header.u32(20), sequence }
            }
            code if code == opcode(Opcode::LogoutResponse) => Self::Logout { itt, response: header.0[2], sequence },
            code if code == opcode(Opcode::AsyncMessage) => {
                Self::Async { event: header.0[36], vendor_code: header.0[37], sequence }
            }
            code if code == opcode(Opcode::Reject) => Self::Reject { reason: header.0[2], sequence },
            code if code == opcode(Opcode::ReadyToTransfer) => Self::ReadyToTransfer { itt },
            code => return Err(Violation::new(format!("a PDU with the unexpected opcode {code:#04x}"))),
        })
    }

    /// Encodes the header, for tests that play a target.
    pub fn header(&self) -> Header {
        let base = |opcode: Opcode, flags: u8, itt: u32, sequence: Sequence| {
            let header = Header::new(opcode).with(1, [flags]).with(16, itt.to_be_bytes());
            let header = header.with(24, sequence.stat_sn.to_be_bytes()).with(28, sequence.exp_cmd_sn.to_be_bytes());
            header.with(32, sequence.max_cmd_sn.to_be_bytes())
        };
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        match *self {
            Self::Scsi { itt, response, status, sequence } => {
                base(Opcode::ScsiResponse, 0x80, itt, sequence).with(2, [response, status])
            }
            Self::DataIn { itt, status, data_sn, offset, sequence } => {
                let header = base(Opcode::DataIn, bit(status.is_some(), 0x81), itt, sequence);
                let header = header.with(3, [status.unwrap_or(0)]).with(20, super::NO_TAG.to_be_bytes());
                header.with(36, data_sn.to_be_bytes()).with(40, offset.to_be_bytes())
            }
            Self::NopIn { itt, ttt, lun, sequence } => {
                base(Opcode::NopIn, 0x80, itt, sequence).with(8, lun).with(20, ttt.to_be_bytes())
            }
            Self::Login { itt, transit, more, stage, next, version_active, isid, tsih, class, detail, sequence } => {
                let flags = bit(transit, 0x80) | bit(more, 0x40) | (stage & 3) << 2 | next & 3;
                let header = base(Opcode::LoginResponse, flags, itt, sequence).with(3, [version_active]);
                header.with(8, isid).with(14, tsih.to_be_bytes()).with(36, [class, detail])
            }
            Self::Text { itt, last, more, ttt, sequence } => {
                let flags = bit(last, 0x80) | bit(more, 0x40);
                base(Opcode::TextResponse, flags, itt, sequence).with(20, ttt.to_be_bytes())
            }
            Self::Logout { itt, response, sequence } => {
                base(Opcode::LogoutResponse, 0x80, itt, sequence).with(2, [response])
            }
            Self::Async { event, vendor_code, sequence } => {
                base(Opcode::AsyncMessage, 0x80, super::NO_TAG, sequence).with(36, [event, vendor_code])
            }
            Self::Reject { reason, sequence } => base(Opcode::Reject, 0x80, super::NO_TAG, sequence).with(2, [reason]),
            Self::ReadyToTransfer { itt } => base(Opcode::ReadyToTransfer, 0x80, itt, Sequence::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::HEADER_LEN;
    use proptest::prelude::*;

    const CODES: [Opcode; 9] = [
        Opcode::ScsiResponse,
        Opcode::DataIn,
        Opcode::NopIn,
        Opcode::LoginResponse,
        Opcode::TextResponse,
        Opcode::LogoutResponse,
        Opcode::AsyncMessage,
        Opcode::Reject,
        Opcode::ReadyToTransfer,
    ];

    proptest! {
        #[test]
        fn what_is_made_is_parsed(
            code in prop::sample::select(&CODES[..]),
            bytes in prop::collection::vec(any::<u8>(), HEADER_LEN),
        ) {
            let mut header = Header::new(code);
            header.0[1..].copy_from_slice(&bytes[1..]);
            let response = Response::parse(&header).unwrap();
            prop_assert_eq!(Response::parse(&response.header()), Ok(response));
        }

        #[test]
        fn any_header_is_a_response_or_a_violation(bytes in prop::collection::vec(any::<u8>(), HEADER_LEN)) {
            let mut header = Header([0; HEADER_LEN]);
            header.0.copy_from_slice(&bytes);
            let _ = Response::parse(&header);
        }
    }
}
