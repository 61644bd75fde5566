//! The report beside an acquired image: its file, and the lines of it that are compared with the custody log.

use cheetah_device::visible::OneLine;
use cheetah_image::CaseData;
use cheetah_image::own_file::OwnFile;

/// The report: `x.raw.report.txt`.
pub const REPORT: OwnFile = OwnFile { name: "report", begins: |head| head.starts_with(b"Acquisition report, Cheetah") };

/// Columns of the names of lines. A SHA-256 behind them ends in column 80.
pub const NAME_COLUMNS: usize = 16;

/// The name of the line with the head of a custody log.
pub const LOG_HEAD: &str = "its head";
/// The names of the lines of the case data.
const CASE_NUMBER: &str = "case number";
const EVIDENCE_NUMBER: &str = "evidence number";
const EXAMINER: &str = "examiner";
const DESCRIPTION: &str = "description";
const NOTES: &str = "notes";

/// The lines of the case data, each a name and a value.
pub fn case_lines(case: &CaseData) -> impl Iterator<Item = (&'static str, Option<String>)> {
    let shown = |value: &Option<String>| value.as_ref().map(|value| OneLine(value).to_string());
    [
        (CASE_NUMBER, shown(&case.case_number)),
        (EVIDENCE_NUMBER, shown(&case.evidence_number)),
        (EXAMINER, shown(&case.examiner)),
        (DESCRIPTION, shown(&case.description)),
        (NOTES, shown(&case.notes)),
    ]
    .into_iter()
}

/// The name and the value of a line of a report.
pub fn split(line: &str) -> (&str, &str) {
    let (name, value) = line.split_at_checked(NAME_COLUMNS).unwrap_or((line, ""));
    (name.trim_end(), value.trim())
}
