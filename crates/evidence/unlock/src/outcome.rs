//! What keys did to the encrypted volumes of a source, for logs and reports. It has nothing of a key.

use std::fmt;

use cheetah_device::ByteRange;
use cheetah_device::visible::OneLine;
use serde::{Deserialize, Serialize};

use crate::place::name;

/// The encrypted volumes of a source, after each key was tried on each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// The volumes that are open, in the order of the partitions.
    #[serde(default)]
    pub opened: Vec<OpenedVolume>,
    /// The volumes that are not.
    #[serde(default)]
    pub locked: Vec<LockedVolume>,
}

/// A volume that was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenedVolume {
    /// The number of its partition; none if it is no partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// The name of the volume that it is, or whose partition, if that was found in the source: `vg-home`, `md0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inside: String,
    /// Where its content begins in the source, or behind its end if it was found in a volume that is read there, in bytes. Each of its
    /// sectors is read where it lies encrypted.
    pub offset: u64,
    /// Bytes of its content.
    pub size_bytes: u64,
    /// Its format and identifiers, as they are named while it is locked.
    pub format: String,
    /// What opened it: the kind of protector and its identifier, and nothing of the key.
    pub protector: String,
}

/// A volume that stays locked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockedVolume {
    /// The number of its partition; none if it is no partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// The name of the volume that it is, or whose partition, if that was found in the source: `vg-home`, `md0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inside: String,
    /// Its format and identifiers.
    pub format: String,
    /// Why no key opened it.
    pub why: String,
}

impl Outcome {
    /// What the keys did not do, a sentence without its end each: which volumes stay locked, or that there is none.
    pub fn failures(&self) -> Vec<String> {
        match self.opened.is_empty() && self.locked.is_empty() {
            true => vec!["no volume that a key could open was found".to_owned()],
            false => self.locked.iter().map(ToString::to_string).collect(),
        }
    }
}

impl OpenedVolume {
    /// Where its content is read: in the offsets of the source.
    pub fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.size_bytes)
    }

    /// The end of a name for its content, in that of the source: `p2.unlocked`, `vg-home.unlocked`, or `unlocked` for the whole
    /// source.
    pub fn suffix(&self) -> String {
        match name(&self.inside, self.partition).as_str() {
            "" => "unlocked".to_owned(),
            name => format!("{name}.unlocked"),
        }
    }
}

/// The volume as the subject of a sentence.
fn subject(f: &mut fmt::Formatter<'_>, inside: &str, partition: Option<u32>, format: &str) -> fmt::Result {
    let format = OneLine(format);
    match (inside, partition) {
        ("", None) => write!(f, "it is {format}, and"),
        ("", Some(number)) => write!(f, "partition {number}, {format},"),
        (inside, None) => write!(f, "{}, {format},", OneLine(inside)),
        (inside, Some(number)) => write!(f, "partition {number} of {}, {format},", OneLine(inside)),
    }
}

impl fmt::Display for OpenedVolume {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        subject(f, &self.inside, self.partition, &self.format)?;
        write!(f, " was opened with {}", OneLine(&self.protector))
    }
}

impl fmt::Display for LockedVolume {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        subject(f, &self.inside, self.partition, &self.format)?;
        write!(f, " stays locked: {}", OneLine(&self.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_locked_is_a_sentence_and_so_is_that_nothing_was_found() {
        let (format, why) = ("LUKS".into(), "none of\nthe keys".into());
        let locked = LockedVolume { partition: Some(2), format, why, ..LockedVolume::default() };
        let outcome = Outcome { locked: vec![locked], ..Outcome::default() };
        let [failure] = &outcome.failures()[..] else { panic!("{outcome:?}") };
        assert!(
            failure.starts_with("partition 2, LUKS, stays locked: none of") && !failure.contains('\n'),
            "{failure}"
        );
        assert_eq!(Outcome::default().failures(), ["no volume that a key could open was found"]);
        let opened = OpenedVolume { format: "LUKS".into(), protector: "key slot 1".into(), ..OpenedVolume::default() };
        assert_eq!(opened.to_string(), "it is LUKS, and was opened with key slot 1");
        assert_eq!(Outcome { opened: vec![opened], ..Outcome::default() }.failures(), [""; 0]);
    }

    #[test]
    fn a_volume_in_another_is_named_by_that() {
        let of = |inside: &str, partition| OpenedVolume { partition, inside: inside.into(), ..OpenedVolume::default() };
        let names = [("", None), ("", Some(2)), ("vg-home", None), ("md0", Some(1))].map(|(inside, partition)| {
            let volume = OpenedVolume { format: "LUKS".into(), protector: "a key".into(), ..of(inside, partition) };
            (volume.suffix(), volume.to_string())
        });
        let expected = [
            ("unlocked", "it is LUKS, and"),
            ("p2.unlocked", "partition 2, LUKS,"),
            ("vg-home.unlocked", "vg-home, LUKS,"),
            ("md0.p1.unlocked", "partition 1 of md0, LUKS,"),
        ];
        assert_eq!(names, expected.map(|(name, said)| (name.to_owned(), format!("{said} was opened with a key"))));
        let json = serde_json::to_value(of("", Some(2))).unwrap();
        assert!(json.get("inside").is_none(), "{json}");
    }
}
