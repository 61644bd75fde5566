//! What keys did to the encrypted volumes of a source, for logs and reports. It has nothing of a key.

use std::fmt;

use cheetah_device::ByteRange;
use cheetah_device::visible::OneLine;
use serde::{Deserialize, Serialize};

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
    /// The number of its partition; none if it is the whole source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Where its content begins in the source, in bytes. Each of its sectors is read where it lies encrypted.
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
    /// The number of its partition; none if it is the whole source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
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

    /// The end of a name for its content, in that of the source: `p2.unlocked`, or `unlocked` for the whole source.
    pub fn suffix(&self) -> String {
        self.partition.map_or("unlocked".to_owned(), |number| format!("p{number}.unlocked"))
    }
}

/// The volume as the subject of a sentence.
fn subject(f: &mut fmt::Formatter<'_>, partition: Option<u32>, format: &str) -> fmt::Result {
    match partition {
        Some(number) => write!(f, "partition {number}, {},", OneLine(format)),
        None => write!(f, "it is {}, and", OneLine(format)),
    }
}

impl fmt::Display for OpenedVolume {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        subject(f, self.partition, &self.format)?;
        write!(f, " was opened with {}", OneLine(&self.protector))
    }
}

impl fmt::Display for LockedVolume {
    /// A sentence without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        subject(f, self.partition, &self.format)?;
        write!(f, " stays locked: {}", OneLine(&self.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_locked_is_a_sentence_and_so_is_that_nothing_was_found() {
        let locked = LockedVolume { partition: Some(2), format: "LUKS".into(), why: "none of\nthe keys".into() };
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
}
