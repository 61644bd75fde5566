//! Progress: a bar on a terminal, a plain line every few seconds in a pipe.

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cheetah_device::Size;
use cheetah_device::visible::OneLine;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::stderr;

/// The interval between lines in a pipe.
const PLAIN_INTERVAL: Duration = Duration::from_secs(3);

/// The progress of one long operation. Dropping it clears the bar.
pub struct Progress(Show);

enum Show {
    Bar(ProgressBar),
    Plain(Plain),
}

struct Plain {
    what: String,
    total: u64,
    done: AtomicU64,
    started: Instant,
    last: Mutex<Instant>,
}

impl Progress {
    pub(super) fn new(what: String, total_bytes: u64, terminal: bool) -> Self {
        if !terminal {
            return Self::plain(what, total_bytes);
        }
        let style = ProgressStyle::with_template(
            "{prefix:.bold} {wide_bar:.cyan/black.bright} {binary_bytes} / {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left",
        );
        let bar = ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::stderr());
        Self::bar(bar, what, style.ok().map(|style| style.progress_chars("━━╌")))
    }

    /// Shows no rate and no time left of its own: the operation reports them ([`Progress::show`]). They are cut to the
    /// width of the terminal.
    pub(super) fn detailed(what: String, total_bytes: u64, terminal: bool) -> Self {
        if !terminal {
            return Self::plain(what, total_bytes);
        }
        let style = ProgressStyle::with_template(
            "{prefix:.bold} {bar:10.cyan/black.bright} {binary_bytes} / {binary_total_bytes}  {wide_msg}",
        );
        let bar = ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::stderr());
        Self::bar(bar, what, style.ok().map(|style| style.progress_chars("━━╌")))
    }

    pub(super) fn spinner(what: String, terminal: bool) -> Self {
        if !terminal {
            return Self::plain(what, 0);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Self::bar(bar, what, ProgressStyle::with_template("{spinner:.cyan} {prefix}  {elapsed}").ok())
    }

    fn bar(bar: ProgressBar, what: String, style: Option<ProgressStyle>) -> Self {
        if let Some(style) = style {
            bar.set_style(style);
        }
        bar.set_prefix(OneLine(what).to_string());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(Show::Bar(bar))
    }

    fn plain(what: String, total: u64) -> Self {
        let now = Instant::now();
        Self(Show::Plain(Plain { what, total, done: AtomicU64::new(0), started: now, last: Mutex::new(now) }))
    }

    /// Sets the number of bytes done.
    pub fn set(&self, done_bytes: u64) {
        match &self.0 {
            Show::Bar(bar) => bar.set_position(done_bytes),
            Show::Plain(plain) => plain.set(done_bytes, None),
        }
    }

    /// Sets the number of bytes done, and the rate, time left and other details.
    pub fn show(&self, done_bytes: u64, details: impl FnOnce() -> String) {
        match &self.0 {
            Show::Bar(bar) => {
                bar.set_position(done_bytes);
                bar.set_message(OneLine(details()).to_string());
            }
            Show::Plain(plain) => plain.set(done_bytes, Some(&details())),
        }
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: impl Display) {
        match &self.0 {
            Show::Bar(bar) => bar.suspend(|| {
                stderr::line(line);
                stderr::flush(super::STDERR_PATIENCE);
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

impl Plain {
    fn set(&self, done: u64, details: Option<&str>) {
        self.done.store(done, Ordering::Relaxed);
        let Ok(mut last) = self.last.try_lock() else { return };
        if self.total == 0 || last.elapsed() < PLAIN_INTERVAL {
            return;
        }
        *last = Instant::now();
        stderr::line(self.line(done, details));
    }

    fn line(&self, done: u64, details: Option<&str>) -> String {
        let percent = u128::from(done) * 100 / u128::from(self.total.max(1));
        let so_far = format!("{}: {} of {} ({percent}%)", self.what, Size(done), Size(self.total));
        if let Some(details) = details {
            return format!("{so_far}, {details}");
        }
        let rate = done as f64 / self.started.elapsed().as_secs_f64().max(0.001) / f64::from(1 << 20);
        format!("{so_far}, {rate:.0} MiB/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_shows_the_operation_and_its_progress() {
        let progress = Progress::new("loading".into(), 4 << 30, false);
        let Show::Plain(plain) = &progress.0 else { panic!("no terminal here") };
        assert_eq!(plain.line(1 << 30, Some("stalled")), "loading: 1GiB of 4GiB (25%), stalled");
        assert!(plain.line(1 << 30, None).starts_with("loading: 1GiB of 4GiB (25%), "));
    }
}
