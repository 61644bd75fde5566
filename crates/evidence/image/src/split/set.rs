//! Which files beside an image are parts of it.
//!
//! Files whose names differ from the image's in a counter only make it one of several. Where their order is certain they are
//! the image; otherwise it is refused, and the others are named. A part must never be taken for the whole.

use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cheetah_volume::reach;

use super::name::{Notation, PartName};
use crate::note::ImageNote;
use crate::regular;
use cheetah_error::{Error, Result, list};

/// The maximum number of parts: 100 TiB in parts that fit a CD. Bounds the memory that a hostile folder can take.
const PARTS_MAX: usize = 200_000;

/// The number of files named in an error; the rest are counted.
const NAMED_MAX: usize = 5;

/// What the names of the files beside an image say.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// It is not one of several: what the names leave in doubt.
    Alone(Option<ImageNote>),
    /// It is the first part of these, in order.
    Parts(Vec<PathBuf>),
}

/// Looks for the other parts of the image at `path`.
///
/// # Errors
///
/// `Kind::Misuse` if it is a later part, or may be one of several; `Kind::Evidence` if a part is missing.
pub fn look(path: &Path) -> Result<Found> {
    let mut doubt = None;
    for name in PartName::all_of(path) {
        let siblings = siblings(path, &name)?;
        match judge(path, &name, siblings)? {
            Found::Alone(note) => doubt = doubt.or(note),
            parts @ Found::Parts(_) => return Ok(parts),
        }
    }
    Ok(Found::Alone(doubt))
}

/// The files in the folder of `path` whose names differ from it in the counter only, with their sizes, the image itself
/// among them.
fn siblings(path: &Path, name: &PartName) -> Result<Vec<(PartName, Option<u64>)>> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = folder.read_dir().map_err(|error| Error::io(format_args!("listing {}", folder.display()), &error))?;
    let wider = match name.notation() {
        Notation::Decimal if name.is_at_end() => name.read_as(Notation::Hexadecimal),
        _ => None,
    };
    let (mut plain, mut mixed) = (Vec::new(), Vec::new());
    for entry in entries.flatten() {
        let file = entry.file_name();
        // A link counts by the file that it leads to; opening it as a part fails. A folder is no part.
        let size = || match path.with_file_name(&file).metadata() {
            Ok(metadata) if metadata.is_dir() => None,
            Ok(metadata) => Some(metadata.is_file().then_some(metadata.len())),
            Err(_) => Some(None),
        };
        if let Some(sibling) = name.sibling(&file) {
            plain.extend(size().map(|size| (sibling, size)));
        } else if let Some(sibling) = wider.as_ref().and_then(|name| name.sibling(&file)) {
            mixed.extend(size().map(|size| (sibling, size)));
        }
        if plain.len() + mixed.len() > PARTS_MAX {
            return Err(Error::failed(format!("{}: more than {PARTS_MAX} parts", path.display())));
        }
    }
    // Hexadecimal only if the digits go on with letters: 09 and 0a.
    let read = |(name, size): &(PartName, Option<u64>)| Some((name.read_as(Notation::Hexadecimal)?, *size));
    if name.notation() == Notation::Hexadecimal {
        return Ok(plain);
    }
    let digits: Vec<_> = plain.iter().filter_map(read).collect();
    let known = numbers(&digits);
    if mixed.iter().any(|(letter, _)| letter.number().checked_sub(1).is_some_and(|before| known.contains(&before))) {
        plain = digits;
        plain.extend(mixed);
    }
    Ok(plain)
}

