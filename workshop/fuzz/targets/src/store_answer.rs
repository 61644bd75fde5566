//! Answers of an object store during an upload: what is taken from any answer is within its limits, and a list of parts is read
//! as it was written.

use cheetah_source::offline::{ListedPart, PART_NUMBER_MAX, PartsPage, Refusal, TEXT_BYTES_MAX, escaped, upload_id};

/// A code and a message have 256 characters each.
const REFUSAL_BYTES_MAX: usize = 3 * 4 * 256;

/// Runs one input. An odd first byte makes it the fields of a valid list.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    if choice % 2 == 1 {
        return listed(data);
    }
    let text = String::from_utf8_lossy(data);
    // The beginnings of elements, so that the rest is parsed; the second line has each element within another one.
    let around = |name: &str| format!("<{name}>{text}</{name}>");
    for text in [
        text.to_string(),
        ["Part", "UploadId", "Code", "Message", "IsTruncated", "NextPartNumberMarker"].map(around).concat(),
    ] {
        check(&text);
    }
}

fn check(text: &str) {
    if let Ok(page) = PartsPage::parse(text) {
        assert!(page.parts.len() <= PART_NUMBER_MAX as usize);
        assert!(
            page.parts
                .iter()
                .map(|part| part.number)
                .chain(page.next)
                .all(|number| (1..=PART_NUMBER_MAX).contains(&number))
        );
        let mut texts = page.parts.iter().flat_map(|part| [&part.etag, &part.sha256]).flatten();
        assert!(texts.all(|text| text.len() <= TEXT_BYTES_MAX));
    }
    assert!(upload_id(text).is_none_or(|id| (1..=TEXT_BYTES_MAX).contains(&id.len())));
    if let Some(refusal) = Refusal::parse(text) {
        let shown = refusal.to_string();
        assert!(shown.len() <= REFUSAL_BYTES_MAX && !shown.contains(char::is_control));
        let _ = refusal.is_passing();
    }
}

/// A list with these fields, nine bytes for each part, and an ETag of the text behind them.
fn listed(data: &[u8]) {
    let (fields, text) = data.split_at(data.len() / 2);
    let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX / 3)]);
    let parts = fields.chunks_exact(9).map(|field| ListedPart {
        number: u32::from(u16::from_le_bytes([field[0], field[1]])) % PART_NUMBER_MAX + 1,
        bytes: u64::from_le_bytes(field[1..].try_into().unwrap()),
        etag: (field[2] % 2 == 0).then(|| text.to_string()),
        sha256: (field[3] % 2 == 0).then(|| text.chars().rev().collect()),
    });
    let parts: Vec<_> = parts.take(PART_NUMBER_MAX as usize).collect();
    let named = |name: &str, text: &Option<String>| {
        text.as_ref().map_or_else(String::new, |text| format!("<{name}>{}</{name}>", escaped(text)))
    };
    let written = parts.iter().map(|part| {
        let (etag, sha256) = (named("ETag", &part.etag), named("ChecksumSHA256", &part.sha256));
        format!("<Part><PartNumber>{}</PartNumber>{etag}<Size>{}</Size>{sha256}</Part>", part.number, part.bytes)
    });
    let text = format!("<R>{}</R>", written.collect::<String>());
    assert_eq!(PartsPage::parse(&text), Ok(PartsPage { parts, next: None }));
    check(&text);
}
