//! The identity of a source: the facts known before its content is read, for reports and for recognising it again.

use std::fmt;

use cheetah_device::ByteRange;
use serde::{Deserialize, Serialize};

use crate::clean::clean;
use crate::disk::AoeTarget;
use crate::hash::Hashes;
use crate::served::ServedBy;

cheetah_kit::named! {
    /// The kind of a source.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Kind {
        /// A raw image file.
        Raw = "raw",
        /// A block device.
        Block = "block",
        /// A raw image in several files (`.001`, `.002` …).
        Split = "split",
        /// A raw image compressed with gzip.
        Gzip = "gzip",
        /// A raw image compressed with bzip2.
        Bzip2 = "bzip2",
        /// A raw image compressed with xz.
        Xz = "xz",
        /// A raw image compressed with zstd.
        Zstd = "zstd",
        /// Expert Witness Format, version 1.
        E01 = "e01",
        /// Expert Witness Format, version 2.
        Ex01 = "ex01",
        /// Advanced Forensic Format 4.
        Aff4 = "aff4",
        /// An NBD export.
        Nbd = "nbd",
        /// An iSCSI logical unit.
        Iscsi = "iscsi",
        /// A file on a web server.
        Http = "http",
        /// QEMU's copy-on-write image.
        Qcow2 = "qcow2",
        /// VMware's virtual disk.
        Vmdk = "vmdk",
        /// Virtual PC's virtual disk.
        Vhd = "vhd",
        /// Hyper-V's virtual disk.
        Vhdx = "vhdx",
        /// A drive over the memory of nodes.
        Drive = "drive",
        /// An encrypted volume of another source, decrypted.
        Volume = "volume",
    }
}

impl Kind {
    /// Whether it is an image that has checksums of its own, or is compressed: content that is corrupt there is so each time it
    /// is read.
    pub const fn has_checksums(self) -> bool {
        matches!(self, Self::Gzip | Self::Bzip2 | Self::Xz | Self::Zstd | Self::E01 | Self::Ex01 | Self::Aff4)
    }

    /// Whether every read crosses a network, so that reading ahead pays.
    pub const fn is_remote(self) -> bool {
        matches!(self, Self::Nbd | Self::Iscsi | Self::Http | Self::Drive)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The identity of a source: its kind, its location, and its own description. Two openings of the same evidence give
/// equal identities, except for the instance of an agent that was restarted in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Identity {
    /// Its kind.
    pub kind: Kind,
    /// Where it is, as the user gave it.
    pub location: String,
    /// The size of its content, in bytes.
    #[serde(rename = "size_bytes", alias = "size")]
    pub size: u64,
    /// Bytes in a logical sector, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u32>,
    /// Bytes in a sector of the medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_sector_size: Option<u32>,
    /// Maker and model of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The disk's serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Whether the system, or the peer, would refuse writes to it; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_protected: Option<bool>,
    /// The target of ATA over Ethernet that it is read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aoe: Option<AoeTarget>,
    /// Hashes of the whole that the image stores: claims, not computed values.
    #[serde(default, skip_serializing_if = "no_hashes")]
    pub hashes: Hashes,
    /// Ranges the image records as unreadable when it was made: in order, apart, as `[offset, length]` in bytes.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<[u64; 2]>"))]
    #[serde(default, with = "pairs", skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<ByteRange>,
    /// The SHA-256 of a compressed file, if the whole file was read when it was opened. It is not a hash of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressed_sha256: Option<String>,
    /// The case data in the image.
    #[serde(default, skip_serializing_if = "CaseData::is_empty")]
    pub case: CaseData,
    /// The NBD or web server it is read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServedBy>,
    /// How its files are watched for changes while they are read, and how not; `None` for a source at the other end of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<String>,
}

/// A fact that differs between two identities, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The differing property, such as `serial number`.
    pub what: &'static str,
    /// The former value.
    pub then: String,
    /// The present value.
    pub now: String,
    /// Whether the two cannot be the same evidence, even if the examiner says so.
    pub is_final: bool,
}

impl std::error::Error for Difference {}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its {} was {} and is now {}", self.what, self.then, self.now)
    }
}

