//! The view of a room in which several things are wrong, on terminals of many sizes. After an intended change:
//! `INSTA_UPDATE=always cargo test -p cheetah snapshots`, and `UPDATE=1` beside it for the picture in the documentation.

mod drawing;
mod room;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

pub use self::room::room;
use super::view::View;
use crate::answers::watch::Picture;

/// A terminal of this size.
fn terminal(columns: u16, rows: u16) -> Terminal<TestBackend> {
    Terminal::new(TestBackend::new(columns, rows)).unwrap()
}

fn draw(terminal: &mut Terminal<TestBackend>, view: &mut View, picture: &Picture) -> String {
    terminal.draw(|frame| view.draw(frame, picture)).unwrap();
    terminal.backend().to_string()
}

fn press(view: &mut View, key: KeyCode) -> bool {
    view.heed(&Event::Key(KeyEvent::new(key, KeyModifiers::NONE)))
}

#[test]
fn snapshots_show_each_part_in_80_columns() {
    insta::assert_snapshot!("wide", draw(&mut terminal(80, 44), &mut View::new(true), &room()));
}

#[test]
fn snapshots_show_the_same_without_colours_as_signs() {
    let mut terminal = terminal(80, 44);
    insta::assert_snapshot!("without_colours", draw(&mut terminal, &mut View::new(false), &room()));
    let cells = &terminal.backend().buffer().content;
    assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
}

#[test]
fn snapshots_show_the_same_in_40_columns_below_each_other() {
    insta::assert_snapshot!("narrow", draw(&mut terminal(40, 80), &mut View::new(true), &room()));
}

#[test]
fn no_size_of_the_terminal_is_too_small_to_draw() {
    let picture = room();
    for (columns, rows) in (1..=24).flat_map(|columns| (1..=14).map(move |rows| (columns, rows))) {
        for colours in [true, false] {
            let shown = draw(&mut terminal(columns, rows), &mut View::new(colours), &picture);
            assert!(shown.contains(['p', '…']), "{columns}x{rows}: {shown}");
        }
    }
}

#[test]
fn the_sentence_stays_while_keys_move_what_is_below_it() {
    let (picture, mut terminal, mut view) = (room(), terminal(80, 16), View::new(true));
    let mut shown = |view: &mut View| draw(&mut terminal, view, &picture);
    let first = shown(&mut view);
    assert!(first.contains("part of case42 is lost") && first.contains("Drives ──"), "{first}");
    press(&mut view, KeyCode::Down);
    let second = shown(&mut view);
    assert!(second.contains("part of case42 is lost") && !second.contains("Drives ──"), "{second}");
    for title in ["Links ──", "Jobs ──", "Machines ──"] {
        press(&mut view, KeyCode::Tab);
        assert!(shown(&mut view).contains(title), "{title}");
    }
    press(&mut view, KeyCode::End);
    let last = shown(&mut view);
    assert!(last.contains("verified"), "{last}");
    press(&mut view, KeyCode::Tab);
    assert_eq!(shown(&mut view), first, "after the last part comes the first");
    press(&mut view, KeyCode::BackTab);
    assert_eq!(shown(&mut view), last);
    press(&mut view, KeyCode::PageUp);
    assert_ne!(shown(&mut view), last);
    press(&mut view, KeyCode::Home);
    assert_eq!(shown(&mut view), first);
}

#[test]
fn a_larger_terminal_shows_more_and_needs_no_scrolling() {
    let (picture, mut view) = (room(), View::new(true));
    let mut terminal = terminal(80, 16);
    draw(&mut terminal, &mut view, &picture);
    press(&mut view, KeyCode::End);
    terminal.backend_mut().resize(120, 60);
    let shown = draw(&mut terminal, &mut view, &picture);
    assert!(shown.contains("Drives ──") && shown.contains("Custody logs ──") && !shown.contains('–'), "{shown}");
}

#[test]
fn q_escape_and_ctrl_c_end_the_view_and_other_keys_do_not() {
    let mut view = View::new(true);
    assert!(press(&mut view, KeyCode::Char('q')) && press(&mut view, KeyCode::Esc));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(view.heed(&Event::Key(control_c)));
    assert!(!press(&mut view, KeyCode::Char('c')) && !view.heed(&Event::Resize(1, 1)));
}

#[test]
fn a_node_that_is_lost_is_seen_among_many_in_the_first_rows() {
    let mut picture = room();
    let machine = picture.machines[0].clone();
    let many = (0..500).map(|index| {
        let mut machine = picture.machines[3].clone();
        machine.name = format!("pc-{index:03}");
        machine
    });
    picture.machines = std::iter::once(machine).chain(many).collect();
    (picture.drives, picture.links, picture.jobs) = (Vec::new(), Vec::new(), Vec::new());
    let shown = draw(&mut terminal(80, 24), &mut View::new(true), &picture);
    assert!(shown.contains("lab-7") && shown.contains("NO NODE"), "{shown}");
}
