//! The parsers of an object store's answers, of the record of uploads, and of the journal of a search, for tests and fuzzing.

pub use crate::search::journal::offline::{ReadJournal, journal_of, read_journal};
pub use crate::upload::uploads::Uploads;
pub use crate::web::s3::answers::{ListedPart, PART_NUMBER_MAX, PartsPage, Refusal, TEXT_BYTES_MAX, upload_id};
pub use crate::web::s3::xml::escaped;
