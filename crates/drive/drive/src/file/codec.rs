//! A drive file as text: canonical TOML under a seal.
//!
//! The seal covers the canonical form, not the text: a file with converted line ends still opens; a file with any other
//! change does not.

use std::path::Path;

use toml::{Table, Value};

use super::check::Contradiction;
use super::{DriveFile, VERSION};
use cheetah_error::{Error, Result, next};

/// The maximum size of a drive file, in bytes: far more than 256 sets and 1024 nodes take.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// The maximum number of characters that separate or open a value: those of 1024 nodes are a tenth of it. A parser of TOML keeps
/// some hundred bytes for each.
const MARKS_MAX: usize = 1 << 17;

const HEADER: &str = "# A Cheetah drive. Do not edit: the seal would no longer match, and the drive would not open.\n";

/// Why a text is not read as a drive file: a clause without the path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NotRead {
    /// It has more entries than the format allows.
    #[error("not a drive file (it has more entries than a drive file can have)")]
    TooManyEntries,
    /// It is no TOML; what the parser says.
    #[error("not a drive file, or cut off ({0})")]
    NotToml(String),
    /// It has no version.
    #[error("not a Cheetah drive file")]
    Foreign,
    /// Its version is older than the one that is read.
    #[error("written by an older Cheetah")]
    Older,
    /// Its version is newer than the one that is read.
    #[error("written by a newer Cheetah")]
    Newer,
    /// It has no seal.
    #[error("the seal is missing, so it is cut off or no drive file")]
    NoSeal,
    /// It has entries of other names or types; what the parser says.
    #[error("it was edited or is no drive file ({0})")]
    OtherEntries(String),
    /// Its seal is that of another content.
    #[error("the seal does not match, so it was edited or cut off since it was written")]
    OtherSeal,
    /// Its content contradicts itself.
    #[error("{0}")]
    Contradiction(#[from] Contradiction),
}

/// Encodes a drive file as text.
pub fn encode(file: &DriveFile) -> Result<String> {
    let body = canonical(file)?;
    Ok(format!("{HEADER}seal = \"{}\"\n{body}", seal(&body)))
}

/// Decodes and checks the text of the drive file at `path`.
pub fn decode(text: &str, path: &Path) -> Result<DriveFile> {
    let refuse = |why: NotRead| {
        let path = path.display();
        Error::failed(format!("{path}: {why}; use an untouched copy of the file, or create a new drive")).because(why)
    };
    let said = |error: &toml::de::Error| error.message().replace('\n', " ");
    if text.lines().map(marks).sum::<usize>() > MARKS_MAX {
        return Err(refuse(NotRead::TooManyEntries));
    }
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| refuse(NotRead::NotToml(said(&error))))?;
    check_version(&table, path)?;
    let Some(Value::String(sealed)) = table.remove("seal") else {
        return Err(refuse(NotRead::NoSeal));
    };
    let mut file: DriveFile =
        Value::Table(table).try_into().map_err(|error: toml::de::Error| refuse(NotRead::OtherEntries(said(&error))))?;
    if seal(&canonical(&file)?) != sealed {
        return Err(refuse(NotRead::OtherSeal));
    }
    file.check().map_err(|why| refuse(why.into()))?;
    file.path = path.to_owned();
    Ok(file)
}

/// The number of characters of a line that separate or open a value. A list of pages is one string.
fn marks(line: &str) -> usize {
    let is_list =
        line.strip_prefix("bad = \"").and_then(|rest| rest.strip_suffix('"')).is_some_and(|list| !list.contains('"'));
    if is_list { 1 } else { 1 + line.bytes().filter(|byte| b"[]{}=,".contains(byte)).count() }
}

