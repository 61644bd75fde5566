//! Whether the records beside an image agree with its custody log.
//!
//! Only the log is signed, so only the log says what the image should be. A drive file, a file of digests, a report, a
//! coverage map and the hashes stored in an image are claims: each must agree with the log, and each that the log says was
//! made must be there. Otherwise a person with write access to the
//! folder could alter all of them together.

use std::path::{Path, PathBuf};

use cheetah_device::Size;
use cheetah_drive::{DriveFile, Image, ImageState};
use cheetah_error::Result;
use cheetah_image::{CaseData, HashKind, Hashes};

use crate::CustodyLog;
use crate::acquisition_report::{LOG_HEAD, REPORT, case_lines, split};
use crate::event::Finished;
use crate::report::LogReport;
use crate::{Known, NotedHead, verify_log};

/// The maximum length of a report that is compared. One with all that a report lists is far shorter.
const REPORT_BYTES_MAX: u64 = 4 << 20;

/// The signed record of the image in a drive, and how the files beside it differ from that.
#[derive(Debug, Clone)]
pub struct DriveRecords {
    /// The path of the log, whether or not there is one.
    pub log_path: PathBuf,
    /// The log, checked; `None` if there is none.
    pub log: Option<LogReport>,
    /// The problems, each as a predicate to the name of the drive: those of the log, and disagreements with it.
    pub problems: Vec<String>,
}

impl DriveRecords {
    /// Reads the log beside the drive file and compares the drive file and the report with it. `known` is what is
    /// known of the log.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn read(file: &DriveFile, known: &Known) -> Result<Self> {
        let log_path = CustodyLog::path_for(&file.path);
        let mut log = log_path.symlink_metadata().is_ok().then(|| verify_log(&log_path, known)).transpose()?;
        log.iter_mut().for_each(|log| compare_heads(log, &file.path, None));
        let bad_log =
            log.iter().flat_map(LogReport::problems).map(|problem| format!("has a bad custody log: {problem}"));
        let mut problems: Vec<_> = bad_log.collect();
        if log.as_ref().is_none_or(|log| log.problem.is_none()) {
            problems.extend(drive_file(file, log.as_ref()));
        }
        if log.is_none() {
            let missing = known.ledger.as_ref().and_then(|ledger| ledger.missing(&log_path));
            problems.extend(missing.map(|what| format!("has lost its custody log: {what}")));
        }
        if let Some(finished) = log.as_ref().and_then(LogReport::signed) {
            problems.extend(report(&file.path, finished, log.as_ref().and_then(LogReport::signed_case).as_ref()));
        }
        Ok(Self { log_path, log, problems })
    }

    /// What the log says of the image; `None` if it records none.
    pub fn signed(&self) -> Option<&Finished> {
        self.log.as_ref().and_then(LogReport::signed)
    }

    /// The hashes in the log; empty if it records none.
    pub fn hashes(&self) -> Hashes {
        self.signed().map(|signed| signed.hashes.clone()).unwrap_or_default()
    }
}

impl LogReport {
    /// What the log says of the image beside it: its last `finished` record, unless the drive was destroyed. One that began
    /// after that and was refused has changed nothing; if it did change something, that differs.
    pub fn signed(&self) -> Option<&Finished> {
        let at = self.finished.as_ref().or(self.earlier.as_ref()).filter(|_| !self.destroyed);
        at.map(|at| &at.finished)
    }

    /// The case data of the image beside the log; `None` if the log does not say.
    pub fn signed_case(&self) -> Option<CaseData> {
        self.finished.as_ref()?;
        serde_json::from_value(self.case.clone()?).ok()
    }
}

/// Compares the log with its heads in the report beside the image at `path`, and in the notes of the image's header.
pub fn compare_heads(log: &mut LogReport, path: &Path, notes: Option<&str>) {
    if log.problem.is_some() {
        return;
    }
    if let Some(head) = notes.and_then(NotedHead::in_notes) {
        log.compare_with_head(&head, "the header of the image", None);
    }
    let text = REPORT.read(&report_path(path), REPORT_BYTES_MAX).ok().flatten().unwrap_or_default();
    let mut heads = ReportClaims::of(&String::from_utf8_lossy(&text)).heads;
    // A report of several destinations has the head of the log of each.
    heads.sort_by_key(|head| !log.has(head));
    if let Some(head) = heads.first() {
        log.compare_with_head(head, "the report", None);
    }
}

