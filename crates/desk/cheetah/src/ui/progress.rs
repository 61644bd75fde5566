//! Progress: a bar on a terminal, plain lines elsewhere. A bar fits 80 columns, however long the
//! name in it: a line that wraps cannot be redrawn in place.

use std::fmt::Display;
use std::time::Duration;

use cheetah_device::Size;
use cheetah_device::visible::OneLine;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::pace::pace;
use super::plain_progress::PlainProgress;
use super::stderr;

/// Columns for the operation and the name of its object beside a bar of bytes, which leave room for the figures.
const PREFIX_COLUMNS_MAX: usize = 24;
/// Columns for the operation beside a spinner.
const SPINNER_COLUMNS_MAX: usize = 64;

/// The progress of one long operation. Dropping it clears the bar.
pub struct Progress(Show);

enum Show {
    Bar(ProgressBar),
    Plain(PlainProgress),
}

impl Progress {
    /// The details, the most important first, are cut to the width of the terminal.
    pub(super) fn new(what: String, total_bytes: u64, terminal: bool) -> Self {
        if !terminal {
            return Self::plain(what, total_bytes);
        }
        Self::bar(what, total_bytes, ProgressDrawTarget::stderr())
    }

    pub(super) fn spinner(what: String, terminal: bool) -> Self {
        if !terminal {
            return Self::plain(what, 0);
        }
        Self::spinning(what, ProgressDrawTarget::stderr())
    }

    fn bar(what: String, total_bytes: u64, target: ProgressDrawTarget) -> Self {
        let template = "{prefix:.bold} {bar:10.cyan/black.bright} {wide_msg}";
        Self::drawn(Some(total_bytes), target, template, &what, PREFIX_COLUMNS_MAX)
    }

    fn spinning(what: String, target: ProgressDrawTarget) -> Self {
        Self::drawn(None, target, "{spinner:.cyan} {prefix}  {elapsed}", &what, SPINNER_COLUMNS_MAX)
    }

    fn drawn(total: Option<u64>, target: ProgressDrawTarget, template: &str, what: &str, columns_max: usize) -> Self {
        let bar = ProgressBar::with_draw_target(total, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━╌"));
        }
        bar.set_prefix(shortened(&OneLine(what).to_string(), columns_max));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(Show::Bar(bar))
    }

    fn plain(what: String, total: u64) -> Self {
        Self(Show::Plain(PlainProgress::new(what, total)))
    }

    /// Sets the number of bytes done. The rate and the time left are computed from these.
    pub fn set(&self, done_bytes: u64) {
        match &self.0 {
            Show::Bar(bar) => self.show(done_bytes, || {
                let rate = bar.per_sec();
                let left = bar.length().unwrap_or_default().saturating_sub(done_bytes);
                pace(rate, (rate >= 1.0).then(|| (left as f64 / rate) as u64))
            }),
            Show::Plain(plain) => plain.set(done_bytes, None),
        }
    }

