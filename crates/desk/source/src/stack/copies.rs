//! Shadow copies of the NTFS volumes in a source: those that are asked for, and those that were found.

use cheetah_volume::vss::ShadowCopy;
use serde::Serialize;

/// The name by which all shadow copies are asked for.
const ALL: &str = "all";

/// The shadow copies that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ShadowCopies {
    /// None are: those of volumes that are looked at anyway are listed.
    #[default]
    Unasked,
    /// A list of all of them.
    Listed,
    /// A list, and those with these names as volumes.
    Named(Vec<String>),
    /// All of them as volumes.
    All,
}

impl ShadowCopies {
    /// Asks for those with these names, or for all if one is `all`; for none without a name.
    pub fn named(names: Vec<String>) -> Self {
        if names.iter().any(|name| name == ALL) {
            return Self::All;
        }
        if names.is_empty() { Self::Unasked } else { Self::Named(names) }
    }

    /// Asks for the volume with this name, too, if it is that of a shadow copy.
    pub(crate) fn and(self, volume: &str) -> Self {
        match (is_name(volume), self) {
            (false, asked) => asked,
            (true, Self::All) => Self::All,
            (true, Self::Named(names)) => Self::Named([names, vec![volume.to_owned()]].concat()),
            (true, Self::Unasked | Self::Listed) => Self::Named(vec![volume.to_owned()]),
        }
    }

    /// Whether a list of them is asked for.
    pub(crate) fn are_asked_for(&self) -> bool {
        *self != Self::Unasked
    }

    /// Whether the one with this name is to be shown.
    pub(super) fn include(&self, name: &str) -> bool {
        match self {
            Self::Unasked | Self::Listed => false,
            Self::Named(names) => names.iter().any(|one| one == name),
            Self::All => true,
        }
    }

    /// The names that were asked for.
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Self::Named(names) => names,
            Self::Unasked | Self::Listed | Self::All => &[],
        }
    }
}

/// A shadow copy that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCopy {
    /// Its name as a volume: `p2.vss1`.
    pub name: String,
    /// What its volume says of it.
    pub copy: ShadowCopy,
    /// Whether it is shown as a volume.
    pub is_shown: bool,
}

/// A shadow copy, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct DescribedCopy<'a> {
    /// The end of its name as a file of a mount.
    label: &'a str,
    description: String,
    /// When it was made; missing if that is no time.
    #[serde(skip_serializing_if = "String::is_empty")]
    created: String,
    /// Its identifier, as Windows shows it; missing if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    store_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    machine: &'a str,
    size_bytes: u64,
    is_shown: bool,
    /// Why it cannot be opened, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
}

impl ListedCopy {
    pub(super) fn described(&self) -> DescribedCopy<'_> {
        let ShadowCopy { id, store_id, machine, size_bytes, defect, .. } = &self.copy;
        DescribedCopy {
            label: &self.name,
            description: self.copy.description(),
            created: self.copy.created_text(),
            id: id.as_deref(),
            store_id,
            machine,
            size_bytes: *size_bytes,
            is_shown: self.is_shown,
            why_not: defect.as_ref().map(ToString::to_string),
        }
    }
}

/// The name of a shadow copy of the volume with this name; the source as a whole has none.
pub(super) fn name_of(volume: &str, number: u32) -> String {
    match volume {
        "" => format!("vss{number}"),
        volume => format!("{volume}.vss{number}"),
    }
}

/// Whether a volume with this name may be a shadow copy.
fn is_name(volume: &str) -> bool {
    let last = volume.rsplit('.').next().unwrap_or_default();
    last.strip_prefix("vss").is_some_and(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shadow_copies_are_asked_for_and_other_volumes_are_not() {
        let named = |names: &[&str]| ShadowCopies::named(names.iter().map(ToString::to_string).collect());
        assert_eq!(named(&[]), ShadowCopies::Unasked);
        assert_eq!(named(&["vss1", "all"]), ShadowCopies::All);
        assert_eq!(named(&[]).and("vss2"), named(&["vss2"]));
        assert_eq!(named(&["p1.vss1"]).and("p1.unlocked.vss12"), named(&["p1.vss1", "p1.unlocked.vss12"]));
        assert_eq!(ShadowCopies::All.and("vss2"), ShadowCopies::All);
        for other in ["vg-vss1", "md0", "vss", "vss1.unlocked", ""] {
            assert_eq!(named(&[]).and(other), ShadowCopies::Unasked, "{other}");
        }
        assert!(named(&["p1.vss1"]).include("p1.vss1") && !named(&["p1.vss1"]).include("p1.vss2"));
        assert!(ShadowCopies::All.include("vss9") && !ShadowCopies::Listed.include("vss9"));
        assert!(ShadowCopies::Listed.are_asked_for() && !ShadowCopies::Unasked.are_asked_for());
        assert_eq!((name_of("", 1), name_of("p2", 3)), ("vss1".to_owned(), "p2.vss3".to_owned()));
    }
}