/// Decides what these siblings of the image at `path` make of it.
fn judge(path: &Path, name: &PartName, mut all: Vec<(PartName, Option<u64>)>) -> Result<Found> {
    let is_own = |name: &PartName| Some(name.file_name().as_os_str()) == path.file_name();
    if all.len() < 2 || !all.iter().any(|(name, _)| is_own(name)) {
        let total = name.total().filter(|total| *total > 1);
        let is_part = total.is_some() || name.follows_dot() && name.is_padded() && name.is_first();
        let path = path.display().to_string();
        return Ok(Found::Alone(is_part.then_some(ImageNote::LonePart { path, total })));
    }
    // Names like `2f` are hexadecimal only beside others that are decimal: 09 and 0a.
    if name.notation() == Notation::Hexadecimal {
        let known = numbers(&all);
        if !all.iter().any(|(one, _)| one.is_decimal() && known.contains(&(one.number() + 1))) {
            return Ok(Found::Alone(None));
        }
    }
    if !name.is_at_end() || !is_certain(&all) {
        return loose(path, &all, is_own);
    }
    if matches!(name.notation(), Notation::Lower | Notation::Upper) {
        all.retain(|(other, _)| other.is_as_wide_as(name));
        without_words(&mut all);
        if all.len() < 2 || !all.iter().any(|(name, _)| is_own(name)) {
            return Ok(Found::Alone(None));
        }
    }
    let names = in_order(all.into_iter().map(|(name, _)| name).collect()).map_err(|names| gap(path, &names))?;
    let first = &names[0];
    if !first.is_first() {
        return Err(first_missing(path));
    }
    if !is_own(first) {
        let first = path.with_file_name(first.file_name());
        return Err(Error::misuse(format!(
            "{} is a later part of a split image; give its first part, {}",
            path.display(),
            first.display()
        )));
    }
    let is_padded = names.iter().any(PartName::is_padded);
    if !is_padded && names.get(1).is_some_and(|second| begins(&path.with_file_name(second.file_name()))) {
        let second = names[1].file_name();
        return Err(Error::misuse(format!(
            "{path}: {second} beside it is named like its second part, and begins like an image of its own; if they are parts, \
             join them with cat; to read this file alone, say raw:{path}",
            path = path.display(),
            second = second.display()
        )));
    }
    Ok(Found::Parts(names.iter().map(|name| path.with_file_name(name.file_name())).collect()))
}

/// Whether the counters are those of parts: alone behind a dot, or filled up to a width and from the beginning. `sda1` and
/// `sda2` may as well be two disks.
fn is_certain(all: &[(PartName, Option<u64>)]) -> bool {
    let digits = |name: &PartName| matches!(name.notation(), Notation::Decimal | Notation::Hexadecimal);
    all.iter().any(|(name, _)| match digits(name) {
        true => name.follows_dot() || name.is_padded(),
        false => name.is_first() && (name.follows_dot() || name.is_padded()),
    }) || {
        let known = numbers(all);
        all.iter().any(|(one, _)| one.follows_dot() && !digits(one) && known.contains(&(one.number() + 1)))
    }
}

/// The numbers of all counters, to find neighbours: a folder may have many thousand.
fn numbers(all: &[(PartName, Option<u64>)]) -> HashSet<u64> {
    all.iter().map(|(name, _)| name.number()).collect()
}

/// Removes files whose endings are words (`disk.dd` beside `disk.aa`): no neighbour of theirs is there, and they are larger
/// than a part can be.
fn without_words(all: &mut Vec<(PartName, Option<u64>)>) {
    let first_size = all.iter().min_by_key(|(name, _)| name.number()).and_then(|(_, size)| *size);
    let known = numbers(all);
    let is_alone = |number: u64| {
        !known.contains(&(number + 1)) && !number.checked_sub(1).is_some_and(|before| known.contains(&before))
    };
    all.retain(|(one, size)| one.is_first() || *size <= first_size || !is_alone(one.number()));
}

/// The names by their numbers, as an error if one does not follow the one before.
fn in_order(mut names: Vec<PartName>) -> std::result::Result<Vec<PartName>, Vec<PartName>> {
    names.sort_by_key(PartName::number);
    let is_whole = names.windows(2).all(|pair| pair[0].precedes(&pair[1]));
    if is_whole { Ok(names) } else { Err(names) }
}

fn first_missing(path: &Path) -> Error {
    let path = path.display();
    Error::evidence(format!(
        "{path} is a later part of a split image, and the first part is missing; to read this file alone, say raw:{path}"
    ))
}

/// The refusal of a set whose names do not follow each other.
fn gap(path: &Path, names: &[PartName]) -> Error {
    if !names[0].is_first() {
        return first_missing(path);
    }
    let (mut missing, mut count) = (Vec::new(), 0);
    for pair in names.windows(2).filter(|pair| !pair[0].precedes(&pair[1])) {
        let gap = pair[0].number() + 1..pair[1].number();
        count += gap.end.saturating_sub(gap.start);
        let between = gap.take(NAMED_MAX - missing.len()).filter_map(|number| pair[0].with_number(number));
        missing.extend(between.map(|name| name.file_name().to_string_lossy().into_owned()));
    }
    let path = path.display();
    if missing.is_empty() {
        let shown: Vec<_> = names.iter().take(NAMED_MAX).map(|name| name.file_name().display().to_string()).collect();
        return Error::evidence(format!(
            "{path}: the order of the parts is not certain ({}, {} files in all); join them with cat, or say raw:{path} \
             to read this file alone",
            shown.join(", "),
            names.len()
        ));
    }
    let more = count - missing.len() as u64;
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    Error::evidence(format!(
        "{path}: {}{more} missing; put all parts of the image in one folder, and move files away that are none, or say \
         raw:{path} to read this file alone",
        list(&missing)
    ))
}

