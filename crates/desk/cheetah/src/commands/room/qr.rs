//! QR codes on a terminal.

use qrcodegen::{QrCode, QrCodeEcc};

use crate::failure::{Context, Result};

/// The light border that readers need, in modules.
const BORDER: i32 = 4;

/// Draws a text as a QR code, two rows of modules in a line: only light modules are drawn, so that a dark terminal's
/// background forms the dark ones.
pub fn draw(text: &str) -> Result<String> {
    let code = QrCode::encode_text(text, QrCodeEcc::Low).map_err(|error| format!("{error:?}"));
    let code = code.context("cannot draw the QR code")?;
    let range = -BORDER..code.size() + BORDER;
    let is_light = |x: i32, y: i32| y < code.size() + BORDER && !code.get_module(x, y);
    let mut drawn = String::new();
    for y in range.clone().step_by(2) {
        for x in range.clone() {
            drawn.push(match (is_light(x, y), is_light(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        drawn.push('\n');
    }
    drawn.pop();
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_fits_a_terminal() {
        let drawn = draw(&format!("room1.{}", "A".repeat(92))).unwrap();
        let width = drawn.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(width <= 60 && drawn.lines().count() <= 30, "{width}");
        assert!(drawn.lines().all(|line| line.chars().count() == width));
    }
}
