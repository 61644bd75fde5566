//! Tables.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// Horizontal rules only: above, below the headings, and below.
const STYLE: TableStyle = TableStyle::new().top_border(LINE).header_separator(LINE).bottom_border(LINE);
const LINE: LineStyle = LineStyle::new('─', '─', '─', '─');

/// Columns of the widest table. Cells that do not fit wrap.
const COLUMNS: u16 = 80;

/// Returns a table with these headings, plain enough for a written report. `>` before a heading aligns its column to the
/// right.
pub fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_width(COLUMNS);
    table.set_header(headings.iter().map(|heading| Cell::new(heading.trim_start_matches('>'))));
    for (heading, column) in headings.iter().zip(table.column_iter_mut()) {
        column.set_padding((1, 1));
        if heading.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_cells_wrap_within_80_columns() {
        let mut table = table(&["ran", "answer", ">image", ">drive"]);
        table.add_row(["fls -r -o 2048", "123456 entries", "0.12 s", "0.10 s"]);
        assert!(table.lines().all(|line| line.chars().count() < 60), "{table}");
        table.add_row(["x".repeat(100), "many words ".repeat(20), "0.12 s".into(), "0.10 s".into()]);
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        assert!(table.lines().any(|line| line.contains("0.12 s")), "{table}");
    }
}
