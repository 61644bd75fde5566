//! Negotiation of session parameters (RFC 7143, section 13): the offers, and the allowed answers.

use std::borrow::Cow;

use bytes::BytesMut;

use super::LoginError;
use crate::options::{LoginKeys, yes_no};
use crate::pdu::{Digests, Violation, text};

/// The longest data segment the target may send in a discovery session, in bytes.
pub const SEGMENT_LEN_MAX: usize = 256 << 10;

/// The rule that determines a key's value.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// The target chooses one of the offered values.
    Choice,
    /// A number between this and the offered one.
    Minimum(u32),
    /// Yes only if both sides say Yes.
    And,
    /// Yes if either side says Yes; the offer is Yes.
    Or,
    /// Each side declares its own value.
    Declared,
}

/// A key, its offered value and its rule.
type Offer = (&'static str, Cow<'static, str>, Rule);

/// The offers for a normal session. Digests are preferred to none, since nothing else between the target's memory
/// and ours reliably detects a flipped bit: TCP's checksum is weak, and network cards and middleboxes recompute it.
fn normal_offers(keys: &LoginKeys) -> Vec<Offer> {
    let number = |value: u32| Cow::Owned(value.to_string());
    vec![
        ("HeaderDigest", "CRC32C,None".into(), Rule::Choice),
        ("DataDigest", "CRC32C,None".into(), Rule::Choice),
        ("MaxRecvDataSegmentLength", number(keys.segment_len_max), Rule::Declared),
        ("MaxBurstLength", number(keys.burst_len_max), Rule::Minimum(512)),
        ("FirstBurstLength", number(keys.first_burst_len_max), Rule::Minimum(512)),
        ("InitialR2T", "Yes".into(), Rule::Or),
        ("ImmediateData", yes_no(keys.immediate_data).into(), Rule::And),
        ("MaxConnections", "1".into(), Rule::Minimum(1)),
        ("MaxOutstandingR2T", "1".into(), Rule::Minimum(1)),
        ("ErrorRecoveryLevel", "0".into(), Rule::Minimum(0)),
        ("DefaultTime2Wait", "0".into(), Rule::Declared),
        ("DefaultTime2Retain", "0".into(), Rule::Minimum(0)),
        ("DataPDUInOrder", "Yes".into(), Rule::Or),
        ("DataSequenceInOrder", "Yes".into(), Rule::Or),
    ]
}

/// The offers for a discovery session.
fn discovery_offers() -> Vec<Offer> {
    vec![
        ("HeaderDigest", "None".into(), Rule::Choice),
        ("DataDigest", "None".into(), Rule::Choice),
        ("MaxRecvDataSegmentLength", SEGMENT_LEN_MAX.to_string().into(), Rule::Declared),
    ]
}

/// One side of the negotiation.
#[derive(Debug)]
pub struct Negotiation {
    offers: Vec<Offer>,
    digests: Digests,
    keys: LoginKeys,
}

impl Negotiation {
    /// Starts the negotiation of a normal session that offers these keys, or of a discovery session.
    pub fn new(keys: Option<&LoginKeys>) -> Self {
        let offers = keys.map_or_else(discovery_offers, normal_offers);
        let segment_len_max = keys.map_or(SEGMENT_LEN_MAX as u32, |keys| keys.segment_len_max);
        Self { offers, digests: Digests::default(), keys: LoginKeys { segment_len_max, ..LoginKeys::UNMENTIONED } }
    }

    /// Appends all offers.
    pub fn offer(&self, out: &mut BytesMut) {
        self.offers.iter().for_each(|(key, value, _)| text::put(out, key, value));
    }

    /// Handles the target's answer or unsolicited declaration; appends the reply, if any, to `out`.
    ///
    /// # Errors
    ///
    /// If the answer is not allowed.
    pub fn take(&mut self, key: &str, value: &str, out: &mut BytesMut) -> Result<(), LoginError> {
        let Some((_, offered, rule)) = self.offers.iter().find(|(offer, ..)| *offer == key) else {
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
            Rule::And => value == "No" || value == offered && value == "Yes",
            Rule::Or => value == "Yes",
            Rule::Declared => number().is_some(),
        };
        if !allowed {
            return Err(Violation::new(format!("it answered {key}={offered} with {}", shown(value))).into());
        }
        match key {
            "HeaderDigest" => self.digests.header = value == "CRC32C",
            "DataDigest" => self.digests.data = value == "CRC32C",
            "MaxBurstLength" => self.keys.burst_len_max = number().unwrap_or(self.keys.burst_len_max),
            "FirstBurstLength" => self.keys.first_burst_len_max = number().unwrap_or(self.keys.first_burst_len_max),
            "ImmediateData" => self.keys.immediate_data = value == "Yes",
            _ => {}
        }
        Ok(())
    }

    /// The negotiated digests; an unmentioned key keeps its default, which is no digest.
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// The negotiated keys; one that the target does not mention keeps its default. The segment's length is what this
    /// side declares.
    pub fn keys(&self) -> LoginKeys {
        self.keys
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
        let (mut negotiation, mut out) = (Negotiation::new(Some(&LoginKeys::default())), BytesMut::new());
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
    fn every_key_is_offered_as_chosen() {
        let keys =
            LoginKeys { segment_len_max: 4096, burst_len_max: 8192, first_burst_len_max: 2048, immediate_data: true };
        let mut out = BytesMut::new();
        let mut negotiation = Negotiation::new(Some(&keys));
        negotiation.offer(&mut out);
        let offers = parse(&out).unwrap();
        for pair in [
            ("MaxRecvDataSegmentLength", "4096"),
            ("MaxBurstLength", "8192"),
            ("FirstBurstLength", "2048"),
            ("ImmediateData", "Yes"),
        ] {
            assert!(offers.contains(&pair), "{pair:?}");
        }
        for (key, value) in [("MaxBurstLength", "1024"), ("ImmediateData", "Yes"), ("FirstBurstLength", "512")] {
            negotiation.take(key, value, &mut BytesMut::new()).unwrap();
        }
        assert_eq!(negotiation.keys(), LoginKeys { burst_len_max: 1024, first_burst_len_max: 512, ..keys });
    }

    #[test]
    fn keys_that_the_target_does_not_mention_have_their_defaults() {
        let keys = Negotiation::new(Some(&LoginKeys::default())).keys();
        assert_eq!((keys.segment_len_max, keys.burst_len_max, keys.immediate_data), (256 << 10, 256 << 10, true));
    }
}
