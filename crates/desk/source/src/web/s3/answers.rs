//! What a store answers to the requests of an upload. No I/O.

use std::fmt;

use cheetah_image::clean::clean;

use super::xml::{element, elements};

/// The largest number of a part.
pub const PART_NUMBER_MAX: u32 = 10_000;
/// The maximum length of the name of an upload, and of a part's ETag and checksum. Stores use up to some hundred bytes.
pub const TEXT_BYTES_MAX: usize = 4 << 10;

/// A part that the store lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    /// Counted from 1.
    pub number: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// The store's name of this content. Not every store lists it.
    pub etag: Option<String>,
    /// The checksum, in base64. Not every store lists it.
    pub sha256: Option<String>,
}

/// One page of the list of an upload's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsPage {
    /// Its parts, as the store lists them.
    pub parts: Vec<ListedPart>,
    /// The part after which the next page begins, if there is one.
    pub next: Option<u32>,
}

impl PartsPage {
    /// Parses a page, or says why it is invalid.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let number = |text: &str, name: &str| element(text, name).and_then(|number| number.parse::<u64>().ok());
        let small = |number: u64| u32::try_from(number).ok().filter(|number| (1..=PART_NUMBER_MAX).contains(number));
        let mut parts = Vec::new();
        for part in elements(text, "Part") {
            let (Some(part_number), Some(bytes)) = (number(part, "PartNumber"), number(part, "Size")) else {
                return Err("the store lists a part without number and size");
            };
            let part_number = small(part_number).filter(|_| parts.len() < PART_NUMBER_MAX as usize);
            let number = part_number.ok_or("the store lists a part that an upload cannot have")?;
            let (etag, sha256) = (element(part, "ETag"), element(part, "ChecksumSHA256"));
            if [&etag, &sha256].into_iter().flatten().any(|text| text.len() > TEXT_BYTES_MAX) {
                return Err("the store lists a part with a far too long ETag or checksum");
            }
            parts.push(ListedPart { number, bytes, etag, sha256 });
        }
        let goes_on = element(text, "IsTruncated").as_deref() == Some("true");
        let next = number(text, "NextPartNumberMarker").filter(|_| goes_on);
        Ok(Self { parts, next: next.and_then(small) })
    }
}

/// Returns the name of the upload that the store has begun.
pub fn upload_id(text: &str) -> Option<String> {
    element(text, "UploadId").filter(|id| !id.is_empty() && id.len() <= TEXT_BYTES_MAX)
}

/// Why a store did not do what was requested; printed as text that is safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    code: String,
    message: Option<String>,
}

impl Refusal {
    /// Parses an answer; `None` if it is no refusal.
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self { code: element(text, "Code")?, message: element(text, "Message") })
    }

    /// Whether the request may succeed if it is sent again.
    pub fn is_passing(&self) -> bool {
        ["InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout"].contains(&self.code.as_str())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&clean(&self.code))?;
        match &self.message {
            Some(message) => write!(formatter, ": {}", clean(message)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_parts_and_the_place_of_the_next_page() {
        let part = "<Part><PartNumber>2</PartNumber><Size>5</Size><ETag>&quot;e&quot;</ETag></Part>";
        let page = |rest: &str| PartsPage::parse(&format!("<R xmlns=\"x\">{part}{rest}</R>")).unwrap();
        let listed = ListedPart { number: 2, bytes: 5, etag: Some("\"e\"".into()), sha256: None };
        let marker = "<NextPartNumberMarker>2</NextPartNumberMarker>";
        assert_eq!(page(marker), PartsPage { parts: vec![listed], next: None });
        assert_eq!(page(&format!("{marker}<IsTruncated>true</IsTruncated>")).next, Some(2));
    }

    #[test]
    fn a_part_that_no_upload_has_is_refused() {
        let long = "e".repeat(TEXT_BYTES_MAX + 1);
        for (number, etag) in [("0", ""), ("10001", ""), ("4294967297", ""), ("-1", ""), ("", ""), ("1", &*long)] {
            let part = format!("<PartNumber>{number}</PartNumber><Size>5</Size><ETag>{etag}</ETag>");
            assert!(PartsPage::parse(&format!("<R><Part>{part}</Part></R>")).is_err(), "{number}");
        }
        assert!(PartsPage::parse("<R><Part><PartNumber>1</PartNumber></Part></R>").is_err());
        let part = "<Part><PartNumber>1</PartNumber><Size>5</Size></Part>";
        assert!(PartsPage::parse(&part.repeat(PART_NUMBER_MAX as usize + 1)).is_err());
    }
}
