//! The colours of the view. Without colours, what matters is bold.

use ratatui::style::{Color, Modifier, Style};

use crate::answers::watch::Health;

/// How text is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    /// Whether colours are used.
    pub colours: bool,
}

impl Paint {
    /// Of text that says how something is.
    pub fn of(self, health: Health) -> Style {
        match (health, self.colours) {
            (Health::Good, true) => Style::new().fg(Color::Green),
            (Health::Good, false) => Style::new(),
            (Health::Attention, true) => Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
            (Health::Bad, true) => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            (Health::Attention | Health::Bad, false) => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    /// Of a title.
    pub const fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Of text that is there for those that look for it.
    pub const fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

/// The colour of a letter of a drive's chart.
pub const fn of_letter(letter: char) -> Color {
    match letter {
        'r' => Color::Blue,
        'v' => Color::Green,
        'z' => Color::Cyan,
        'u' => Color::DarkGray,
        'x' => Color::Magenta,
        'l' => Color::Red,
        's' => Color::LightYellow,
        'e' => Color::Gray,
        _ => Color::Yellow,
    }
}
