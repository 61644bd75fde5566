//! Breaking text into the lines of a terminal.

use cheetah_device::visible::Visible;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The columns that a text takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// `text` in lines of at most `columns` columns, from the second line on indented by two more. A word that is longer than a line
/// is broken. Control characters are shown as escapes.
pub fn folded(text: &str, indent: usize, columns: usize) -> Vec<String> {
    // On a terminal of a few columns, indents would take all of them.
    let begin = |indent: usize| " ".repeat(indent.min(columns / 4));
    let mut lines: Vec<String> = Vec::new();
    let mut line = begin(indent);
    let mut used = width(&line);
    let mut has_word = false;
    let mut next = |line: &mut String| {
        lines.push(std::mem::replace(line, begin(indent + 2)));
        width(line)
    };
    for word in Visible(text).to_string().split_whitespace() {
        if has_word && used + 1 + width(word) > columns {
            used = next(&mut line);
        } else if has_word {
            line.push(' ');
            used += 1;
        }
        for letter in word.chars() {
            let wide = width(letter.encode_utf8(&mut [0; 4]));
            if used + wide > columns && !line.trim_start().is_empty() {
                used = next(&mut line);
            }
            line.push(letter);
            used += wide;
        }
        has_word = true;
    }
    lines.push(line);
    lines
}

/// The same lines, drawn in a style.
pub fn folded_in(text: &str, (indent, columns): (usize, usize), style: Style) -> Vec<Line<'static>> {
    folded(text, indent, columns).into_iter().map(|line| Line::styled(line, style)).collect()
}

/// `text` in at most `columns` columns; `…` stands for what is cut off.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if width(&kept) >= columns {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_on_further_lines_and_a_long_one_is_broken() {
        assert_eq!(folded("a bc def", 0, 4), ["a bc", " def"]);
        assert_eq!(folded("at /very/long/path of it", 2, 12), ["  at", "   /very/lon", "   g/path of", "   it"]);
        assert_eq!(folded("", 2, 12), ["  "]);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_whatever_the_letters_are() {
        let text = "one 部屋の機械 two\u{202e}three \u{1b}[2J ééé xxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
        for columns in 2..40 {
            let lines = folded(text, 4, columns);
            assert!(lines.iter().all(|line| width(line) <= columns), "{columns}: {lines:?}");
            assert!(!lines.concat().contains(['\u{1b}', '\u{202e}']), "{lines:?}");
        }
        assert!(!folded(text, 4, 0).is_empty() && !folded(text, 4, 1).is_empty());
    }

    #[test]
    fn a_text_that_is_cut_says_so() {
        assert_eq!(
            (cut("machine", 7), cut("machine", 6), cut("machine", 1)),
            ("machine".into(), "machi…".into(), "…".into())
        );
        assert_eq!(cut("部屋の機械", 5), "部屋…");
    }
}
