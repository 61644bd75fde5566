//! Text of the evidence, and of the examiner, in the page: nothing in it can change the page or hide.

use cheetah_device::visible::is_control;
use maud::{Markup, html};

/// A part of a text.
enum Part<'a> {
    Plain(&'a str),
    /// A character that is shown as its number.
    Coded(char),
}

/// A text, isolated from the direction of what stands around it. Characters that cannot be seen, or change how others are shown, are
/// shown as their numbers in boxes.
pub fn evidence(text: &str) -> Markup {
    html! {
        bdi {
            @for part in parts(text) {
                @match part {
                    Part::Plain(text) => { (text) }
                    Part::Coded(c) => { span class="code" { "U+" (format!("{:04X}", u32::from(c))) } }
                }
            }
        }
    }
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut plain = 0;
    for (at, c) in text.char_indices().filter(|(_, c)| is_hidden(*c)) {
        parts.extend(text.get(plain..at).filter(|text| !text.is_empty()).map(Part::Plain));
        parts.push(Part::Coded(c));
        plain = at + c.len_utf8();
    }
    parts.extend(text.get(plain..).filter(|text| !text.is_empty()).map(Part::Plain));
    parts
}

/// Whether a character has no form of its own: controls, blanks other than the space, fillers, selectors, tags, characters for private
/// use, and numbers that stand for none. After the general categories Cc, Cf, Co, Zs, Zl and Zp of Unicode 16, and `Default_Ignorable`.
fn is_hidden(c: char) -> bool {
    let is_blank = c != ' ' && c.is_whitespace();
    let is_without_form = matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{e0000}'..='\u{10ffff}'
    );
    is_control(c) || is_blank || is_without_form || u32::from(c) & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element_and_what_cannot_be_seen_is_shown_as_its_number() {
        let shown = evidence("a<script>\"&'\u{202e}b\u{200b}\u{e0041}é ").into_string();
        assert_eq!(
            shown,
            "<bdi>a&lt;script&gt;&quot;&amp;'<span class=\"code\">U+202E</span>b<span class=\"code\">U+200B</span>\
             <span class=\"code\">U+E0041</span>é </bdi>"
        );
        assert_eq!(evidence("").into_string(), "<bdi></bdi>");
    }

    #[test]
    fn every_hidden_character_is_coded_and_letters_of_all_scripts_are_not() {
        for c in "\0\t\n\u{7f}\u{85}\u{a0}\u{ad}\u{61c}\u{2003}\u{2029}\u{2066}\u{3000}\u{3164}\u{fe0f}\u{feff}\u{ffff}\u{f0000}".chars() {
            assert!(is_hidden(c), "{:04x}", u32::from(c));
        }
        for c in "aZ9~é€Жشאक漢한😀\u{301}".chars() {
            assert!(!is_hidden(c), "{c}");
        }
    }
}