    /// Sets the number of bytes done, and the rate, time left and other details.
    pub fn show(&self, done_bytes: u64, details: impl FnOnce() -> String) {
        match &self.0 {
            Show::Bar(bar) => {
                bar.set_position(done_bytes);
                let total = Size(bar.length().unwrap_or_default());
                bar.set_message(format!("{} of {total}, {}", Size(done_bytes), OneLine(details())));
            }
            Show::Plain(plain) => plain.set(done_bytes, Some(details())),
        }
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: impl Display) {
        match &self.0 {
            Show::Bar(bar) => bar.suspend(|| {
                stderr::line(line);
                stderr::flush(stderr::FLUSH_TIMEOUT);
            }),
            Show::Plain(_) => stderr::line(line),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Show::Bar(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Returns `text`, without what lies between its first word and its end if it has more than `columns_max` columns:
/// "verifying …/case42.raw".
fn shortened(text: &str, columns_max: usize) -> String {
    // Most characters beyond U+1100 take two columns.
    let columns = |c: char| if c < '\u{1100}' { 1 } else { 2 };
    if text.chars().map(columns).sum::<usize>() <= columns_max {
        return text.to_owned();
    }
    let (verb, rest) = text.split_once(' ').filter(|(verb, _)| verb.len() < columns_max / 2).unwrap_or(("", text));
    let head = if verb.is_empty() { "…".to_owned() } else { format!("{verb} …") };
    let mut left = columns_max.saturating_sub(head.chars().map(columns).sum());
    let mut start = rest.len();
    for (at, c) in rest.char_indices().rev() {
        if columns(c) > left {
            break;
        }
        (left, start) = (left - columns(c), at);
    }
    format!("{head}{}", rest.get(start..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal of 80 columns that keeps its content.
    #[derive(Debug, Clone, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl Terminal {
        fn target(&self) -> ProgressDrawTarget {
            ProgressDrawTarget::term_like_with_hz(Box::new(self.clone()), 255)
        }

        fn write(&self, text: &str) -> std::io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        /// The widest line, without escape sequences.
        fn widest(&self) -> String {
            let drawn = self.0.lock().unwrap().clone();
            let mut plain = String::new();
            let mut escaped = false;
            for c in drawn.chars() {
                match (escaped, c) {
                    (false, '\x1b') => escaped = true,
                    (false, c) => plain.push(c),
                    (true, c) => escaped = !c.is_ascii_alphabetic(),
                }
            }
            let lines = plain.split(['\n', '\r']).map(str::trim_end);
            lines.max_by_key(|line| line.chars().count()).unwrap_or_default().to_owned()
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> std::io::Result<()> {
            self.write("\n")
        }

        fn move_cursor_down(&self, _: usize) -> std::io::Result<()> {
            self.write("\n")
        }

        fn move_cursor_right(&self, _: usize) -> std::io::Result<()> {
            self.write("\n")
        }

        fn move_cursor_left(&self, _: usize) -> std::io::Result<()> {
            self.write("\n")
        }

        fn write_line(&self, line: &str) -> std::io::Result<()> {
            self.write(&format!("{line}\n"))
        }

        fn write_str(&self, text: &str) -> std::io::Result<()> {
            self.write(text)
        }

        fn clear_line(&self) -> std::io::Result<()> {
            self.write("\n")
        }

        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn drawn(start: impl Fn(ProgressDrawTarget) -> Progress, then: impl Fn(&Progress)) -> String {
        let terminal = Terminal::default();
        let progress = start(terminal.target());
        then(&progress);
        let Show::Bar(bar) = &progress.0 else { panic!("no bar") };
        bar.force_draw();
        drop(progress);
        terminal.widest()
    }

    #[test]
    fn bars_with_long_names_and_large_figures_fit_80_columns() {
        let name = "verifying /evidence/".to_owned() + &"long-".repeat(40) + "case42.raw";
        let (done, total) = ((1023 << 40) + (1 << 39), 1023 << 40);
        let bar = drawn(|target| Progress::bar(name.clone(), total, target), |bar| bar.set(done / 2));
        assert!(bar.chars().count() <= 80, "{bar}");
        assert!(bar.starts_with("verifying …") && bar.contains("case42.raw") && bar.contains("TiB, "), "{bar}");

        let details = || "1023 MiB/s, 23 h 59 min left, 1023.9MiB bad, 12.5 to 1".to_owned();
        for what in ["acquiring", "reading back case42.E01", &name] {
            let start = |target| Progress::bar(what.to_owned(), total, target);
            let bar = drawn(start, |bar| bar.show(done / 2, details));
            assert!(bar.chars().count() <= 80, "{bar}");
            assert!(bar.contains("1023TiB, 1023 MiB/s"), "{bar}");
            assert_eq!(bar.contains("23 h 59 min left"), what == "acquiring", "{bar}");
        }

        let spinner = drawn(|target| Progress::spinning(name.clone(), target), |_| {});
        assert!(spinner.chars().count() <= 80 && spinner.contains("case42.raw"), "{spinner}");
    }

    #[test]
    fn a_long_name_keeps_its_verb_and_its_end() {
        assert_eq!(shortened("saving a.raw", 24), "saving a.raw");
        assert_eq!(shortened("saving /evidence/case42/disk.raw", 24), "saving …case42/disk.raw");
        assert_eq!(shortened(&"x".repeat(30), 10), format!("…{}", "x".repeat(8)));
        assert_eq!(shortened("saving 証拠証拠証拠証拠証拠", 20), "saving …拠証拠証拠");
    }
}
