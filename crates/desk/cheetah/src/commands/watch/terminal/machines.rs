//! The machines as a table, with the columns for which there is room.

use cheetah_device::visible::OneLine;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::fold::{cut, folded_in, width};
use super::paint::Paint;
use crate::answers::watch::{Health, Machine};
use crate::commands::watch::show::{disks_of, memory_of, size, state_of, system_of};

/// The headings. Figures are aligned to the right.
const HEADINGS: [&str; COLUMNS] =
    ["machine", "state", "lent", "used", "free", "read/s", "wiped", "disks", "system", "memory"];
const COLUMNS: usize = 10;
const FIGURES: std::ops::RangeInclusive<usize> = 2..=7;
/// The columns that a narrow terminal goes without, the first one first.
const LEFT_OUT: [usize; 7] = [7, 8, 6, 5, 4, 2, 3];
/// The widest column of names.
const NAME_COLUMNS_MAX: usize = 28;

/// The machines in lines: a row each, and below it why one cannot be used.
pub fn lines(machines: &[Machine], now_ms: u64, (columns, paint): (usize, Paint)) -> Vec<Line<'static>> {
    let rows: Vec<[String; COLUMNS]> = machines.iter().map(|machine| cells(machine, now_ms)).collect();
    let widths = widths(&rows, columns);
    let mut lines = vec![row(&HEADINGS.map(str::to_owned), |_| paint.quiet(), &widths)];
    for (machine, cells) in machines.iter().zip(&rows) {
        lines.push(row(cells, |column| style(machine, column, paint), &widths));
        if let Some(problem) = &machine.problem {
            lines.extend(folded_in(&OneLine(problem).to_string(), (2, columns), paint.of(Health::Bad)));
        }
    }
    lines
}

fn cells(machine: &Machine, now_ms: u64) -> [String; COLUMNS] {
    let lends = machine.lends.as_ref();
    let agent = if machine.role == "agent" { " (agent)" } else { "" };
    [
        format!("{}{agent}", OneLine(&machine.name)),
        state_of(machine).to_owned(),
        size(lends.map(|lends| lends.lent_bytes)),
        size(lends.map(|lends| lends.used_bytes)),
        size(lends.map(|lends| lends.free_bytes)),
        size(lends.and_then(|lends| lends.read_bytes_per_s)),
        size(lends.map(|lends| lends.wiped_bytes)),
        disks_of(machine),
        system_of(machine).to_owned(),
        memory_of(machine, now_ms),
    ]
}

/// The widths of the columns; 0 of one that is left out.
fn widths(rows: &[[String; COLUMNS]], columns: usize) -> [usize; COLUMNS] {
    let mut widths = HEADINGS.map(width);
    for row in rows {
        for (wide, cell) in widths.iter_mut().zip(row) {
            *wide = (*wide).max(width(cell));
        }
    }
    widths[0] = widths[0].min(NAME_COLUMNS_MAX);
    let taken = |widths: &[usize; COLUMNS]| widths.iter().filter(|wide| **wide > 0).map(|wide| wide + 1).sum::<usize>();
    for column in LEFT_OUT {
        if taken(&widths) > columns + 1 {
            widths[column] = 0;
        }
    }
    let over = taken(&widths).saturating_sub(columns + 1);
    widths[0] = widths[0].saturating_sub(over).max(1);
    widths
}

fn row(cells: &[String; COLUMNS], style: impl Fn(usize) -> Style, widths: &[usize; COLUMNS]) -> Line<'static> {
    let mut line = Line::default();
    for (column, (text, wide)) in cells.iter().zip(widths).enumerate().filter(|(_, (_, wide))| **wide > 0) {
        let shown = cut(text, *wide);
        let blank = " ".repeat(wide.saturating_sub(width(&shown)));
        let cell = if FIGURES.contains(&column) { format!("{blank}{shown}") } else { format!("{shown}{blank}") };
        if column > 0 {
            line.push_span(Span::raw(" "));
        }
        line.push_span(Span::styled(cell, style(column)));
    }
    line
}

fn style(machine: &Machine, column: usize, paint: Paint) -> Style {
    let is_locked = machine.lends.as_ref().is_none_or(|lends| lends.locked);
    match column {
        1 if !machine.state.is_healthy() => paint.of(Health::Bad),
        1 if state_of(machine) != "ok" => paint.of(Health::Attention),
        1 => paint.of(Health::Good),
        9 if !is_locked => paint.of(Health::Attention),
        _ => Style::new(),
    }
}
