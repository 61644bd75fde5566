//! The picture of the view in the documentation, drawn from the same room.

use std::fmt::Write as _;
use std::path::Path;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::{View, draw, room, terminal};

const COLUMNS: u16 = 80;
const ROWS: u16 = 38;
const CELL_PX: (f64, f64) = (8.43, 18.0);
const MARGIN_PX: f64 = 16.0;

/// The colours of the other picture of a terminal, on its dark ground.
const fn hex(color: Color) -> &'static str {
    match color {
        Color::Red => "#f87171",
        Color::Green => "#4ade80",
        Color::Yellow | Color::LightYellow => "#facc15",
        Color::Blue => "#60a5fa",
        Color::Cyan => "#22d3ee",
        Color::Magenta => "#e879f9",
        Color::DarkGray => "#4b5563",
        Color::Gray => "#9ca3af",
        _ => "#e5e7eb",
    }
}

/// The columns of a block that its own colour fills; `None` of other characters.
fn block(cell: &Cell) -> Option<(f64, f64)> {
    match cell.symbol() {
        "█" => Some((0.0, 1.0)),
        "▌" => Some((0.0, 0.5)),
        "▐" => Some((0.5, 0.5)),
        _ => None,
    }
}

fn svg(buffer: &Buffer) -> String {
    let (wide, high) = CELL_PX;
    let (width, height) = (f64::from(COLUMNS) * wide + 2.0 * MARGIN_PX, f64::from(ROWS) * high + 2.0 * MARGIN_PX);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\">\n\
         <style>text {{ font: 14px ui-monospace, \"DejaVu Sans Mono\", Menlo, monospace; white-space: pre; }}</style>\n\
         <rect width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\" fill=\"#111827\"/>\n"
    );
    for (row, cells) in (0_u32..).zip(buffer.content.chunks(usize::from(COLUMNS))) {
        let top = MARGIN_PX + f64::from(row) * high;
        for (column, cell) in (0_u32..).zip(cells) {
            let left = MARGIN_PX + f64::from(column) * wide;
            let Some((from, share)) = block(cell) else { continue };
            let mut rect = |left: f64, share: f64, color: Color| {
                let (y, width, height, fill) = (top + 1.0, share * wide, high - 2.0, hex(color));
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{fill}\"/>"
                );
            };
            if cell.bg != Color::Reset {
                rect(left, 1.0, cell.bg);
            }
            rect(left + from * wide, share, cell.fg);
        }
        if cells.iter().all(|cell| cell.symbol() == " ") {
            continue;
        }
        let spans: String = cells.chunk_by(|one, other| style(one) == style(other)).map(span).collect();
        let y = top + 0.75 * high;
        let _ =
            writeln!(svg, "<text x=\"{MARGIN_PX}\" y=\"{y}\" fill=\"#e5e7eb\" xml:space=\"preserve\">{spans}</text>");
    }
    svg + "</svg>\n"
}

fn style(cell: &Cell) -> (Color, Modifier) {
    (cell.fg, cell.modifier)
}

fn span(cells: &[Cell]) -> String {
    let letter = |cell: &Cell| if block(cell).is_some() { " ".to_owned() } else { cell.symbol().to_owned() };
    let text: String = cells.iter().map(letter).collect();
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let Some((fg, modifier)) = cells.first().map(style) else { return text };
    let bold = if modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let dim = modifier.contains(Modifier::DIM) && fg == Color::Reset;
    let fill = if dim { "#9ca3af" } else { hex(fg) };
    format!("<tspan fill=\"{fill}\"{bold}>{text}</tspan>")
}

#[test]
fn snapshots_in_the_documentation_show_the_view_of_today() {
    let mut terminal = terminal(COLUMNS, ROWS);
    draw(&mut terminal, &mut View::new(true), &room());
    let drawn = svg(terminal.backend().buffer());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/images/watch-terminal.svg");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == drawn, "{} is another: UPDATE=1 cargo test -p cheetah snapshots", path.display());
}