/// How the case data in the header of an image differ from those in the log.
pub fn stored_case(stored: &CaseData, signed: &CaseData) -> Vec<String> {
    let head = stored.notes.as_deref().and_then(NotedHead::in_notes);
    let notes = match head {
        Some(head) => Some(head.before_notes(signed.notes.as_deref())),
        None => signed.notes.clone(),
    };
    // The header has no line ends, and a reader shows the beginning of a long text.
    let flat = |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let signed = CaseData {
        case_number: signed.case_number.as_deref().map(flat),
        evidence_number: signed.evidence_number.as_deref().map(flat),
        examiner: signed.examiner.as_deref().map(flat),
        description: signed.description.as_deref().map(flat),
        notes: notes.as_deref().map(flat),
    };
    let words = |text: Option<String>| text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let differs = |((name, stored), (_, signed)): ((&str, Option<String>), (_, Option<String>))| {
        (words(stored).unwrap_or_default() != words(signed).unwrap_or_default())
            .then(|| format!("has another {name} in its header than in its custody log"))
    };
    case_lines(&stored.clone().cleaned()).zip(case_lines(&signed.cleaned())).filter_map(differs).collect()
}

/// Whether a drive file records a whole image.
const fn is_whole(image: &Image) -> bool {
    matches!(image.state, ImageState::Intact | ImageState::Modified | ImageState::Incomplete)
}

/// How a drive file differs from the log.
fn drive_file(file: &DriveFile, log: Option<&LogReport>) -> Vec<String> {
    let image = file.image.as_ref().filter(|image| is_whole(image));
    let signed = log.and_then(LogReport::signed);
    match (image, signed) {
        (Some(image), Some(signed)) => image_and_log(file, image, signed),
        (Some(_), None) if log.is_none() => {
            let path = CustodyLog::path_for(&file.path);
            vec![format!(
                "has no custody log: nothing signed says what was loaded into it; put {} back beside the drive file",
                path.display()
            )]
        }
        (Some(_), None) => vec![
            "holds a whole image according to its drive file, but its custody log does not record that one was finished: \
             the end of the log was cut off, or the drive file was altered"
                .into(),
        ],
        (None, Some(signed)) if file.image.is_none() => vec![format!(
            "holds no image according to its drive file, but its custody log records one of {}: the drive file was altered",
            Size(signed.size)
        )],
        (None, _) => Vec::new(),
    }
}

fn image_and_log(file: &DriveFile, image: &Image, signed: &Finished) -> Vec<String> {
    let mut found = Vec::new();
    if signed.drive.as_ref().is_some_and(|id| *id != file.id) {
        found.push("is not the drive that its custody log is of".to_owned());
    }
    if image.size != signed.size {
        let (then, now) = (signed.size, image.size);
        found.push(format!("has {now} bytes of an image in its drive file, and {then} in its custody log"));
    }
    found.extend(hashes(&image.hashes, &signed.hashes, "drive file", HashKind::ALL));
    let digests = image.digests.as_ref().map(|digests| &digests.blake3);
    if signed.digests.is_some() && signed.digests.as_ref() != digests {
        found.push("has other digests in its drive file than in its custody log".into());
    }
    if signed.unreadable_bytes > 0 && image.state == ImageState::Intact {
        let bytes = signed.unreadable_bytes;
        found.push(format!(
            "is whole according to its drive file, but {bytes} bytes of it are unreadable in its custody log"
        ));
    }
    found
}

