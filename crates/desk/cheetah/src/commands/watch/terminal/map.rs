//! The map of a node's part of a drive: half a character for each slice, in the colour of its letter. Without colours, a sign for
//! each letter.

use ratatui::style::Style;
use ratatui::text::Span;

use super::paint::{Paint, of_letter};
use crate::commands::watch::show::glyph;

/// The letters from the worst on. Where several slices share a place, the worst is drawn.
const WORST_FIRST: &str = "lxnsuervz.";

/// A letter that is not known counts as the worst.
fn rank(letter: char) -> Option<usize> {
    WORST_FIRST.find(letter)
}

/// `cells` in at most `count` letters, each the worst of those that it stands for.
fn condensed(cells: &str, count: usize) -> Vec<char> {
    let letters: Vec<char> = cells.chars().collect();
    let count = count.clamp(1, letters.len().max(1));
    let edge = |index: usize| index * letters.len() / count;
    let part = |index: usize| letters.get(edge(index)..edge(index + 1)).unwrap_or_default();
    (0..count).filter_map(|index| part(index).iter().copied().min_by_key(|letter| rank(*letter))).collect()
}

/// The columns that a map of these cells takes, if there is room.
pub fn columns_wanted(cells: &str, paint: Paint) -> usize {
    let slices = cells.chars().count();
    if paint.colours { slices.div_ceil(2) } else { slices }
}

/// The map in at most `columns` columns.
pub fn spans(cells: &str, columns: usize, paint: Paint) -> Vec<Span<'static>> {
    if !paint.colours {
        return vec![Span::raw(condensed(cells, columns).into_iter().map(glyph).collect::<String>())];
    }
    condensed(cells, columns.saturating_mul(2)).chunks(2).map(half_blocks).collect()
}

/// One or two letters in one character.
fn half_blocks(pair: &[char]) -> Span<'static> {
    let of = |letter: char| Style::new().fg(of_letter(letter));
    match *pair {
        ['.', '.'] | ['.'] => Span::raw("·"),
        [left] | [left, '.'] => Span::styled("▌", of(left)),
        ['.', right] => Span::styled("▐", of(right)),
        [left, right] if left == right => Span::styled("█", of(left)),
        [left, right] => Span::styled("▌", of(left).bg(of_letter(right))),
        _ => Span::raw(""),
    }
}

/// The sign for a letter in the legend.
pub fn sign(letter: char, paint: Paint) -> Span<'static> {
    match paint.colours {
        true => half_blocks(&[letter, letter]),
        false => Span::raw(glyph(letter).to_string()),
    }
}

/// How many slices have each of these letters, in words; only those that there are.
pub fn counts(cells: &str, letters: &str) -> Vec<String> {
    let count = |letter: char| (letter, cells.chars().filter(|cell| *cell == letter).count());
    let found = letters.chars().map(count).filter(|(_, count)| *count > 0);
    found.map(|(letter, count)| format!("{count} {}", crate::commands::watch::show::meaning(letter))).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::style::Color;

    use super::*;

    #[test]
    fn a_bad_slice_is_drawn_however_few_places_there_are() {
        let cells = format!("{}x{}", "r".repeat(40), "v".repeat(23));
        for count in 1..=64 {
            let letters = condensed(&cells, count);
            assert_eq!((letters.len(), letters.iter().filter(|letter| **letter == 'x').count()), (count, 1));
        }
        assert_eq!(condensed("rl.z", 2), ['l', 'z']);
        assert_eq!(condensed("r!", 1), ['!']);
        assert_eq!((condensed("", 5), condensed("rr", 0)), (vec![], vec!['r']));
    }

    #[test]
    fn a_character_has_the_colours_of_two_slices_and_a_sign_without_colours() {
        let drawn = spans("rr.lx..v.", 9, Paint { colours: true });
        let shown: Vec<_> = drawn.iter().map(|span| (&*span.content, span.style.fg, span.style.bg)).collect();
        let expected = [
            ("█", Some(Color::Blue), None),
            ("▐", Some(Color::Red), None),
            ("▌", Some(Color::Magenta), None),
            ("▐", Some(Color::Green), None),
            ("·", None, None),
        ];
        assert_eq!(shown, expected);
        let two = spans("ru", 1, Paint { colours: true });
        assert_eq!((two[0].style.fg, two[0].style.bg), (Some(Color::Blue), Some(Color::DarkGray)));
        assert_eq!(spans("rr.lx..v.", 9, Paint { colours: false })[0].content, "██·LX··✓·");
    }
}
