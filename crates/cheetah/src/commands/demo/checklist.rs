//! The checklist the demonstration ticks off.

use std::future::Future;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::failure::Result;
use crate::ui::Ui;

/// Steps done so far.
pub struct Checklist {
    ui: Ui,
    done: Vec<Step>,
}

/// One of them.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// What was done.
    pub what: String,
    /// Seconds it took.
    pub took_s: f64,
}

impl Checklist {
    /// Nothing done yet.
    pub fn new(ui: Ui) -> Self {
        Self { ui, done: Vec::new() }
    }

    /// Does one step, showing that it is under way and then how long it took. `work` may add a remark.
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
                self.ui.say(format_args!(" {cross}✗{plain} {what}"));
                Err(failure)
            }
        }
    }

    fn tick(&mut self, what: &str, remark: &str, took: Duration) {
        let (green, dim, plain) = if self.ui.colours() { ("\x1b[32m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        let line = format!(" {green}✓{plain} {what:<58} {dim}{:>5.1}s{plain}  {remark}", took.as_secs_f64());
        self.ui.say(line.trim_end());
        self.done.push(Step { what: what.to_owned(), took_s: took.as_secs_f64() });
    }

    /// What was done, in order.
    pub fn steps(&self) -> &[Step] {
        &self.done
    }
}