/// How the hashes of these kinds in a `place` differ from those in the log.
pub fn hashes(
    claimed: &Hashes,
    signed: &Hashes,
    place: &str,
    kinds: impl IntoIterator<Item = HashKind>,
) -> Vec<String> {
    let differs = |kind: HashKind| {
        let name = kind.name();
        match (claimed.get(kind), signed.get(kind)) {
            (Some(claimed), Some(signed)) if !claimed.eq_ignore_ascii_case(signed) => {
                Some(format!("has another {name} in its {place} than in its custody log"))
            }
            (None, Some(_)) => Some(format!("has no {name} in its {place}, but one in its custody log")),
            (Some(_), None) => Some(format!("has a {name} in its {place}, but none in its custody log")),
            _ => None,
        }
    };
    kinds.into_iter().filter_map(differs).collect()
}

/// How the report beside the image at `path` differs from the log, which has these case data.
pub fn report(path: &Path, signed: &Finished, case: Option<&CaseData>) -> Vec<String> {
    if !signed.report {
        return Vec::new();
    }
    let path = report_path(path);
    let bytes = match REPORT.read(&path, REPORT_BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let path = path.display();
            return vec![format!("has lost its report, which its custody log says was written; put {path} back")];
        }
        Err(error) => return vec![format!("has a report that cannot be compared with its custody log: {error}")],
    };
    let text = String::from_utf8_lossy(&bytes);
    let claims = ReportClaims::of(&text);
    let mut found = hashes(&claims.hashes, &signed.hashes, "report", HashKind::ALL);
    if claims.twice {
        found.push("has a report that states a hash twice".into());
    }
    if signed.head_in_report && claims.heads.is_empty() {
        found.push("has no head of its custody log in its report, which had one".into());
    }
    if let Some(case) = case {
        found.extend(claims.case_differs(case));
    }
    if claims.size != Some(signed.size) {
        found.push("has another size in its report than in its custody log".into());
    }
    if claims.unreadable_bytes != Some(signed.unreadable_bytes) {
        found.push("has another number of unreadable bytes in its report than in its custody log".into());
    }
    found
}

/// A sentence for a report of ours whose custody log is gone.
pub fn report_without_log(path: &Path) -> Option<String> {
    let report = report_path(path);
    let bytes = REPORT.read(&report, REPORT_BYTES_MAX).ok()??;
    String::from_utf8_lossy(&bytes).lines().any(|line| line.starts_with("custody log ")).then(|| {
        let report = report.display();
        format!("the report {report} names a custody log, which is missing: nothing signed says what was acquired; put it back")
    })
}

/// The path of the report of the image at `path`.
pub fn report_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".report.txt");
    name.into()
}

/// What a report says of the image.
#[derive(Debug, Default)]
struct ReportClaims {
    size: Option<u64>,
    unreadable_bytes: Option<u64>,
    hashes: Hashes,
    /// Whether a hash is stated twice.
    twice: bool,
    /// The heads of logs.
    heads: Vec<NotedHead>,
    /// The lines of the case data.
    case: Vec<(String, String)>,
}

impl ReportClaims {
    /// Parses the text that `Report` prints: a name and its value on each line.
    fn of(text: &str) -> Self {
        let mut claims = Self::default();
        let is_of_case = |name: &str| case_lines(&CaseData::default()).any(|(known, _)| known == name);
        for (name, value) in text.lines().map(split) {
            match name {
                LOG_HEAD => claims.heads.extend(value.parse().ok()),
                name if is_of_case(name) => claims.case.push((name.to_owned(), value.to_owned())),
                "acquired" => claims.size = value.split_once('(').and_then(|(_, bytes)| first_number(bytes)),
                "unreadable" => claims.unreadable_bytes = Some(0),
                "UNREADABLE" => claims.unreadable_bytes = first_number(value),
                _ => claims.hash(name, value),
            }
        }
        claims
    }

    /// How the case data differ from those in the log.
    fn case_differs(&self, signed: &CaseData) -> Vec<String> {
        let differs = |(name, signed): (&str, Option<String>)| {
            let claimed: Vec<_> = self.case.iter().filter(|(known, _)| known == name).map(|(_, value)| value).collect();
            let expected: Vec<_> = signed.iter().map(|value| value.trim().to_owned()).collect();
            (!claimed.iter().copied().eq(expected.iter()))
                .then(|| format!("has another {name} in its report than in its custody log"))
        };
        case_lines(signed).filter_map(differs).collect()
    }

