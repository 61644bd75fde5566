//! The image in a container, and its metadata.

use cheetah_device::ByteRange;
use sha2::{Digest as _, Sha256, Sha512};

use super::facts::Facts;
use super::map::{ENTRIES_MAX, ENTRY_LEN, Map, Target};
use super::volume::Volume;
use crate::hash::{Hashes, hex, is_hex};
use crate::identity::{CaseData, Identity, Kind};
use cheetah_error::{Error, Result, list};

/// The maximum size of `information.turtle`, in bytes. A disk image's has some thousand. The parser takes several times as much.
const TURTLE_LEN_MAX: u64 = 4 << 20;

/// The maximum size, in bytes, and number of the names that a map refers to.
const INDEX_LEN_MAX: u64 = 256 << 10;

/// The maximum size of a short text in a container, in bytes.
const TEXT_LEN_MAX: u64 = 4096;

/// The image in a container.
pub(super) struct Image {
    urn: String,
    stream: String,
    pub volume_urn: String,
    pub facts: Facts,
}

impl Image {
    /// Finds the container's only image.
    pub fn find(volume: &Volume) -> Result<Self> {
        let refuse = |why: &str| Error::failed(format!("{}: {why}", volume.path()));
        let Some(turtle) = volume.whole("information.turtle", TURTLE_LEN_MAX)? else {
            return Err(refuse(if volume.find("container.description").is_some() {
                "an AFF4 container without metadata (it has no information.turtle)"
            } else {
                "a ZIP archive, not an AFF4 image; unpack it first, or read its own bytes as raw:PATH"
            }));
        };
        check_version(volume)?;
        let facts = Facts::parse(&turtle)
            .map_err(|why| Error::evidence(format!("{}: information.turtle cannot be read: {why}", volume.path())))?;
        let volume_urn = volume.whole("container.description", TEXT_LEN_MAX)?.unwrap_or_default();
        let volume_urn = String::from_utf8_lossy(&volume_urn).trim_matches(['\0', ' ', '\r', '\n']).to_owned();
        let (urn, stream) = choose(&facts).map_err(|error| error.within(volume.path()))?;
        Ok(Self { urn, stream, volume_urn, facts })
    }

    /// Reads the image's map, and returns it with the names of its streams.
    pub fn map(&self, volume: &Volume) -> Result<(Map, Vec<String>)> {
        let damaged = |why: String| Error::evidence(format!("{}: {why}", volume.path()));
        let size = self.facts.number(&self.stream, "size").filter(|size| *size > 0);
        let size = size.ok_or_else(|| damaged("its metadata has no image size, or a size of 0".into()))?;
        let claimed = self.facts.number(&self.urn, "size").unwrap_or(size);
        if claimed != size {
            return Err(damaged(format!("its metadata has two image sizes, {claimed} and {size} bytes")));
        }
        self.check_stream(volume, &self.stream)?;
        if self.facts.is_a(&self.stream, "ImageStream") {
            return Ok((Map::straight(size), vec![self.stream.clone()]));
        }
        let (entries, names) = (self.segment(volume, "map")?, self.segment(volume, "idx")?);
        let mut names: Vec<_> = String::from_utf8_lossy(&names).lines().map(str::to_owned).collect();
        let gap = self.facts.iri(&self.stream, "mapGapDefaultStream").unwrap_or("http://aff4.org/Schema#Zero");
        // After all others, where no entry refers to it.
        let gap = target(gap, names.len());
        let targets: Vec<_> = names.iter().enumerate().map(|(number, name)| target(name, number)).collect();
        names.extend(self.facts.iri(&self.stream, "mapGapDefaultStream").map(str::to_owned));
        let map = Map::parse(&entries, size, &targets, gap).map_err(|why| damaged(why.to_string()))?;
        Ok((map, names))
    }

    /// Reads a segment of the map, and checks its hash.
    fn segment(&self, volume: &Volume, name: &str) -> Result<Vec<u8>> {
        let (len_max, predicate) = match name {
            "map" => ((ENTRIES_MAX * ENTRY_LEN) as u64, "mapPointHash"),
            _ => (INDEX_LEN_MAX, "mapIdxHash"),
        };
        let paths = folders(&self.stream, &self.volume_urn).into_iter().map(|folder| format!("{folder}/{name}"));
        let path = paths.into_iter().find(|path| volume.find(path).is_some());
        let bytes = path.map(|path| volume.whole(&path, len_max)).transpose()?.flatten();
        let bytes = bytes.ok_or_else(|| {
            Error::evidence(format!("{}: the {name} of its map {} is not in this file", volume.path(), self.stream))
        })?;
        let stored = |datatype| self.facts.typed(&self.stream, predicate, datatype).map(str::to_ascii_lowercase);
        let sha512 = stored("SHA512").is_none_or(|digest| digest == hex(&Sha512::digest(&bytes)));
        let sha256 = stored("SHA256").is_none_or(|digest| digest == hex(&Sha256::digest(&bytes)));
        if !sha512 || !sha256 {
            return Err(Error::evidence(format!(
                "{}: the {name} of its map does not match its hash: the file is damaged",
                volume.path()
            )));
        }
        Ok(bytes)
    }

    /// Refuses an unsupported stream.
    pub fn check_stream(&self, volume: &Volume, urn: &str) -> Result<()> {
        let classes: Vec<_> = self.facts.classes(urn).collect();
        let is = |class| classes.contains(&class);
        let why = if is("EncryptedStream") {
            format!("the image is encrypted (its stream {urn}); decrypt it with the program that made it")
        } else if classes.is_empty() || is("ImageStream") && self.facts.number(urn, "size").is_none() {
            format!(
                "its image stream {urn} is in another AFF4 file: images that span several files are not \
                 supported; join them with the program that made them"
            )
        } else if is("ImageStream") || is("Map") && urn == self.stream {
            return Ok(());
        } else {
            format!("its stream {urn} is of an unsupported kind ({})", classes.join(", "))
        };
        Err(Error::failed(format!("{}: {why}", volume.path())))
    }

