//! Shows a running acquisition.

use std::time::{Duration, Instant};

use cheetah_acquire::order::{AcquireEvent, Progress as Measured};
use cheetah_device::Size;
use cheetah_device::reconnect::{LOSSES_TOLD, Losses};

use crate::ui::pace::pace;
use crate::ui::{Progress, Ui};

/// The interval between progress events in JSON.
const JSON_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the events of an acquisition.
pub struct Show {
    ui: Ui,
    bar: Option<(String, Progress)>,
    json_sent: Option<Instant>,
    /// How often the source was lost.
    losses: Losses,
    /// Whether the last loss was told.
    told: bool,
}

impl Show {
    /// Returns a display without a bar.
    pub fn new(ui: Ui) -> Self {
        Self { ui, bar: None, json_sent: None, losses: Losses::default(), told: true }
    }

    /// Shows an event.
    pub fn event(&mut self, event: &AcquireEvent) {
        if self.ui.is_json() {
            return self.json(event);
        }
        match event {
            AcquireEvent::Started { source, destinations, resumed_at } => {
                let to = destinations.join(" and ");
                match resumed_at {
                    0 => self.ui.say(format_args!("acquiring {} of {} into {to}", Size(source.size), source.location)),
                    at => self.ui.say(format_args!("resuming {} at {}, into {to}", source.location, Size(*at))),
                }
            }
            AcquireEvent::Doubts { doubts } => doubts.iter().for_each(|doubt| self.say(&format!("IN DOUBT: {doubt}"))),
            AcquireEvent::Checking(progress) => self.show("comparing".to_owned(), progress),
            AcquireEvent::Progress(progress) => self.show("acquiring".to_owned(), progress),
            AcquireEvent::Verifying { destination, progress } => {
                self.show(format!("reading back {destination}"), progress)
            }
            AcquireEvent::Unreadable(bad) => self.say(&format!("{}: {}: {}", bad.is(), bad.range(), bad.why)),
            AcquireEvent::Lost { why, retry_for_s } => {
                let waits = format_args!("reconnecting for up to {retry_for_s} s");
                let nth = self.losses.note();
                self.told = nth.is_some();
                match nth {
                    Some(..=LOSSES_TOLD) => self.say(&format!("the source is lost: {why}; {waits}")),
                    Some(nth) => self.say(&format!("the source is lost, {nth} times so far: {why}; {waits}")),
                    None => {}
                }
            }
            AcquireEvent::Back { .. } if !self.told => {}
            AcquireEvent::Back { opening, .. } if opening.vouched.is_empty() => {
                self.say(&format!("the source is back: {opening}"));
            }
            AcquireEvent::Back { opening, .. } => {
                self.say(&format!("the source is back: {opening}; {}", opening.vouched.join(", ")));
            }
            AcquireEvent::Reconnected { .. } => match self.losses.note() {
                Some(..=LOSSES_TOLD) => self.say("a connection to the source was lost and restored"),
                Some(nth) => self.say(&format!("{nth} connections to the source were lost and restored so far")),
                None => {}
            },
            // The report counts the former; the latter is the error that ends the command.
            AcquireEvent::Retried { .. } | AcquireEvent::SourceChanged { .. } => {}
            AcquireEvent::Completing { .. } => self.bar = None,
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some((_, bar)) => bar.say(line),
            None => self.ui.warn(line),
        }
    }

    fn show(&mut self, what: String, progress: &Measured) {
        if self.bar.as_ref().is_none_or(|(shown, _)| *shown != what) {
            // The previous bar is cleared first.
            self.bar = None;
            self.bar = Some((what.clone(), self.ui.progress(what, progress.total_bytes)));
        }
        if let Some((_, bar)) = &self.bar {
            bar.show(progress.done_bytes, || details(progress));
        }
    }

    /// Prints every event, but progress at most once per [`JSON_INTERVAL`].
    fn json(&mut self, event: &AcquireEvent) {
        let often =
            matches!(event, AcquireEvent::Progress(_) | AcquireEvent::Checking(_) | AcquireEvent::Verifying { .. });
        if often && self.json_sent.is_some_and(|sent| sent.elapsed() < JSON_INTERVAL) {
            return;
        }
        if often {
            self.json_sent = Some(Instant::now());
        }
        self.ui.event("", event);
    }
}

/// Rate, time left, unreadable bytes and compression, the most important first.
fn details(progress: &Measured) -> String {
    let mut words = Vec::new();
    match progress.stalled {
        true => words.push("stalled, time left unknown".to_owned()),
        false => words.push(pace(progress.rate_bytes_s as f64, progress.left_s)),
    }
    if progress.unreadable_bytes > 0 {
        words.push(format!("{} bad", Size(progress.unreadable_bytes)));
    }
    if let Some(ratio) = progress.compression.filter(|ratio| *ratio >= 1.05) {
        words.push(format!("{ratio:.1} to 1"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_show_rate_time_left_bad_bytes_and_compression() {
        let progress = Measured {
            rate_bytes_s: 112 << 20,
            left_s: Some(75),
            compression: Some(2.31),
            unreadable_bytes: 512,
            ..Measured::default()
        };
        assert_eq!(details(&progress), "112 MiB/s, 1 min 15 s left, 512B bad, 2.3 to 1");
        assert_eq!(details(&Measured { stalled: true, ..Measured::default() }), "stalled, time left unknown");
        assert_eq!(pace(0.0, Some(7262)), "0 MiB/s, 2 h 1 min left");
    }
}
