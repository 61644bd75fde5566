//! A drive in lines: its state, its figures, and a row for each of its nodes with the node's part of the map.

use cheetah_device::visible::OneLine;
use cheetah_drive::chart::ChartRow;
use cheetah_drive::status::NodeStatus;
use ratatui::text::{Line, Span};

use super::fold::{cut, folded_in, width};
use super::map;
use super::paint::Paint;
use crate::answers::watch::{Health, WatchedDrive};
use crate::commands::watch::judge;
use crate::commands::watch::show::{figures, headline, meaning, state_of_part, writer};

/// The widest column of names.
const NAME_COLUMNS_MAX: usize = 24;
/// The letters of the legend, in order.
const LEGEND: &str = "rvzuxlnse";

/// A row of the map.
struct Row<'a> {
    name: String,
    cells: &'a str,
    /// What is to be said of it.
    words: String,
    is_well: bool,
}

/// A drive in lines.
pub fn lines(drive: &WatchedDrive, columns: usize, paint: Paint) -> Vec<Line<'static>> {
    let Some(status) = &drive.status else {
        return folded_in(drive.problem.as_deref().unwrap_or(&drive.file), (0, columns), paint.of(Health::Bad));
    };
    let mut lines = folded_in(&headline(status), (0, columns), paint.of(judge::health(drive)));
    for figure in figures(drive).iter().chain(&writer(status)) {
        lines.extend(folded_in(figure, (2, columns), paint.quiet()));
    }
    let rows: Vec<Row<'_>> = drive.chart.iter().zip(&status.nodes).map(|(row, node)| Row::of(row, node)).collect();
    lines.extend(rows_in_lines(&rows, columns, paint));
    for problem in status.nodes.iter().filter_map(|node| node.problem.as_deref()) {
        lines.extend(folded_in(&OneLine(problem).to_string(), (2, columns), paint.of(Health::Bad)));
    }
    lines
}

impl<'a> Row<'a> {
    fn of(row: &'a ChartRow, node: &NodeStatus) -> Self {
        let state = state_of_part(node);
        // That all of a bad node is bad is said by its state. What the source could not read does not depend on the node.
        let counts = if state.is_empty() { "xulns" } else { "x" };
        let counts = map::counts(&row.cells, counts);
        let words: Vec<String> =
            Some(state.to_owned()).filter(|state| !state.is_empty()).into_iter().chain(counts).collect();
        Self {
            name: OneLine(&row.node).to_string(),
            cells: &row.cells,
            is_well: words.is_empty(),
            words: words.join(", "),
        }
    }
}

/// The rows, each in one line if all fit; otherwise with the maps below the names.
fn rows_in_lines(rows: &[Row<'_>], columns: usize, paint: Paint) -> Vec<Line<'static>> {
    let widest = |of: fn(&Row<'_>) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let name = widest(|row| width(&row.name)).min(NAME_COLUMNS_MAX).min((columns / 3).max(1));
    let wanted = rows.iter().map(|row| map::columns_wanted(row.cells, paint)).max().unwrap_or(0);
    let fits = 2 + name + 1 + wanted + 1 + widest(|row| width(&row.words)) <= columns;
    let mut lines = Vec::new();
    for row in rows {
        let words =
            Span::styled(row.words.clone(), paint.of(if row.is_well { Health::Good } else { Health::Attention }));
        let shown = cut(&row.name, name);
        let blank = " ".repeat(name.saturating_sub(width(&shown)) + 1);
        let mut line = Line::from(vec![Span::raw(format!("  {shown}{blank}"))]);
        if fits {
            line.extend(map::spans(row.cells, wanted, paint));
            line.push_span(Span::raw(" "));
        }
        line.push_span(words);
        lines.push(line);
        if !fits {
            let mut below = Line::from("  ");
            below.extend(map::spans(row.cells, wanted.min(columns.saturating_sub(2)), paint));
            lines.push(below);
        }
    }
    lines
}

/// What the colours or signs in the maps of these drives mean.
pub fn legend(drives: &[WatchedDrive], columns: usize, paint: Paint) -> Vec<Line<'static>> {
    let occurs = |letter: &char| drives.iter().flat_map(|drive| &drive.chart).any(|row| row.cells.contains(*letter));
    let mut lines = Vec::new();
    let mut line = Line::default();
    for letter in LEGEND.chars().filter(occurs) {
        let item = [map::sign(letter, paint), Span::styled(format!(" {}", meaning(letter)), paint.quiet())];
        let wide: usize = item.iter().map(Span::width).sum();
        if line.width() > 0 && line.width() + 2 + wide > columns {
            lines.push(std::mem::take(&mut line));
        }
        line.push_span(Span::raw(if line.width() > 0 { "  " } else { "" }));
        line.extend(item);
    }
    if line.width() > 0 {
        lines.push(line);
    }
    lines
}