impl Identity {
    /// Returns every difference between this identity and `now`, a later identity of supposedly the same evidence.
    /// Ignores the instance of an agent, which changes when the agent is restarted, and the write protection.
    pub fn differences(&self, now: &Self) -> Vec<Difference> {
        let text = |text: Option<&String>| text.cloned().unwrap_or_else(|| "unknown".into());
        let bytes = |bytes: Option<u32>| bytes.map_or_else(|| "unknown".into(), |bytes: u32| bytes.to_string());
        let hashes = |hashes: &Hashes| {
            let all: Vec<_> = hashes.iter().map(|(kind, digest)| format!("{} {digest}", kind.name())).collect();
            if all.is_empty() { "none".to_owned() } else { all.join(", ") }
        };
        let target = |identity: &Self| text(identity.aoe.as_ref().map(AoeTarget::to_string).as_ref());
        let server =
            |identity: &Self, of: fn(&ServedBy) -> Option<&String>| text(identity.server.as_ref().and_then(of));
        let served = |what, of: fn(&ServedBy) -> Option<&String>| (what, server(self, of), server(now, of), false);
        // An agent names the disk itself, and a serial number identifies a disk wherever it is attached.
        let is_agent = |identity: &Self| identity.server.as_ref().is_some_and(ServedBy::is_agent);
        let is_known = is_agent(self) && is_agent(now) || self.serial.is_some() && self.serial == now.serial;
        let location = |identity: &Self| if is_known { String::new() } else { identity.location.clone() };
        // Unknown in one that was opened by its index.
        let (then_sha256, now_sha256) = match (&self.compressed_sha256, &now.compressed_sha256) {
            (Some(then), Some(now)) => (then.clone(), now.clone()),
            _ => (String::new(), String::new()),
        };
        let facts = [
            ("size", self.size.to_string(), now.size.to_string(), true),
            ("stored hash", hashes(&self.hashes), hashes(&now.hashes), true),
            ("SHA-256 of the compressed file", then_sha256, now_sha256, true),
            ("kind", self.kind.to_string(), now.kind.to_string(), false),
            ("location", location(self), location(now), false),
            ("serial number", text(self.serial.as_ref()), text(now.serial.as_ref()), false),
            ("model", text(self.model.as_ref()), text(now.model.as_ref()), false),
            ("AoE target", target(self), target(now), false),
            ("sector size", bytes(self.sector_size), bytes(now.sector_size), false),
            served("export", |server| Some(&server.export)),
            served("machine", |server| server.host.as_ref()),
            served("path on that machine", |server| server.path.as_ref()),
            served("description", |server| server.description.as_ref()),
        ];
        let differ = facts.into_iter().filter(|(_, then, now, _)| then != now);
        differ.map(|(what, then, now, is_final)| Difference { what, then, now, is_final }).collect()
    }

    /// The instance of the agent that serves it, if one does.
    pub fn instance(&self) -> Option<&String> {
        self.server.as_ref().and_then(|server| server.instance.as_ref())
    }

    /// Returns the identity of a source without further facts.
    pub fn new(kind: Kind, location: impl Into<String>, size: u64) -> Self {
        Self {
            kind,
            location: location.into(),
            size,
            sector_size: None,
            physical_sector_size: None,
            model: None,
            serial: None,
            write_protected: None,
            aoe: None,
            hashes: Hashes::default(),
            unreadable: Vec::new(),
            compressed_sha256: None,
            case: CaseData::default(),
            server: None,
            watched: None,
        }
    }
}

impl Identity {
    /// Returns the identity in a form that is safe to show and store, since its fields come from an image, a peer or a
    /// disk: without control characters, which could forge lines of a report or control a terminal, and with at most
    /// 256 characters per field. Drops hashes that are not hexadecimal digits. Keeps the location, which the user
    /// wrote.
    #[must_use]
    pub fn cleaned(self) -> Self {
        let field = |text: Option<String>| text.map(|text| clean(&text)).filter(|text| !text.is_empty());
        let hex = |text: Option<String>| text.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Hashes { md5, sha1, sha256, blake3 } = self.hashes;
        Self {
            model: field(self.model),
            serial: field(self.serial),
            hashes: Hashes { md5: hex(md5), sha1: hex(sha1), sha256: hex(sha256), blake3: hex(blake3) },
            case: self.case.cleaned(),
            watched: field(self.watched),
            ..self
        }
    }
}

