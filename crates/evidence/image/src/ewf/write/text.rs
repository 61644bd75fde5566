//! The texts of the sections `header2` and `header`: the description of the image and its case.

use libdeflater::{CompressionLvl, Compressor};
use time::OffsetDateTime;

use super::options::E01Options;
use cheetah_error::{Error, Result};

/// The number of characters that EnCase shows of a tool's version and of a platform.
const SOFTWARE_CHARS_MAX: usize = 11;
const PLATFORM_CHARS_MAX: usize = 23;

/// The text of `header2`, as EnCase 6 and later write it: UTF-16 with a mark of its byte order.
pub fn header2(options: &E01Options) -> Vec<u8> {
    let E01Options { case, acquired_s, system_s, .. } = options;
    let (software, platform) = tool(options);
    let values = [
        free(&case.description),
        free(&case.case_number),
        free(&case.evidence_number),
        free(&case.examiner),
        free(&case.notes),
        free(&options.model),
        free(&options.serial),
        software,
        platform,
        acquired_s.to_string(),
        system_s.to_string(),
        // No password.
        "0".to_owned(),
        String::new(),
    ];
    let text = format!(
        "3\nmain\na\tc\tn\te\tt\tmd\tsn\tav\tov\tm\tu\tp\tdc\n{}\n\n\
         srce\n0\t1\np\tn\tid\tev\ttb\tlo\tpo\tah\tgu\taq\n0\t0\n\t\t\t\t\t-1\t-1\t\t\t\n\n\
         sub\n0\t1\np\tn\tid\tnu\tco\tgu\n0\t0\n\t\t\t\t1\t\n\n",
        values.join("\t")
    );
    let mark = '\u{feff}';
    std::iter::once(mark).chain(text.chars()).collect::<String>().encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// The text of `header`, for readers that know no `header2`: ASCII, other characters become question marks. Times
/// are UTC.
pub fn header(options: &E01Options) -> Vec<u8> {
    let E01Options { case, .. } = options;
    let (software, platform) = tool(options);
    let values = [
        free(&case.case_number),
        free(&case.evidence_number),
        free(&case.description),
        free(&case.examiner),
        free(&case.notes),
        software,
        platform,
        date(options.acquired_s),
        date(options.system_s),
        "0".to_owned(),
    ];
    let text = format!("1\r\nmain\r\nc\tn\ta\te\tt\tav\tov\tm\tu\tp\r\n{}\r\n\r\n", values.join("\t"));
    text.chars().map(|c| u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'?')).collect()
}

/// Packs text as a zlib stream.
pub fn deflated(text: &[u8]) -> Result<Vec<u8>> {
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut out = vec![0; compressor.zlib_compress_bound(text.len())];
    let len = compressor
        .zlib_compress(text, &mut out)
        .map_err(|error| Error::failed(format!("compressing the image's header: {error}")))?;
    out.truncate(len);
    Ok(out)
}

fn tool(options: &E01Options) -> (String, String) {
    let cut = |text: &str, chars_max| one_line(text).chars().take(chars_max).collect::<String>().trim_end().to_owned();
    (cut(&options.software, SOFTWARE_CHARS_MAX), cut(&options.platform, PLATFORM_CHARS_MAX))
}

fn free(text: &Option<String>) -> String {
    text.as_deref().map(one_line).unwrap_or_default()
}

/// Tabs and line ends separate the values and cannot be escaped.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `2026 11 20 21 57 28`.
fn date(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (month, day) = (u8::from(date.month()), date.day());
    format!("{} {month} {day} {} {} {}", date.year(), date.hour(), date.minute(), date.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out_of_its_line_or_column() {
        let mut options =
            E01Options { acquired_s: 1_795_211_848, software: "Cheetah 0.1.0".into(), ..E01Options::default() };
        options.case.notes = Some("two\nlines\tand é".into());
        let text = String::from_utf8(header(&options)).unwrap();
        assert!(text.contains("\ttwo lines and ?\tCheetah 0.1\tLinux\t2026 11 20 21 57 28\t"), "{text}");
        let wide: Vec<_> = header2(&options).chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let text = String::from_utf16(&wide).unwrap();
        assert!(text.starts_with("\u{feff}3\nmain\n"));
        assert!(text.contains("\ttwo lines and é\t"));
    }
}
