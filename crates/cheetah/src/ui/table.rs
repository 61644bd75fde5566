//! Tables.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// Horizontal rules only: above, below the headings, and below.
const STYLE: TableStyle = TableStyle::new().top_border(LINE).header_separator(LINE).bottom_border(LINE);
const LINE: LineStyle = LineStyle::new('─', '─', '─', '─');

/// Returns a table with these headings, plain enough for a written report. `>` before a heading aligns its column to the
/// right.
pub fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|heading| Cell::new(heading.trim_start_matches('>'))));
    for (heading, column) in headings.iter().zip(table.column_iter_mut()) {
        column.set_padding((1, 1));
        if heading.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
