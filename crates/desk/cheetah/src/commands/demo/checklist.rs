//! The steps of the demonstration, as a checklist.

use std::future::Future;
use std::time::{Duration, Instant};

use cheetah_device::visible::OneLine;

use crate::answers::demo::Step;
use crate::failure::Result;
use crate::ui::Ui;

/// The steps done so far.
pub struct Checklist {
    ui: Ui,
    done: Vec<Step>,
}

impl Checklist {
    /// Returns an empty checklist.
    pub fn new(ui: Ui) -> Self {
        Self { ui, done: Vec::new() }
    }

    /// Does a step, behind a spinner, and prints its duration. `work` may return a remark.
    pub async fn step<T>(&mut self, what: &str, work: impl Future<Output = Result<(T, String)>>) -> Result<T> {
        let started = Instant::now();
        let spinner = self.ui.spinner(what);
        let result = work.await;
        drop(spinner);
        let took = started.elapsed();
        match result {
            Ok((value, remark)) => {
                self.tick(what, &remark, took);
                Ok(value)
            }
            Err(failure) => {
                let (cross, plain) = if self.ui.colours() { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
                self.ui.say_styled(format_args!(" {cross}✗{plain} {}", OneLine(what)));
                Err(failure)
            }
        }
    }

    fn tick(&mut self, what: &str, remark: &str, took: Duration) {
        let (green, dim, plain) = if self.ui.colours() { ("\x1b[32m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        self.ui.say_styled(format_args!(" {green}✓{plain} {what:<60} {dim}{:>5.1} s{plain}", took.as_secs_f64()));
        if !remark.is_empty() {
            self.ui.say_styled(format_args!("   {dim}{}{plain}", OneLine(remark)));
        }
        self.done.push(Step { what: what.to_owned(), took_s: took.as_secs_f64() });
    }

    /// Returns the finished steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.done
    }
}