fn no_hashes(hashes: &Hashes) -> bool {
    *hashes == Hashes::default()
}

/// The case data that an image stores, in the words of its maker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CaseData {
    /// The case's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case_number: Option<String>,
    /// The number of this piece of evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence_number: Option<String>,
    /// The examiner who made the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub examiner: Option<String>,
    /// The description of the evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

impl CaseData {
    /// Returns the data as a reader of an image gets it: see [`Identity::cleaned`].
    #[must_use]
    pub fn cleaned(self) -> Self {
        let field = |text: Option<String>| text.map(|text| clean(&text)).filter(|text| !text.is_empty());
        Self {
            case_number: field(self.case_number),
            evidence_number: field(self.evidence_number),
            examiner: field(self.examiner),
            description: field(self.description),
            notes: field(self.notes),
        }
    }

    /// Returns whether every field is absent.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Ranges as pairs of numbers.
mod pairs {
    use cheetah_device::ByteRange;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(ranges: &[ByteRange], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ranges.iter().map(|range| (range.offset, range.len)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ByteRange>, D::Error> {
        let pairs = Vec::<(u64, u64)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|(offset, len)| ByteRange::new(offset, len)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_serialisation() {
        let mut identity = Identity::new(Kind::Aff4, "a.aff4", 1 << 40);
        let bare = serde_json::to_value(&identity).unwrap();
        assert_eq!(bare, serde_json::json!({ "kind": "aff4", "location": "a.aff4", "size_bytes": 1u64 << 40 }));
        // As earlier versions wrote it, in logs that are signed.
        let earlier = serde_json::json!({ "kind": "aff4", "location": "a.aff4", "size": 1u64 << 40 });
        assert_eq!(serde_json::from_value::<Identity>(earlier).unwrap(), identity);
        identity.unreadable = vec![ByteRange::new(512, 1024)];
        identity.case.examiner = Some("M. Poirot".into());
        identity.hashes.md5 = Some("0".repeat(32));
        let text = serde_json::to_string(&identity).unwrap();
        assert!(text.contains("[[512,1024]]"), "{text}");
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity);
    }

    #[test]
    fn every_difference_is_named_except_the_agents_instance() {
        let server = |host: &str, path: &str, instance: &str| ServedBy {
            host: Some(host.into()),
            path: Some(path.into()),
            instance: Some(instance.into()),
            ..ServedBy::default()
        };
        let then = Identity { server: Some(server("pc", "/dev/sda", "1")), ..Identity::new(Kind::Nbd, "nbd://h", 512) };
        let again = Identity { server: Some(server("pc", "/dev/sda", "2")), ..then.clone() };
        assert_eq!(then.differences(&again), []);
        let other = Identity { serial: Some("S1".into()), server: Some(server("pc", "/dev/sdb", "2")), ..then.clone() };
        let described: Vec<_> = then.differences(&other).iter().map(Difference::to_string).collect();
        let expected = [
            "its serial number was unknown and is now S1",
            "its path on that machine was /dev/sda and is now /dev/sdb",
        ];
        assert_eq!(described, expected);
        assert!(then.differences(&Identity { size: 1024, ..then.clone() })[0].is_final);
    }

    #[test]
    fn foreign_text_cannot_forge_lines_or_control_a_terminal() {
        let mut identity = Identity::new(Kind::Nbd, "agent", 512);
        identity.serial = Some("S1\nread back         as acquired\u{1b}]0;owned\u{7}\u{202e}".into());
        identity.case.notes = Some("x".repeat(10_000));
        identity.model = Some("\r\n".into());
        identity.hashes.md5 = Some("\n".into());
        let clean = identity.cleaned();
        assert_eq!(clean.serial.as_deref(), Some("S1read back         as acquired]0;owned"));
        assert_eq!(clean.case.notes.as_ref().map(String::len), Some(256));
        assert_eq!((clean.model.as_ref(), clean.hashes.md5.as_ref()), (None, None));
        assert_eq!(clean.clone().cleaned(), clean);
    }
}