/// Checks the version before anything else, to distinguish a newer file from a damaged one.
fn check_version(table: &Table, path: &Path) -> Result<()> {
    let path = path.display();
    let of_version = |why: NotRead, version: i64, advice: &str| {
        let sentence = format!("{path}: {why} (format {version}; this one reads {VERSION}); {advice}");
        Error::failed(sentence).because(why)
    };
    match table.get("version").and_then(Value::as_integer) {
        Some(version) if version == i64::from(VERSION) => Ok(()),
        Some(version) if version > i64::from(VERSION) => {
            Err(of_version(NotRead::Newer, version, "use that version or later"))
        }
        Some(version) if version > 0 => Err(of_version(
            NotRead::Older,
            version,
            "use that version, or save the image with it and load it into a new drive",
        )),
        _ => Err(Error::failed(format!("{path}: {}", NotRead::Foreign))
            .next(next::Drive::NameDriveFile)
            .because(NotRead::Foreign)),
    }
}

fn canonical(file: &DriveFile) -> Result<String> {
    toml::to_string(file).map_err(|error| Error::failed(format!("{}: cannot be written as TOML: {error}", file.name)))
}

fn seal(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::{example, redundant};
    use crate::file::{Fill, ImageState, LayoutName, NodeSync, SealSection, Set, WrappedKey};
    use cheetah_image::{Hashes, ServedBy};
    use proptest::prelude::*;

    const PATH: &str = "dir/case42.drive";

    fn fill(size: u64) -> Fill {
        Fill {
            kind: "nbd".into(),
            location: "nbd://10.0.0.7/sda".into(),
            size,
            sector_size: Some(512),
            model: Some("ACME Disk".into()),
            serial: None,
            modified_ns: None,
            hashes: "md5,sha256".into(),
            claimed: Hashes { md5: Some("0".repeat(32)), ..Hashes::default() },
            server: Some(ServedBy { export: "sda".into(), path: Some("/dev/sda".into()), ..ServedBy::default() }),
        }
    }

    /// The example, with its image being filled.
    fn filling() -> DriveFile {
        let mut file = example();
        let image = file.image.as_mut().unwrap();
        (image.state, image.digests) = (ImageState::Filling, None);
        file.fill = Some(fill(image.size));
        file
    }

    fn decode(text: &str) -> Result<DriveFile> {
        super::decode(text, Path::new(PATH))
    }

    /// The example, changed and sealed again, as by a faulty program.
    fn sealed(change: impl FnOnce(&mut DriveFile)) -> String {
        let mut file = example();
        change(&mut file);
        encode(&file).unwrap()
    }

    /// Why a text is not read.
    fn refusal(text: &str) -> NotRead {
        let refused = decode(text).unwrap_err();
        let error = refused.to_string();
        assert!(error.contains(PATH) && !error.contains('\n'), "says where, in one sentence: {error}");
        refused.cause::<NotRead>().unwrap().clone()
    }

    #[test]
    fn a_file_of_many_or_nested_entries_is_refused_before_it_is_parsed() {
        for text in
            ["x=".to_owned() + &"[".repeat(1 << 20), format!("x=[{}]", "1,".repeat(1 << 20)), "a=1\n".repeat(1 << 20)]
        {
            assert_eq!(refusal(&text), NotRead::TooManyEntries);
        }
        let many = (0..1 << 18).map(|page| (page * 2).to_string()).collect::<Vec<_>>().join(",");
        let mut file = redundant();
        file.sets[0].bad = many;
        let error = decode(&encode(&file).unwrap()).err();
        let is_too_many = |error: Error| error.cause() == Some(&NotRead::TooManyEntries);
        assert!(!error.is_some_and(is_too_many), "lost pages are one entry");
    }

    #[test]
    fn a_file_is_decoded_as_it_was_encoded() {
        let text = encode(&example()).unwrap();
        assert_eq!(decode(&text).unwrap(), example());
        assert_eq!(decode(&text.replace('\n', "\r\n")).unwrap(), example());
        assert_eq!(decode(&encode(&filling()).unwrap()).unwrap(), filling());
        assert_eq!(decode(&encode(&redundant()).unwrap()).unwrap(), redundant());
    }

    #[test]
    fn an_edited_file_is_refused() {
        let text = encode(&example()).unwrap();
        assert_eq!(refusal(&text.replace("nbd://a:", "nbd://c:")), NotRead::OtherSeal);
        assert_eq!(refusal(&text.replace("name = \"case42\"", "name = \"case43\"")), NotRead::OtherSeal);
        assert!(matches!(refusal(&format!("{text}\nnote = 1\n")), NotRead::OtherEntries(_)));
        let unsealed: Vec<_> = text.lines().filter(|line| !line.starts_with("seal")).collect();
        assert_eq!(refusal(&unsealed.join("\n")), NotRead::NoSeal);
    }

    #[test]
    fn foreign_and_newer_files_get_different_errors() {
        for text in ["", "[package]\nname = \"x\"\n", "version = \"1\"", "version = -1"] {
            assert_eq!(refusal(text), NotRead::Foreign, "{text}");
        }
        let newer = encode(&example()).unwrap().replace("version = 2", "version = 3\nfuture = true");
        assert_eq!(refusal(&newer), NotRead::Newer);
        let older = encode(&example()).unwrap().replace("version = 2", "version = 1");
        assert_eq!(refusal(&older), NotRead::Older);
    }

    #[test]
    fn inconsistent_content_is_refused_even_under_a_valid_seal() {
        type Change = fn(&mut DriveFile);
        let cases: [(&str, Change); 15] = [
            ("do not add up", |file| file.size = 1),
            ("do not add up", |file| file.size = 5 << 20),
            ("not the sum", |file| file.sets[0].size += 1),
            ("has 0 sets", |file| file.sets.clear()),
            ("has no nodes", |file| file.sets[0] = Set::new(crate::Layout::Linear, vec![])),
            ("take a power of two", |file| file.sets[0].unit = Some(1000)),
            ("a stripe has a unit", |file| file.sets[0].layout = LayoutName::Linear),
            ("is no NBD URI", |file| file.sets[0].nodes[0].nbd = "http://a".into()),
            ("its instance", |file| file.sets[0].nodes[0].instance = Some("xyz".into())),
            ("the drive's id", |file| file.id = "AB".repeat(16)),
            ("beside the drive file", |file| {
                file.image.as_mut().unwrap().digests.as_mut().unwrap().file = "../../etc/passwd".into();
            }),
            ("an unfinished one none", |file| file.image.as_mut().unwrap().state = ImageState::Loading),
            ("an incomplete image has a map", |file| file.image.as_mut().unwrap().state = ImageState::Incomplete),
            ("a source to fill it from", |file| {
                let image = file.image.as_mut().unwrap();
                (image.state, image.digests) = (ImageState::Filling, None);
            }),
            ("its source has 5 bytes", |file| *file = DriveFile { fill: Some(fill(5)), ..filling() }),
        ];
        for (why, change) in cases {
            let text = refusal(&sealed(change)).to_string();
            assert!(text.contains(why), "{why}: {text}");
        }
    }

    #[test]
    fn inconsistent_redundancy_is_refused() {
        type Change = fn(&mut DriveFile);
        let cases: [(&str, Change); 14] = [
            ("has an epoch", |file| file.sets[0].epoch = 0),
            ("has an epoch", |file| {
                *file = example();
                file.sets[0].epoch = 1;
            }),
            ("the set no redundancy", |file| {
                *file = example();
                file.sets[0].nodes[0].state = Some(NodeSync::Syncing);
            }),
            ("1 or 2 parities", |file| file.sets[0].parities = Some(3)),
            ("a number of parities", |file| file.sets[0].parities = None),
            ("a number of copies", |file| file.sets[0].copies = Some(2)),
            ("a stripe has a unit", |file| file.sets[0].unit = None),
            ("its nodes hold", |file| file.sets[0].nodes[2].size -= 1 << 20),
            ("its nodes hold", |file| file.sets[0].size += 1),
            ("and others none", |file| {
                file.sets.push(example().sets[1].clone());
                file.size = file.capacity();
            }),
            ("do not follow each other", |file| file.sets[0].bundle = Some(0)),
            ("do not follow each other", |file| {
                let mut other = file.sets[0].clone();
                other.nodes.iter_mut().for_each(|node| node.size *= 2);
                file.sets.push(Set::new(other.layout(), other.nodes));
                file.sets.iter_mut().for_each(|set| set.bundle = Some(3));
                file.size = file.capacity();
            }),
            ("a node moves that does not exist", |file| {
                let node = file.sets[0].nodes[0].clone();
                file.sets[0].incoming.push(crate::file::IncomingNode { member: 3, node });
            }),
            ("have one address, a:10809", |file| file.sets[0].nodes[2].nbd = "nbd://a:10809/other".into()),
        ];
        for (why, change) in cases {
            let mut file = redundant();
            change(&mut file);
            let text = refusal(&encode(&file).unwrap()).to_string();
            assert!(text.contains(why), "{why}: {text}");
        }
    }

    #[test]
    fn a_seal_is_decoded_as_it_was_encoded_and_an_inconsistent_one_is_refused() {
        let key = WrappedKey { recipient: "age1".into(), age: "AA==".into() };
        let seal = SealSection { suite: 1, unit: 64 << 10, holes: false, epoch: 1, keys: vec![key] };
        let file = DriveFile { size: 1 << 20, sealed: Some(seal), ..redundant() };
        assert_eq!(decode(&encode(&file).unwrap()).unwrap(), file);
        type Change = fn(&mut DriveFile, &mut SealSection);
        let cases: [(&str, Change); 4] = [
            ("its suite 2", |_, seal| seal.suite = 2),
            ("a unit of 8192", |_, seal| seal.unit = 8192),
            ("do not fit", |file, _| file.size = file.capacity()),
            ("wrapped more than", |_, seal| seal.keys = vec![seal.keys[0].clone(); 65]),
        ];
        for (why, change) in cases {
            let (mut file, mut seal) = (file.clone(), file.sealed.clone().unwrap());
            change(&mut file, &mut seal);
            file.sealed = Some(seal);
            let text = refusal(&encode(&file).unwrap()).to_string();
            assert!(text.contains(why), "{why}: {text}");
        }
    }

    #[test]
    fn content_beyond_the_limits_is_refused() {
        let many = |file: &mut DriveFile, count: usize| {
            file.sets[1].nodes = vec![file.sets[1].nodes[0].clone(); count];
            file.sets[1] = Set::new(crate::Layout::Linear, file.sets[1].nodes.clone());
            file.size = file.sets.iter().map(|set| set.size).sum();
        };
        assert!(decode(&sealed(|file| many(file, 1022))).is_ok());
        assert!(matches!(refusal(&sealed(|file| many(file, 1023))), NotRead::Contradiction(_)));
    }

    proptest! {
        #[test]
        fn damage_is_detected_and_never_panics(at in 0usize..2000, byte in any::<u8>(), cut in any::<bool>()) {
            let text = encode(&example()).unwrap();
            let at = at % text.len();
            let mut bytes = text.clone().into_bytes();
            bytes[at] = byte;
            if cut {
                bytes.truncate(at);
            }
            if let Ok(file) = decode(&String::from_utf8_lossy(&bytes)) {
                prop_assert_eq!(file, example(), "only white space and comments may change");
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in "(version = 1\n)?(\\[\\[set\\]\\]\n|\\[image\\]\n|size = [0-9]{1,20}\n|[a-z]{1,8} = .{0,20}\n|.{0,40}){0,8}") {
            prop_assert!(decode(&text).is_err());
        }
    }
}