    /// The image's identity.
    pub fn identity(&self, location: &str, size: u64, unreadable: Vec<ByteRange>) -> Identity {
        let text = |name| self.facts.text(&self.urn, name);
        let model: Vec<_> = ["diskMake", "diskModel"].into_iter().filter_map(text).collect();
        Identity {
            sector_size: self.facts.number(&self.urn, "blockSize").and_then(|size| size.try_into().ok()),
            model: (!model.is_empty()).then(|| model.join(" ")),
            serial: text("diskSerial").map(str::to_owned),
            hashes: self.hashes(),
            unreadable,
            case: self.case(),
            ..Identity::new(Kind::Aff4, location, size)
        }
        .cleaned()
    }

    /// Whole-image hashes: the image's own, and those of the stream it consists of. (The hashes of a map's streams
    /// cover other bytes, and a map's SHA-256 covers its parts.)
    fn hashes(&self) -> Hashes {
        let of = |datatype: &str, digits| {
            let own = self.facts.typed(&self.urn, "hash", datatype);
            let streams = || self.facts.typed(&self.stream, "hash", datatype);
            let whole = datatype != "SHA256" || self.facts.is_a(&self.stream, "ImageStream");
            let digest = own.or_else(|| whole.then(streams).flatten())?.to_ascii_lowercase();
            is_hex(&digest, digits).then_some(digest)
        };
        Hashes { md5: of("MD5", 32), sha1: of("SHA1", 40), sha256: of("SHA256", 64), blake3: None }
    }

    /// The case data of the subjects that target the image. Notes are sorted by time.
    fn case(&self) -> CaseData {
        let about = |subject: &&str| self.facts.iri(subject, "target") == Some(&self.urn);
        let mut about: Vec<_> = self.facts.subjects().filter(about).collect();
        about.sort_by_key(|subject| self.facts.text(subject, "timestamp"));
        let first = |name| about.iter().find_map(|subject| self.facts.text(subject, name)).map(str::to_owned);
        let notes: Vec<_> = about.iter().filter_map(|subject| self.facts.text(subject, "notes")).collect();
        CaseData {
            case_number: first("caseNumber").or_else(|| first("caseName")),
            evidence_number: first("evidenceNumber"),
            examiner: first("examiner"),
            description: first("caseDescription"),
            notes: (!notes.is_empty()).then(|| notes.join("; ")),
        }
    }
}

fn target(name: &str, number: usize) -> Target {
    Target::symbolic(name).unwrap_or(Target::Stream(number))
}

/// The image and its data stream, if the container has exactly one.
fn choose(facts: &Facts) -> Result<(String, String)> {
    const IMAGES: [&str; 5] = ["Image", "DiskImage", "VolumeImage", "ContiguousImage", "DiscontiguousImage"];
    let mut images = Vec::new();
    let mut files = 0;
    for subject in facts.subjects() {
        if facts.is_a(subject, "FileImage") {
            files += 1;
        } else if IMAGES.iter().any(|class| facts.is_a(subject, class)) {
            let is_stream = facts.is_a(subject, "Map") || facts.is_a(subject, "ImageStream");
            images.extend(
                facts.iri(subject, "dataStream").or(is_stream.then_some(subject)).map(|stream| (subject, stream)),
            );
        }
    }
    match &images[..] {
        [(image, stream)] => Ok(((*image).to_owned(), (*stream).to_owned())),
        [] if files > 0 => Err(Error::failed(format!(
            "an AFF4 container of {files} files (AFF4-L), without a disk; extract them first"
        ))),
        [] => Err(Error::failed("an AFF4 container without the image of a disk")),
        several => {
            let names: Vec<_> = several.iter().take(5).map(|(image, _)| *image).collect();
            Err(Error::failed(format!(
                "an AFF4 container of {} images, but only one per container is supported: {}",
                several.len(),
                list(&names)
            )))
        }
    }
}

/// Accepts Standard v1.0 and v1.1; earlier versions are another format.
fn check_version(volume: &Volume) -> Result<()> {
    let Some(text) = volume.whole("version.txt", TEXT_LEN_MAX)? else {
        return Err(Error::failed(format!(
            "{}: an AFF4 image from before the AFF4 Standard v1.0 (it has no version.txt), which is not supported",
            volume.path()
        )));
    };
    let text = String::from_utf8_lossy(&text);
    let value = |name: &str| {
        let lines = text.split(['\r', '\n']).filter_map(|line| line.split_once('='));
        lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned()).next()
    };
    match (value("major").as_deref(), value("minor").as_deref()) {
        (Some("1"), Some("0" | "1")) => Ok(()),
        (major, minor) => Err(Error::failed(format!(
            "{}: an AFF4 image of version {}.{}; versions 1.0 and 1.1 are read",
            volume.path(),
            major.unwrap_or("?"),
            minor.unwrap_or("?")
        ))),
    }
}

/// Possible names of a stream's segments in the archive (section 5.1, and writers' interpretations of section 5.2).
pub(super) fn folders(urn: &str, volume_urn: &str) -> Vec<String> {
    let inside = urn.strip_prefix(volume_urn).map(|rest| rest.trim_start_matches('/').to_owned());
    let bare = urn.strip_prefix("aff4://").unwrap_or(urn);
    let outside = ["aff4%3A%2F%2F", "aff4%3a%2f%2f", "aff4://"].map(|prefix| format!("{prefix}{bare}"));
    inside.filter(|_| !volume_urn.is_empty()).into_iter().chain(outside).collect()
}
