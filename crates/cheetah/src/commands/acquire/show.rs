//! How an acquisition is shown while it runs.

use std::time::{Duration, Instant};

use cheetah_acquire::acquire::{Event, Progress as How};
use cheetah_device::Size;

use crate::ui::{Progress, Ui};

/// How often programs are told of progress.
const JSON_EVERY: Duration = Duration::from_secs(1);

/// Shows events as they come.
pub struct Show {
    ui: Ui,
    bar: Option<(String, Progress)>,
    told: Option<Instant>,
}

impl Show {
    /// Nothing to show yet.
    pub fn new(ui: Ui) -> Self {
        Self { ui, bar: None, told: None }
    }

    /// One more.
    pub fn event(&mut self, event: &Event) {
        if self.ui.is_json() {
            return self.json(event);
        }
        match event {
            Event::Started { source, destinations, resumed_at } => {
                let to = destinations.join(" and ");
                match resumed_at {
                    0 => self.ui.say(format_args!("acquiring {} of {} into {to}", Size(source.size), source.location)),
                    at => self.ui.say(format_args!("going on with {} at {}, into {to}", source.location, Size(*at))),
                }
            }
            Event::Checking(how) => self.show("comparing".to_owned(), how),
            Event::Progress(how) => self.show("acquiring".to_owned(), how),
            Event::Verifying { destination, progress } => self.show(format!("reading back {destination}"), progress),
            Event::Unreadable(bad) => self.say(&format!("unreadable: {}: {}", bad.range(), bad.why)),
            Event::Lost { why, retry_for_s } => {
                self.say(&format!("the source is lost: {why}; trying again for {retry_for_s} s"));
            }
            Event::Back { opening, .. } if opening.vouched.is_empty() => {
                self.say(&format!("the source is back: {opening}"));
            }
            Event::Back { opening, .. } => {
                self.say(&format!("the source is back: {opening}; {}", opening.vouched.join(", ")));
            }
            Event::Reconnected { .. } => self.say("a connection to the source was lost and made again"),
            // The progress says how many there were; and the error is shown at the end.
            Event::Retried { .. } | Event::SourceChanged { .. } => {}
            Event::Completing { .. } => self.bar = None,
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some((_, bar)) => bar.say(line),
            None => self.ui.warn(line),
        }
    }

    fn show(&mut self, what: String, how: &How) {
        if self.bar.as_ref().is_none_or(|(shown, _)| *shown != what) {
            // The one before is cleared first.
            self.bar = None;
            self.bar = Some((what.clone(), self.ui.detailed(what, how.total_bytes)));
        }
        if let Some((_, bar)) = &self.bar {
            bar.show(how.done_bytes, || details(how));
        }
    }

    /// Every event, but progress only now and then.
    fn json(&mut self, event: &Event) {
        let often = matches!(event, Event::Progress(_) | Event::Checking(_) | Event::Verifying { .. });
        if often && self.told.is_some_and(|told| told.elapsed() < JSON_EVERY) {
            return;
        }
        if often {
            self.told = Some(Instant::now());
        }
        self.ui.event("", event);
    }
}

/// How it goes, in a few words.
fn details(how: &How) -> String {
    let mut words = Vec::new();
    if how.stalled {
        words.push("stalled".to_owned());
    } else {
        words.push(format!("{:.0} MiB/s", how.rate_bytes_s as f64 / f64::from(1 << 20)));
    }
    match how.left_s {
        Some(seconds) => words.push(format!("{} left", duration(seconds))),
        None => words.push("time left unknown".to_owned()),
    }
    if how.unreadable_bytes > 0 {
        words.push(format!("{} bad", Size(how.unreadable_bytes)));
    }
    if let Some(ratio) = how.compression.filter(|ratio| *ratio >= 1.05) {
        words.push(format!("{ratio:.1} to 1"));
    }
    words.join(", ")
}

/// Two units are enough.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_words_say_how_it_goes() {
        let how = How {
            rate_bytes_s: 112 << 20,
            left_s: Some(75),
            compression: Some(2.31),
            unreadable_bytes: 512,
            ..How::default()
        };
        assert_eq!(details(&how), "112 MiB/s, 1 min 15 s left, 512B bad, 2.3 to 1");
        assert_eq!(details(&How { stalled: true, ..How::default() }), "stalled, time left unknown");
        assert_eq!(duration(7262), "2 h 1 min");
    }

    #[test]
    fn rate_and_time_left_fit_80_columns_behind_the_bar() {
        let how = How { rate_bytes_s: 9999 << 20, left_s: Some(99 * 3600 + 59 * 60), ..How::default() };
        // The rest of the details is cut off where the line is too short.
        let before = "acquiring ━━━━━━━━━━ 1023.99 GiB / 1023.99 GiB  ";
        assert!(before.chars().count() + details(&how).len() <= 80, "{}", details(&how));
    }

    #[test]
    fn minutes_and_seconds_are_shown_below_an_hour() {
        assert_eq!(duration(75), "1 min 15 s");
    }
}
