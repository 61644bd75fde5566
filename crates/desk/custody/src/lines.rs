//! Splits a log of any bytes into lines, in bounded memory.

use std::io::{BufRead, Result};

use crate::LINE_BYTES_MAX;

/// One line.
pub struct LogLine<'a> {
    /// Its bytes without the newline; cut to [`LINE_BYTES_MAX`].
    pub bytes: &'a [u8],
    /// Its length in the file, newline included.
    pub len: u64,
    /// Whether it has a newline; only the last line may lack it.
    pub ended: bool,
}

/// Passes every line to `each`, until it returns false.
pub fn for_each(mut log: impl BufRead, mut each: impl FnMut(LogLine<'_>) -> bool) -> Result<()> {
    let mut line = Vec::new();
    let mut len = 0;
    loop {
        let held = log.fill_buf()?;
        if held.is_empty() {
            if len > 0 {
                each(LogLine { bytes: &line, len, ended: false });
            }
            return Ok(());
        }
        let end = held.iter().position(|byte| *byte == b'\n');
        let (part, used) = end.map_or((held, held.len()), |end| (&held[..end], end + 1));
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        len += used as u64;
        log.consume(used);
        if end.is_some() {
            if !each(LogLine { bytes: &line, len, ended: true }) {
                return Ok(());
            }
            line.clear();
            len = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], buffer: usize) -> Vec<(Vec<u8>, bool)> {
        let mut lines = Vec::new();
        let each = |line: LogLine<'_>| {
            lines.push((line.bytes.to_vec(), line.ended));
            true
        };
        for_each(std::io::BufReader::with_capacity(buffer, text), each).unwrap();
        lines
    }

    #[test]
    fn lines_are_cut_at_newlines_and_nowhere_else() {
        for buffer in [1, 3, 100] {
            assert_eq!(lines(b"", buffer), []);
            let expected = [(b"ab".to_vec(), true), (Vec::new(), true), (b"c\0d".to_vec(), false)];
            assert_eq!(lines(b"ab\n\nc\0d", buffer), expected);
        }
    }

    #[test]
    fn a_line_without_end_costs_bounded_memory() {
        let long = vec![b'x'; LINE_BYTES_MAX + 10];
        assert_eq!(lines(&long, 8192)[0].0.len(), LINE_BYTES_MAX);
    }
}
