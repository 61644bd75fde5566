//! What the lister says: a value of JSON in each line. It has read hostile data, so nothing of it is trusted.

use serde::{Deserialize, Serialize};

/// What the lister is told at first.
#[derive(Debug, Serialize)]
pub struct Begin<'a, Stack: Serialize, Unlocked: Serialize> {
    /// The volumes before this number are done.
    pub first: u32,
    /// The volumes that are put together from parts.
    pub logical: &'a Stack,
    /// What no key opened, a sentence each.
    pub locked: &'a [String],
    /// Whether the source is on this machine.
    pub near: bool,
    /// The size of a sector in bytes, if it is known.
    pub sector_size: Option<u32>,
    /// The size of the source in bytes.
    pub size: u64,
    /// What keys opened.
    pub unlocked: &'a Unlocked,
}

/// What the lister says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// It needs the bytes of this offset and length, and waits for them.
    Read(u64, u64),
    /// Why volumes of the source may be missing, a sentence each.
    Problems(Vec<String>),
    /// A volume.
    Volume(VolumeFound),
    /// It begins to list the volume of this number.
    Begin(u32),
    /// A file.
    File(FileFound),
    /// Runs of that file: offset in the file, offset in the source, length.
    Runs(Vec<(u64, u64, u64)>),
    /// A further name of the file with this number, counted from the beginning of the volume.
    Name(u64),
    /// The offset and length of the volume's clusters: it is known which are free.
    Clusters(u64, u64),
    /// Free ranges: offset and length.
    Free(Vec<(u64, u64)>),
    /// The volume is listed.
    Done(VolumeDone),
    /// All volumes are listed.
    End(bool),
}

/// A volume.
#[derive(Debug, Deserialize)]
pub struct VolumeFound {
    /// Its number.
    pub number: u32,
    /// Its offset in the source.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its file system; empty if it is none that is known.
    pub fs: String,
    /// What it is.
    pub description: String,
    /// Why its file system cannot be listed although it has one, a sentence each.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// A file.
#[derive(Debug, Deserialize)]
pub struct FileFound {
    /// Its path in the volume.
    pub path: String,
    /// Whether it is deleted.
    pub deleted: bool,
    /// Whether it is a structure of the file system.
    pub metadata: bool,
    /// Whether it lies in a record of the table of files.
    pub resident: bool,
    /// Whether its runs hold its content as it is read.
    pub mapped: bool,
    /// The number of its first bytes that are its own.
    pub valid: u64,
}

/// How the listing of a volume ended.
#[derive(Debug, Deserialize)]
pub struct VolumeDone {
    /// Its number.
    pub number: u32,
    /// What is missing, a sentence each.
    pub problems: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_of_the_lister_is_understood() {
        let messages = [
            r#"{"read":[512,4096]}"#,
            r#"{"volume":{"number":0,"offset":0,"len":9,"fs":"ntfs","description":"the whole source"}}"#,
            r#"{"volume":{"number":0,"offset":0,"len":9,"fs":"","description":"one","problems":["NTFS, damaged"]}}"#,
            r#"{"problems":["the partition table could not be read"]}"#,
            r#"{"begin":0}"#,
            r#"{"file":{"path":"/a","deleted":false,"metadata":false,"resident":true,"mapped":true,"valid":5}}"#,
            r#"{"runs":[[0,512,5]]}"#,
            r#"{"name":0}"#,
            r#"{"clusters":[0,8]}"#,
            r#"{"free":[[0,4],[5,1]]}"#,
            r#"{"done":{"number":0,"problems":[]}}"#,
            r#"{"end":true}"#,
        ];
        for message in messages {
            serde_json::from_str::<Message>(message).unwrap_or_else(|error| panic!("{message}: {error}"));
        }
    }
}
