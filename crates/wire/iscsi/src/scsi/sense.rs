//! Sense data: the reason a command failed (SPC-4, 4.5).

use std::fmt;

/// The sense data of a failed command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// The sense key.
    pub key: SenseKey,
    /// Additional sense code and its qualifier.
    pub code: (u8, u8),
    /// The INFORMATION field, if valid: for a medium error, the first unreadable block.
    pub information: Option<u64>,
    /// The error belongs to an earlier command.
    pub deferred: bool,
}

/// Sense keys (SPC-4, table 48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in the standard")]
pub enum SenseKey {
    NoSense,
    RecoveredError,
    NotReady,
    MediumError,
    HardwareError,
    IllegalRequest,
    UnitAttention,
    DataProtect,
    BlankCheck,
    AbortedCommand,
    Other(u8),
}

/// The reason a logical unit is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReadyReason {
    /// It becomes ready by itself.
    Transient,
    /// It needs an intervention.
    Lasting,
}

impl SenseKey {
    fn from_bits(bits: u8) -> Self {
        match bits & 0x0F {
            0x0 => Self::NoSense,
            0x1 => Self::RecoveredError,
            0x2 => Self::NotReady,
            0x3 => Self::MediumError,
            0x4 => Self::HardwareError,
            0x5 => Self::IllegalRequest,
            0x6 => Self::UnitAttention,
            0x7 => Self::DataProtect,
            0x8 => Self::BlankCheck,
            0xB => Self::AbortedCommand,
            other => Self::Other(other),
        }
    }
}

impl Sense {
    /// Parses sense data in fixed or descriptor format. `None` if it is neither, or too short.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let format = data.first()? & 0x7F;
        let deferred = format & 1 != 0;
        match format {
            0x70 | 0x71 => {
                let key = SenseKey::from_bits(*data.get(2)?);
                let valid = data[0] & 0x80 != 0;
                let information = data.get(3..).and_then(<[u8]>::first_chunk).filter(|_| valid);
                let information = information.map(|bytes| u32::from_be_bytes(*bytes).into());
                let code = (data.get(12).copied().unwrap_or(0), data.get(13).copied().unwrap_or(0));
                Some(Self { key, code, information, deferred })
            }
            0x72 | 0x73 => {
                let &[_, key, asc, ascq] = data.first_chunk()?;
                let information = data.get(8..).and_then(information_descriptor);
                Some(Self { key: SenseKey::from_bits(key), code: (asc, ascq), information, deferred })
            }
            _ => None,
        }
    }

    /// Whether it reports a change at the target: of size, identity or the list of logical units (SPC-4, annex D).
    pub fn tells_of_change(&self) -> bool {
        self.key == SenseKey::UnitAttention && matches!(self.code, (0x28, _) | (0x2A, 0x09) | (0x3F, 0x03 | 0x0E))
    }

    /// For a unit that is not ready: whether it becomes ready by itself.
    pub fn not_ready_reason(&self) -> Option<NotReadyReason> {
        match (self.key, self.code) {
            // Becoming ready; rebuild, format or self-test in progress; other operations in progress.
            (SenseKey::NotReady, (0x04, 0x01 | 0x04..=0x0A)) => Some(NotReadyReason::Transient),
            (SenseKey::NotReady, _) => Some(NotReadyReason::Lasting),
            _ => None,
        }
    }
}

/// The information descriptor (SPC-4, 4.5.2.2) among others.
fn information_descriptor(mut descriptors: &[u8]) -> Option<u64> {
    while let &[kind, len, ..] = descriptors {
        if kind == 0x00 && len >= 0x0A {
            let valid = descriptors.get(2)? & 0x80 != 0;
            return descriptors.get(4..)?.first_chunk().filter(|_| valid).map(|bytes| u64::from_be_bytes(*bytes));
        }
        descriptors = descriptors.get(2 + usize::from(len)..)?;
    }
    None
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (self.key, self.code) {
            (_, (0x11, _)) => "unrecovered read error",
            (_, (0x21, 0x00)) => "logical block address out of range",
            (_, (0x25, _)) => "there is no such logical unit",
            (_, (0x3A, _)) => "there is no medium",
            (_, (0x30, _)) => "the medium cannot be read by this device",
            (_, (0x04, 0x02)) => "it must be started first",
            (_, (0x27, _)) => "write-protected",
            (SenseKey::NoSense, _) => "no sense",
            (SenseKey::RecoveredError, _) => "recovered error",
            (SenseKey::NotReady, _) => "not ready",
            (SenseKey::MediumError, _) => "medium error",
            (SenseKey::HardwareError, _) => "hardware error",
            (SenseKey::IllegalRequest, _) => "the target does not accept the command",
            (SenseKey::UnitAttention, _) => "unit attention",
            (SenseKey::DataProtect, _) => "the data is protected",
            (SenseKey::BlankCheck, _) => "the medium is blank here",
            (SenseKey::AbortedCommand, _) => "the target aborted the command",
            (SenseKey::Other(_), _) => "an uncommon sense key",
        };
        let key = match self.key {
            SenseKey::Other(bits) => bits,
            SenseKey::AbortedCommand => 0xB,
            SenseKey::BlankCheck => 0x8,
            SenseKey::DataProtect => 0x7,
            SenseKey::UnitAttention => 0x6,
            SenseKey::IllegalRequest => 0x5,
            SenseKey::HardwareError => 0x4,
            SenseKey::MediumError => 0x3,
            SenseKey::NotReady => 0x2,
            SenseKey::RecoveredError => 0x1,
            SenseKey::NoSense => 0x0,
        };
        write!(f, "{text} (sense {key:x}/{:02x}/{:02x})", self.code.0, self.code.1)
    }
}

/// A SCSI status, in words.
pub fn status_text(status: u8) -> String {
    match status {
        super::BUSY => "the target is busy".into(),
        super::TASK_SET_FULL => "the target has too many commands in flight".into(),
        super::RESERVATION_CONFLICT => "another initiator has reserved the logical unit".into(),
        super::CHECK_CONDITION => "the target reports an error without naming it".into(),
        status => format!("the command ended with SCSI status {status:#04x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_formats_say_where() {
        let fixed = [0xF0, 0, 3, 0, 0, 0x12, 0x34, 10, 0, 0, 0, 0, 0x11, 0x01, 0, 0, 0, 0];
        let known = Sense { key: SenseKey::MediumError, code: (0x11, 1), information: Some(0x1234), deferred: false };
        assert_eq!(Sense::parse(&fixed), Some(known));
        let other = [0x02, 2, 0, 0];
        let information = [0x00, 0x0A, 0x80, 0, 0, 0, 0, 1, 0, 0, 0x12, 0x34];
        let head = [0x72, 3, 0x11, 1, 0, 0, 0, 16];
        let descriptors = [&head[..], &other, &information].concat();
        let known = Sense { information: Some(0x1_0000_1234), ..known };
        assert_eq!(Sense::parse(&descriptors), Some(known));
        let mut invalid = fixed;
        invalid[0] = 0x70;
        assert_eq!(Sense::parse(&invalid).unwrap().information, None);
        assert_eq!(known.to_string(), "unrecovered read error (sense 3/11/01)");
    }

    proptest! {
        #[test]
        fn anything_is_parsed_or_not(data in prop::collection::vec(any::<u8>(), 0..40), format in 0x70u8..0x74) {
            let _ = Sense::parse(&data).map(|sense| sense.to_string());
            let mut data = data;
            if let Some(byte) = data.first_mut() {
                *byte = format | (*byte & 0x80);
            }
            let _ = Sense::parse(&data).map(|sense| sense.to_string());
        }
    }
}
