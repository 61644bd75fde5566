//! Negotiation of session parameters (RFC 7143, section 13): the offers, and the allowed answers.

use bytes::BytesMut;

use super::LoginError;
use crate::pdu::{Digests, Violation, text};

/// The longest data segment the target may send, in bytes.
pub const SEGMENT_LEN_MAX: usize = 256 << 10;

/// The rule that determines a key's value.
#[derive(Clone, Copy)]
enum Rule {
    /// The target chooses one of the offered values.
    Choice,
    /// A number between this and the offered one.
    Minimum(u32),
    /// Yes only if both sides say Yes; the offer is No.
    And,
    /// Yes if either side says Yes; the offer is Yes.
    Or,
    /// Each side declares its own value.
    Declared,
}

/// Keys, their offers and their rules. Digests are preferred to none, since nothing else between the target's memory
/// and ours reliably detects a flipped bit: TCP's checksum is weak, and network cards and middleboxes recompute it.
const OFFERS: [(&str, &str, Rule); 14] = [
    ("HeaderDigest", "CRC32C,None", Rule::Choice),
    ("DataDigest", "CRC32C,None", Rule::Choice),
    ("MaxRecvDataSegmentLength", "262144", Rule::Declared),
    ("MaxBurstLength", "1048576", Rule::Minimum(512)),
    ("FirstBurstLength", "65536", Rule::Minimum(512)),
    ("InitialR2T", "Yes", Rule::Or),
    ("ImmediateData", "No", Rule::And),
    ("MaxConnections", "1", Rule::Minimum(1)),
    ("MaxOutstandingR2T", "1", Rule::Minimum(1)),
    ("ErrorRecoveryLevel", "0", Rule::Minimum(0)),
    ("DefaultTime2Wait", "0", Rule::Declared),
    ("DefaultTime2Retain", "0", Rule::Minimum(0)),
    ("DataPDUInOrder", "Yes", Rule::Or),
    ("DataSequenceInOrder", "Yes", Rule::Or),
];

/// The offers for a discovery session.
const DISCOVERY: [(&str, &str, Rule); 3] = [
    ("HeaderDigest", "None", Rule::Choice),
    ("DataDigest", "None", Rule::Choice),
    ("MaxRecvDataSegmentLength", "262144", Rule::Declared),
];

/// One side of the negotiation.
#[derive(Debug)]
pub struct Negotiation {
    discovery: bool,
    digests: Digests,
}

impl Negotiation {
    /// Starts a negotiation for a normal or a discovery session.
    pub fn new(discovery: bool) -> Self {
        Self { discovery, digests: Digests::default() }
    }

    fn offers(&self) -> &'static [(&'static str, &'static str, Rule)] {
        if self.discovery { &DISCOVERY } else { &OFFERS }
    }

    /// Appends all offers.
    pub fn offer(&self, out: &mut BytesMut) {
        self.offers().iter().for_each(|(key, value, _)| text::put(out, key, value));
    }

    /// Handles the target's answer or unsolicited declaration; appends the reply, if any, to `out`.
    ///
    /// # Errors
    ///
    /// If the answer is not allowed.
    pub fn take(&mut self, key: &str, value: &str, out: &mut BytesMut) -> Result<(), LoginError> {
        let Some((_, offered, rule)) = self.offers().iter().find(|(offer, ..)| *offer == key) else {
            // TargetAlias and similar keys are declarations.
            let declared = ["TargetAlias", "TargetAddress", "TargetPortalGroupTag", "TargetName"].contains(&key);
            if !declared && !matches!(value, "NotUnderstood" | "Irrelevant" | "Reject") {
                text::put(out, key, "NotUnderstood");
            }
            return Ok(());
        };
        let number = || value.parse::<u32>().ok();
        let allowed = match rule {
            Rule::Choice => offered.split(',').any(|choice| choice == value),
            // Irrelevant to an initiator that never writes and uses one connection.
            _ if matches!(value, "Irrelevant" | "Reject" | "NotUnderstood") => !is_needed(key),
            Rule::Minimum(least) => {
                let most = offered.parse().unwrap_or(u32::MAX);
                number().is_some_and(|number| (*least..=most).contains(&number))
            }
            Rule::And => value == "No",
            Rule::Or => value == "Yes",
            Rule::Declared => number().is_some(),
        };
        if !allowed {
            return Err(Violation::new(format!("it answered {key}={offered} with {}", shown(value))).into());
        }
        match key {
            "HeaderDigest" => self.digests.header = value == "CRC32C",
            "DataDigest" => self.digests.data = value == "CRC32C",
            _ => {}
        }
        Ok(())
    }

    /// The negotiated parameters; an unmentioned key keeps its default, which is no digest.
    pub fn digests(&self) -> Digests {
        self.digests
    }
}

/// Whether reads depend on the key's value.
fn is_needed(key: &str) -> bool {
    matches!(key, "DataPDUInOrder" | "DataSequenceInOrder" | "ErrorRecoveryLevel" | "MaxRecvDataSegmentLength")
}

/// Shortens a target's text and makes it printable.
pub(super) fn shown(text: &str) -> String {
    let cut = text.chars().take(120).map(|c| if c.is_control() { '?' } else { c }).collect::<String>();
    format!("'{cut}'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::text::parse;

    fn answer(key: &str, value: &str) -> (Result<(), LoginError>, Digests, BytesMut) {
        let (mut negotiation, mut out) = (Negotiation::new(false), BytesMut::new());
        (negotiation.take(key, value, &mut out), negotiation.digests(), out)
    }

    #[test]
    fn only_allowed_answers_are_taken() {
        for (key, value) in [
            ("HeaderDigest", "None"),
            ("MaxBurstLength", "65536"),
            ("FirstBurstLength", "Irrelevant"),
            ("DataPDUInOrder", "Yes"),
            ("TargetAlias", "x"),
            ("DefaultTime2Wait", "2"),
        ] {
            let (result, digests, out) = answer(key, value);
            assert!(result.is_ok() && digests == Digests::default() && out.is_empty(), "{key}={value}");
        }
        for (key, value) in [
            ("HeaderDigest", "MD5"),
            ("DataDigest", "Reject"),
            ("MaxBurstLength", "2097152"),
            ("MaxBurstLength", "0"),
            ("ErrorRecoveryLevel", "2"),
            ("DataPDUInOrder", "No"),
            ("DataSequenceInOrder", "Irrelevant"),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
            ("MaxRecvDataSegmentLength", "lots"),
        ] {
            assert!(answer(key, value).0.is_err(), "{key}={value}");
        }
        assert!(answer("DataDigest", "CRC32C").1.data);
        let (_, _, out) = answer("X-com.example.thing", "1");
        assert_eq!(parse(&out).unwrap(), [("X-com.example.thing", "NotUnderstood")]);
    }

    #[test]
    fn what_we_declare_is_what_we_take() {
        let mut out = BytesMut::new();
        Negotiation::new(false).offer(&mut out);
        let declared = ("MaxRecvDataSegmentLength", &*SEGMENT_LEN_MAX.to_string());
        assert!(parse(&out).unwrap().contains(&declared));
    }
}