    fn hash(&mut self, name: &str, value: &str) {
        let Some(kind) = HashKind::of_name(name) else { return };
        let place = match kind {
            HashKind::Md5 => &mut self.hashes.md5,
            HashKind::Sha1 => &mut self.hashes.sha1,
            HashKind::Sha256 => &mut self.hashes.sha256,
            HashKind::Blake3 => &mut self.hashes.blake3,
        };
        self.twice |= place.replace(value.to_owned()).is_some();
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed() -> Finished {
        let hashes = Hashes { md5: Some("0".repeat(32)), ..Hashes::default() };
        Finished { size: 1 << 20, hashes, report: true, ..Finished::default() }
    }

    fn text(digest: &str) -> String {
        format!(
            "Acquisition report, Cheetah 0\n\nacquired        1MiB (1048576 bytes)\nunreadable      nothing\n\n\
             md5             {digest}\n"
        )
    }

    #[test]
    fn a_report_that_is_missing_or_says_otherwise_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("x.raw");
        let found = |content: &str| {
            std::fs::write(report_path(&image), content).unwrap();
            report(&image, &signed(), None).join("; ")
        };
        assert!(report(&image, &signed(), None)[0].contains("lost its report"));
        assert_eq!(found(&text(&"0".repeat(32))), "");
        assert!(found(&text(&"1".repeat(32))).contains("another md5 in its report"));
        assert!(found(&text(&"0".repeat(32)).replace("1048576", "1048577")).contains("another size"));
        assert!(found(&text(&"0".repeat(32)).replace("md5 ", "md4 ")).contains("no md5 in its report"));
        let unreadable =
            text(&"0".repeat(32)).replace("unreadable      nothing", "UNREADABLE      512 bytes in 1 ranges");
        assert!(found(&unreadable).contains("unreadable bytes"));
        assert!(found(&(text(&"0".repeat(32)) + &text(&"0".repeat(32)))).contains("twice"));
    }

    #[test]
    fn case_data_in_a_report_or_a_header_that_differ_from_the_log_are_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("x.raw");
        let case = CaseData {
            case_number: Some("2026/42".into()),
            examiner: Some("A.\tTester".into()),
            notes: Some("n".repeat(300)),
            ..CaseData::default()
        };
        let case_text: String =
            case_lines(&case).filter_map(|(name, value)| Some(format!("{name:<16}{}\n", value?))).collect();
        let lines = text(&"0".repeat(32)).replacen("\n\n", &format!("\n\n{case_text}"), 1);
        let found = |content: &str| {
            std::fs::write(report_path(&image), content).unwrap();
            report(&image, &signed(), Some(&case)).join("; ")
        };
        assert_eq!(found(&lines), "");
        assert!(found(&lines.replace("2026/42", "2026/43")).contains("another case number in its report"));
        assert!(found(&text(&"0".repeat(32))).contains("another examiner in its report"));
        let twice = lines.replacen("\n\n", "\n\ncase number     2026/43\n", 1);
        assert!(found(&twice).contains("another case number in its report"));

        let head = NotedHead { records: 2, sha256: "ab".repeat(32) };
        let mut stored = CaseData { examiner: Some("A. Tester".into()), ..case.clone() };
        assert_eq!(stored_case(&stored.clone().cleaned(), &case), Vec::<String>::new());
        stored.notes = Some(head.before_notes(case.notes.as_deref()));
        assert_eq!(stored_case(&stored.clone().cleaned(), &case), Vec::<String>::new());
        for changed in [
            CaseData { case_number: None, ..stored.clone() },
            CaseData { evidence_number: Some("1".into()), ..stored.clone() },
            CaseData { notes: Some(head.before_notes(Some("other"))), ..stored.clone() },
        ] {
            assert_eq!(stored_case(&changed, &case).len(), 1);
        }
    }
}
