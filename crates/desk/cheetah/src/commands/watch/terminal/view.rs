//! The view: the sentence stays on top, and keys move through the parts below it.

use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::text::Line;

use super::fold::{folded, width};
use super::lines::{in_order, parts};
use super::paint::Paint;
use crate::answers::watch::Picture;
use crate::commands::watch::show::totals;

/// The sums over the machines may take this share of the rows; else they are left out.
const TOTALS_SHARE: usize = 8;
/// From this height on, the keys are.
const KEYS_FROM_ROWS: usize = 6;
/// The keys.
const KEYS: &str = "↑↓ scroll  Tab next part  q quit";

/// What keys have chosen, and how much there was to see at the last time.
#[derive(Debug)]
pub struct View {
    paint: Paint,
    /// The first line that is drawn.
    first: usize,
    /// The lines with which a part begins.
    begins: Vec<usize>,
    lines: usize,
    /// The lines for which there is room.
    room: usize,
}

impl View {
    /// A view from the top.
    pub const fn new(colours: bool) -> Self {
        Self { paint: Paint { colours }, first: 0, begins: Vec::new(), lines: 0, room: 0 }
    }

    /// Does what a key says. Returns whether that is to end.
    pub fn heed(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return false };
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        self.first = match key.code {
            KeyCode::Char('c' | 'd') if is_control => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Down | KeyCode::Char('j') => self.first.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.first.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.first.saturating_add(self.room.max(1)),
            KeyCode::PageUp => self.first.saturating_sub(self.room.max(1)),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            KeyCode::Tab | KeyCode::Right => self.next_part(),
            KeyCode::BackTab | KeyCode::Left => self.part_before(),
            _ => self.first,
        };
        self.first = self.first.min(self.last_first());
        false
    }

    /// The first line when the last one is drawn at the bottom.
    const fn last_first(&self) -> usize {
        self.lines.saturating_sub(self.room)
    }

    /// Where the next part begins; after the last, the first.
    fn next_part(&self) -> usize {
        let next = self.begins.iter().find(|begin| **begin > self.first).filter(|_| self.first < self.last_first());
        next.copied().unwrap_or(0)
    }

    /// Where the part before begins; before the first, the end.
    fn part_before(&self) -> usize {
        self.begins.iter().rev().find(|begin| **begin < self.first).copied().unwrap_or(usize::MAX)
    }

    /// Draws the picture.
    pub fn draw(&mut self, frame: &mut Frame<'_>, picture: &Picture) {
        let area = frame.area();
        let (columns, rows) = (usize::from(area.width), usize::from(area.height));
        let head = self.head(picture, columns, rows);
        let keys = usize::from(rows >= KEYS_FROM_ROWS);
        let (lines, begins) = in_order(parts(picture, columns, self.paint), columns, self.paint);
        (self.lines, self.begins) = (lines.len(), begins);
        self.room = rows.saturating_sub(head.len() + keys);
        self.first = self.first.min(self.last_first());
        let body = lines.iter().skip(self.first).take(self.room);
        for (line, row) in head.iter().chain(body).zip(area.rows()) {
            frame.render_widget(line, row);
        }
        if let Some(row) = area.rows().next_back().filter(|_| keys > 0) {
            frame.render_widget(self.keys(), row);
        }
    }

    /// The sentence, which may take a third of the rows, and the sums over the machines.
    fn head(&self, picture: &Picture, columns: usize, rows: usize) -> Vec<Line<'static>> {
        let mut sentence = folded(&picture.sentence, 0, columns);
        let most = (rows / 3).max(1);
        if sentence.len() > most {
            sentence.truncate(most);
            if let Some(last) = sentence.last_mut() {
                // The worst comes first, so the least is missing.
                if width(last) >= columns {
                    last.pop();
                }
                last.push('…');
            }
        }
        let style = self.paint.of(picture.state);
        let mut head: Vec<_> = sentence.into_iter().map(|line| Line::styled(line, style)).collect();
        let totals = folded(&totals(picture), 0, columns);
        if totals.len() <= rows / TOTALS_SHARE {
            head.extend(totals.into_iter().map(|line| Line::styled(line, self.paint.quiet())));
            head.push(Line::default());
        }
        head
    }

    fn keys(&self) -> Line<'static> {
        let last = self.lines.min(self.first + self.room);
        let text = match self.lines > self.room {
            true => format!("{}–{last} of {}  {KEYS}", self.first + 1, self.lines),
            false => KEYS.to_owned(),
        };
        Line::styled(text, self.paint.quiet())
    }
}
