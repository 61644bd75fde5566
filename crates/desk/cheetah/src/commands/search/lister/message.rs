//! What the lister says: a value of JSON in each line. It has read hostile data, so nothing of it is trusted.

use cheetah_source::search::atoms::AtomPlaces;
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
    /// Rules that are tried on the files, which are not listed then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<&'a TryRules<'a>>,
    /// The size of a sector in bytes, if it is known.
    pub sector_size: Option<u32>,
    /// The size of the source in bytes.
    pub size: u64,
    /// What keys opened.
    pub unlocked: &'a Unlocked,
}

/// Rules that are to be divided.
#[derive(Debug, Serialize)]
pub struct SplitRules<'a> {
    /// The name and the text of each file.
    pub split: &'a [(String, String)],
}

/// Rules that are to be tried on files.
#[derive(Debug, Serialize)]
pub struct TryRules<'a> {
    /// The name and the text of each file.
    pub files: &'a [(String, String)],
    /// Where their atoms are; `None` if these were not searched for, and every file is read.
    pub searched: Option<&'a AtomPlaces>,
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
    /// Why rules do not compile.
    Refused(String),
    /// Whether the case of letters in atoms is ignored.
    IgnoreCase(bool),
    /// Atoms of rules, as words in windows-1252.
    Atoms(Vec<String>),
    /// Rules without atoms: the name of the file, that of the rule, if it is not all of the file, and why.
    Central(Vec<(String, Option<String>, String)>),
    /// Rules: the name of the file, and their own.
    Names(Vec<(String, String)>),
    /// A match of a rule.
    Match(Box<MatchFound>),
    /// A file on which rules were not tried, or not to its end.
    Untried(UntriedFound),
    /// What became of files since this was said the last time.
    Tried(TriedFound),
}

/// A match of a rule in a file.
#[derive(Debug, Deserialize)]
pub struct MatchFound {
    /// The name of the rule.
    pub rule: String,
    /// The name of its file.
    pub file: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The identifier of the string that matches; none if the condition holds without one.
    pub string: Option<String>,
    /// The offset in the file.
    pub file_offset: Option<u64>,
    /// The offset in the source, if the content lies there as it is read.
    pub offset: Option<u64>,
    /// The length in bytes.
    pub len: u64,
    /// The first bytes, in hexadecimal digits.
    pub content: String,
    /// Whether it is UTF-16.
    pub wide: bool,
    /// The number of the volume.
    pub volume: u32,
    /// The path in the volume.
    pub path: String,
    /// Whether the file is deleted.
    pub deleted: bool,
}

/// A file on which rules were not tried, or not to its end.
#[derive(Debug, Clone, Deserialize)]
pub struct UntriedFound {
    /// The number of the volume.
    pub volume: u32,
    /// The path in the volume.
    pub path: String,
    /// Why.
    pub why: String,
}

/// What became of files.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct TriedFound {
    /// Files on which rules were tried.
    pub tried: u64,
    /// Files in which no atom of the rules is.
    pub without_atoms: u64,
    /// Deleted files whose content is another file's now, and files that name no content.
    pub skipped: u64,
    /// Files that are so large that rules were tried on pieces of them.
    pub in_pieces: u64,
    /// How often a rule has more matches in a file than are listed.
    pub cut: u64,
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
            r#"{"refused":"a.yar: these YARA rules do not compile"}"#,
            r#"{"ignore_case":false}"#,
            r#"{"atoms":["This program","\u0081\u00ff"]}"#,
            r#"{"central":[["a.yar","Large","condition"],["b.yar",null,"not-parsed"]]}"#,
            r#"{"names":[["a.yar","Dropper"]]}"#,
            r#"{"match":{"rule":"Dropper","file":"a.yar","tags":["pe"],"string":"$mz","file_offset":0,"offset":512,"len":2,"content":"4d5a","wide":false,"volume":0,"path":"/a","deleted":false}}"#,
            r#"{"match":{"rule":"Large","file":"a.yar","tags":[],"string":null,"file_offset":null,"offset":null,"len":0,"content":"","wide":false,"volume":0,"path":"/a","deleted":true}}"#,
            r#"{"untried":{"volume":0,"path":"/a","why":"the disk has a bad sector"}}"#,
            r#"{"tried":{"tried":2,"without_atoms":9,"skipped":1,"in_pieces":0,"cut":0}}"#,
        ];
        for message in messages {
            serde_json::from_str::<Message>(message).unwrap_or_else(|error| panic!("{message}: {error}"));
        }
    }
}