/// Decides about names that parts of an image have, and several images as well (`disk1.dd`, `disk2.dd`). A part is not larger
/// than the one before it, and a later part does not begin with a partition table or a file system.
fn loose(path: &Path, all: &[(PartName, Option<u64>)], is_own: impl Fn(&PartName) -> bool) -> Result<Found> {
    let Some((own, size)) = all.iter().find(|(name, _)| is_own(name)) else { return Ok(Found::Alone(None)) };
    let padded = all.iter().any(|(name, _)| name.is_padded() && matches!(name.notation(), Notation::Decimal));
    // A number and an ending (`1.raw`) is a name that anything has. Cheetah's own images have their completeness on record.
    if own.is_number_only() && !padded || crate::side_file::custody_log(path).is_some() {
        return Ok(Found::Alone(None));
    }
    // Letters may be words. Of numbers, those next to it may be missing.
    let is_number = own.notation() == Notation::Decimal;
    let is_near = |other: &PartName| is_number || own.precedes(other) || other.precedes(own);
    let near: Vec<_> = all.iter().filter(|(other, _)| other != own && is_near(other)).collect();
    if near.is_empty() {
        return Ok(Found::Alone(None));
    }
    let later = |name: &PartName, size: u64, than: u64| size <= than && !begins(&path.with_file_name(name.file_name()));
    let fits = |(other, other_size): &&&(PartName, Option<u64>)| match (*size, *other_size) {
        (Some(size), Some(of_other)) if other.number() < own.number() => later(own, size, of_other),
        (Some(size), Some(of_other)) => later(other, of_other, size),
        _ => false,
    };
    let shown = |names: &mut dyn Iterator<Item = &PartName>| -> Vec<String> {
        names.take(NAMED_MAX).map(|name| name.file_name().display().to_string()).collect()
    };
    let (path, fitting): (_, Vec<_>) = (path.display(), near.iter().filter(fits).collect());
    if fitting.is_empty() {
        let beside = shown(&mut near.iter().map(|(name, _)| name));
        return Ok(Found::Alone(Some(ImageNote::ReadAlone { path: path.to_string(), beside })));
    }
    let names = list(&shown(&mut fitting.iter().map(|(name, _)| name)));
    Err(Error::misuse(format!(
        "{path} may be a part of an image, because of {names} beside it; if they are parts, join them with cat; to read \
         this file alone, say raw:{path}"
    )))
}

