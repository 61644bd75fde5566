//! Headers of a read-only initiator's PDUs.

use super::{Header, NO_TAG, Opcode};
use crate::scsi::Cdb;

/// The last PDU of its sequence.
const FINAL: u8 = 0x80;
/// The command reads.
const READ: u8 = 0x40;
/// Task attribute: the target may reorder it.
const SIMPLE: u8 = 0x01;

/// The numbers every request carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The command number.
    pub cmd_sn: u32,
    /// The next expected status number.
    pub exp_stat_sn: u32,
}

impl Numbers {
    fn on(self, header: Header) -> Header {
        header.with(24, self.cmd_sn.to_be_bytes()).with(28, self.exp_stat_sn.to_be_bytes())
    }
}

/// Encodes a logical unit number (SAM-5, 4.7): peripheral device addressing up to 255, flat space addressing beyond.
pub const fn lun(number: u16) -> [u8; 8] {
    let [high, low] = number.to_be_bytes();
    let method = if high == 0 { 0 } else { 0x40 };
    [method | (high & 0x3F), low, 0, 0, 0, 0, 0, 0]
}

/// A SCSI command that returns at most `len` bytes (11.3). The write bit is never set.
pub fn command(itt: u32, lun: [u8; 8], cdb: &Cdb, len: u32, numbers: Numbers) -> Header {
    let flags = FINAL | SIMPLE | if len > 0 { READ } else { 0 };
    let header = Header::new(Opcode::ScsiCommand).with(1, [flags]).with(8, lun);
    let header = header.with(16, itt.to_be_bytes()).with(20, len.to_be_bytes()).with(32, cdb.encode());
    numbers.on(header)
}

/// The reply to a target's ping (11.18), with its tag and LUN.
pub fn pong(lun: [u8; 8], ttt: u32, numbers: Numbers) -> Header {
    nop_out(NO_TAG, lun, ttt, numbers)
}

/// A ping (11.18).
pub fn ping(itt: u32, numbers: Numbers) -> Header {
    nop_out(itt, [0; 8], NO_TAG, numbers)
}

fn nop_out(itt: u32, lun: [u8; 8], ttt: u32, numbers: Numbers) -> Header {
    let header = Header::new(Opcode::NopOut).immediate().with(1, [FINAL]).with(8, lun);
    numbers.on(header.with(16, itt.to_be_bytes()).with(20, ttt.to_be_bytes()))
}

/// A logout request (11.14).
pub fn logout(itt: u32, numbers: Numbers) -> Header {
    numbers.on(Header::new(Opcode::LogoutRequest).immediate().with(1, [FINAL]).with(16, itt.to_be_bytes()))
}

/// A text request (11.10); `ttt` is the tag of the response it continues.
pub fn text(itt: u32, ttt: u32, numbers: Numbers) -> Header {
    let header = Header::new(Opcode::TextRequest).immediate().with(1, [FINAL]);
    numbers.on(header.with(16, itt.to_be_bytes()).with(20, ttt.to_be_bytes()))
}

/// The stages of a login (11.12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Security negotiation.
    Security = 0,
    /// Operational parameters.
    Operational = 1,
    /// Full feature phase.
    FullFeature = 3,
}

impl Stage {
    /// The stage with this number.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Security),
            1 => Some(Self::Operational),
            3 => Some(Self::FullFeature),
            _ => None,
        }
    }
}

/// A login request (11.12) in `stage`, proposing to go on to `next`.
pub fn login(isid: [u8; 6], itt: u32, stage: Stage, next: Option<Stage>, numbers: Numbers) -> Header {
    let transit = next.map_or(0, |next| 0x80 | next as u8);
    let flags = transit | (stage as u8) << 2;
    let header = Header::new(Opcode::LoginRequest).immediate().with(1, [flags]).with(8, isid);
    numbers.on(header.with(16, itt.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_announces_data_to_be_written() {
        let write = 0x20;
        for cdb in Cdb::samples() {
            for len in [0, 1, u32::MAX] {
                assert_eq!(command(1, [0; 8], &cdb, len, Numbers::default()).0[1] & write, 0, "{cdb:?}");
            }
        }
    }

    #[test]
    fn luns_are_written_as_scsi_does() {
        assert_eq!(lun(7), [0, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(lun(256), [0x41, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(lun(crate::LUN_MAX), [0x7F, 0xFF, 0, 0, 0, 0, 0, 0]);
    }
}
