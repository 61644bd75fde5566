//! Records of uploads: reading one does not panic, and what a crash leaves of one reads as its whole lines.

use cheetah_source::offline::Uploads;

/// A record of two uploads, the first of which was begun again.
const WHOLE: &str = r#"{"uploads_to":"s3://lab/case/x.E01"}
{"begun":{"object":"x.E01","id":"a/1","token":"00ff","part_bytes":8388608}}
{"part":{"object":"x.E01","part":{"number":2,"bytes":8388608,"sha256":"YQ==","etag":"\"e\""}}}
{"begun":{"object":"x.E02","id":"b","token":"11ee","part_bytes":8388608}}
{"begun":{"object":"x.E01","id":"c","token":"22dd","part_bytes":8388608}}
{"part":{"object":"x.E02","part":{"number":1,"bytes":17,"sha256":"Yg==","etag":"f"}}}
"#;

/// Runs one input: a record, or, if the first byte is odd, edits of a valid one.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    if choice % 2 == 0 {
        return check(data);
    }
    // An edit: two bytes of offset, and the new byte.
    let mut bytes = WHOLE.as_bytes().to_vec();
    for edit in data.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[at] = edit[2];
    }
    check(&bytes);
    let (whole, end) = read(WHOLE.as_bytes()).unwrap();
    assert_eq!(end, WHOLE.len());
    let cut = data.first().map_or(0, |at| usize::from(*at) * WHOLE.len() / 256);
    let (before, end) = read(&WHOLE.as_bytes()[..cut]).unwrap();
    assert!(end <= cut && (cut - end == 0 || !WHOLE.as_bytes()[end..cut].contains(&b'\n')));
    assert!(before.all().count() <= whole.all().count());
}

fn check(bytes: &[u8]) {
    let Some((uploads, end)) = read(bytes) else { return };
    assert!(end <= bytes.len() && (end == 0 || bytes[end - 1] == b'\n'));
    assert_eq!(read(&bytes[..end]), Some((uploads, end)));
}

/// Returns what a record says, and the length of its whole lines; `None` if it is damaged.
fn read(bytes: &[u8]) -> Option<(Uploads, usize)> {
    let (uploads, end) = Uploads::read(bytes, bytes.len() as u64).unwrap().ok()?;
    Some((uploads, usize::try_from(end).unwrap()))
}