/// Whether the file at `path` begins like a disk or a volume. One that cannot be read does not.
fn begins(path: &Path) -> bool {
    let read = || {
        let mut start = Vec::new();
        regular::open_file(path)?.take(reach::BEGINS_BYTES).read_to_end(&mut start)?;
        std::io::Result::Ok(reach::begins(&start))
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, usize)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, len) in files {
            std::fs::write(dir.path().join(name), vec![7; *len]).unwrap();
        }
        dir
    }

    /// The names of the parts; the error's code and text.
    fn found(files: &[(&str, usize)], name: &str) -> std::result::Result<Vec<String>, (u8, String)> {
        let dir = folder(files);
        match look(&dir.path().join(name)) {
            Ok(Found::Parts(paths)) => {
                Ok(paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
            }
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err((error.exit_code(), error.to_string())),
        }
    }

    fn equal<'a>(names: &[&'a str]) -> Vec<(&'a str, usize)> {
        names.iter().map(|name| (*name, 9)).collect()
    }

    #[test]
    fn parts_are_known_by_their_counter_and_not_by_a_list_of_endings() {
        let hex: Vec<String> = (0..20).map(|number| format!("d.dd.{number:02x}")).collect();
        let grown: Vec<String> =
            (0..90).map(|n| format!("x{n:02}")).chain((9000..9012).map(|n| format!("x{n}"))).collect();
        let decimals: Vec<String> = (1..=12).map(|number| format!("disk.{number}")).collect();
        let (hex, grown, decimals) =
            [hex, grown, decimals].map(|names| names.leak().iter().map(|name| &**name).collect::<Vec<_>>()).into();
        for names in [
            vec!["d.dd.00", "d.dd.01", "d.dd.02"],
            vec!["d.dd.01", "d.dd.02"],
            vec!["xaa", "xab", "xac"],
            vec!["xyaaa", "xyaab"],
            vec!["x00", "x01"],
            vec!["00", "01"],
            vec!["d.AA", "d.AB"],
            vec!["d.a", "d.b"],
            vec!["d.part01", "d.part02"],
            hex,
            grown,
            decimals,
        ] {
            assert_eq!(found(&equal(&names), names[0]).unwrap(), names, "{names:?}");
            let (code, why) = found(&equal(&names), names[1]).unwrap_err();
            assert!(code == 2 && why.contains(names[0]), "{why}");
            let (code, why) = found(&equal(&names[1..]), names.last().unwrap()).err().unwrap_or((3, "alone".into()));
            assert!(code == 2 || code == 3, "{why}");
        }
    }

    #[test]
    fn a_later_part_with_a_hexadecimal_name_is_known() {
        let names: Vec<String> = (0..11).map(|number| format!("d.dd.{number:02x}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (code, why) = found(&equal(&names), "d.dd.0a").unwrap_err();
        assert!(code == 2 && why.contains("d.dd.00"), "{why}");
        assert_eq!(found(&equal(&["backup2f", "backup1a"]), "backup2f"), Ok(Vec::new()));
    }

    #[test]
    fn a_set_without_a_certain_order_is_refused_and_named() {
        for names in [
            ["d_001.dd", "d_002.dd"],
            ["disk1.raw", "disk2.raw"],
            ["d.1of2", "d.2of2"],
            ["d-1of2.raw", "d-2of2.raw"],
            ["d-1of3.img", "d-3of3.img"],
            ["d.1of4", "d.4of4"],
            ["part1", "part3"],
            ["disk1.raw", "disk4.raw"],
            ["part1", "part2"],
            ["diskA", "diskB"],
            ["d.001.dd", "d.003.dd"],
            ["d.dda", "d.ddb"],
        ] {
            for name in names {
                let (code, why) = found(&equal(&names), name).unwrap_err();
                assert!(code >= 2 && why.contains("raw:"), "{why}");
            }
        }
        let files = equal(&["d.aa", "d.ab", "d.txt", "d.info", "d.log"]);
        assert_eq!(found(&files, "d.aa").unwrap(), ["d.aa", "d.ab"], "words are no parts");
        let ((_, why), name) = (found(&equal(&["xaa", "xab", "xad"]), "xaa").unwrap_err(), "xac");
        assert!(why.contains(name), "{why}");
        assert!(found(&equal(&["d.01", "d.001"]), "d.01").is_err());
    }

    #[test]
    fn a_part_whose_name_says_that_there_are_others_is_read_alone_with_a_note() {
        let dir = folder(&[("d-1of3.img", 9)]);
        let found = look(&dir.path().join("d-1of3.img")).unwrap();
        assert!(matches!(found, Found::Alone(Some(ImageNote::LonePart { total: Some(3), .. }))), "{found:?}");
    }

    #[test]
    fn files_that_begin_like_disks_are_images_of_their_own() {
        let mut disk = vec![0; 4096];
        disk[450] = 0x83;
        disk[458] = 9;
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        for (names, joined) in [(["c.p1.raw", "c.p2.raw"], 0), (["d.1", "d.2"], 2), (["d.01", "d.02"], 0)] {
            let dir = folder(&[]);
            for name in names {
                std::fs::write(dir.path().join(name), &disk).unwrap();
            }
            match look(&dir.path().join(names[0])) {
                Ok(Found::Alone(Some(ImageNote::ReadAlone { beside, .. }))) => {
                    assert!(joined == 0 && beside == ["c.p2.raw"], "{names:?}");
                }
                Ok(Found::Alone(note)) => panic!("{names:?}: {note:?}"),
                Ok(Found::Parts(_)) => assert_eq!(names[0], "d.01"),
                Err(error) => assert!(names[0] == "d.1" && error.exit_code() == joined, "{error}"),
            }
        }
    }

    #[test]
    fn other_images_in_the_folder_are_not_parts() {
        for (files, name) in [
            (&[("disk.dd", 9), ("disk.img", 9), ("disk.log", 9), ("plain", 9)][..], "disk.dd"),
            (&[("sda1.dd", 9), ("sda2.dd", 12)], "sda1.dd"),
            (&[("sda", 9), ("sdb", 12)], "sda"),
            (&[("disk1.raw", 9), ("disk2.raw", 9), ("disk1.raw.custody", 9)], "disk1.raw"),
            (&[("disk1.raw", 9), ("disk7.raw", 12)], "disk1.raw"),
            (&[("1.raw", 9), ("2.raw", 9)], "1.raw"),
            (&[("d.raw", 20), ("d.aa", 10), ("d.ab", 10)], "d.raw"),
            (&[("d.dd", 20), ("d.aa", 10), ("d.ab", 10)], "d.dd"),
            (&[("data", 9), ("date", 9)], "data"),
            (&[("report.2024", 9)], "report.2024"),
            (&[("disk.E01", 9), ("disk.001", 9)], "disk.001"),
        ] {
            assert_eq!(found(files, name), Ok(Vec::new()), "{name}");
        }
    }
}
