//! The parsers of an object store's answers and of the record of uploads, for tests and fuzzing.

pub use crate::upload::uploads::Uploads;
pub use crate::web::s3::answers::{ListedPart, PART_NUMBER_MAX, PartsPage, Refusal, TEXT_BYTES_MAX, upload_id};
pub use crate::web::s3::xml::escaped;
