//! The atoms of regular expressions.

use std::convert::Infallible;

use regex_syntax::ParserBuilder;
use regex_syntax::ast::{self, Ast, Flag, Visitor};
use regex_syntax::hir::{Hir, HirKind};
use yara_x_parser::ast::{PatternModifiers, Regexp};

use crate::need::{Need, all, either, literal};
use crate::text::widened;

/// The maximum depth of nested groups.
pub const DEPTH_MAX: u32 = 100;

/// What occurs where an expression with these modifiers matches.
pub fn need(expression: &Regexp<'_>, modifiers: &PatternModifiers<'_>) -> Need {
    let is_encoded = modifiers.xor().or(modifiers.base64()).or(modifiers.base64wide()).is_some();
    if is_encoded || !expression.src.is_ascii() {
        return None;
    }
    // Case is ignored by the search for atoms instead: with it, each letter would be a class.
    let mut parser = ParserBuilder::new();
    parser.unicode(false).utf8(false).dot_matches_new_line(expression.dot_matches_new_line).nest_limit(DEPTH_MAX);
    let parsed = parser.build().parse(expression.src).ok()?;
    let ignore_case = expression.case_insensitive || modifiers.nocase().is_some();
    // There, letters of ASCII have cases beyond ASCII: those of `s` are `S` and `ſ`.
    if ignore_case && is_about_unicode(expression.src) {
        return None;
    }
    let is_wide = modifiers.wide().is_some();
    let is_plain = modifiers.ascii().is_some() || !is_wide;
    let plain = is_plain.then(|| of(&parsed, &|bytes: &[u8]| literal(bytes, ignore_case)));
    let wide = is_wide.then(|| of(&parsed, &|bytes: &[u8]| literal(&widened(bytes), ignore_case)));
    either([plain, wide].into_iter().flatten())
}

/// Whether a part of an expression is switched to Unicode, as `(?u)` does; also if it is not understood.
fn is_about_unicode(expression: &str) -> bool {
    let Ok(parsed) = ast::parse::ParserBuilder::new().nest_limit(DEPTH_MAX).build().parse(expression) else {
        return true;
    };
    ast::visit(&parsed, UnicodeFlags(false)).unwrap_or(true)
}

/// Looks for flags that switch to Unicode.
struct UnicodeFlags(bool);

impl Visitor for UnicodeFlags {
    type Output = bool;
    type Err = Infallible;

    fn finish(self) -> Result<bool, Infallible> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, part: &Ast) -> Result<(), Infallible> {
        let flags = match part {
            Ast::Flags(set) => Some(&set.flags),
            Ast::Group(group) => group.flags(),
            _ => None,
        };
        self.0 |= flags.is_some_and(|flags| flags.flag_state(Flag::Unicode) == Some(true));
        Ok(())
    }
}

/// What occurs where `parsed` matches; `literal` says what does for literal bytes.
fn of(parsed: &Hir, literal: &dyn Fn(&[u8]) -> Need) -> Need {
    match parsed.kind() {
        HirKind::Literal(found) => literal(&found.0),
        HirKind::Capture(group) => of(&group.sub, literal),
        HirKind::Repetition(repeated) if repeated.min > 0 => of(&repeated.sub, literal),
        HirKind::Concat(parts) => all(parts.iter().map(|part| of(part, literal))),
        HirKind::Alternation(parts) => either(parts.iter().map(|part| of(part, literal))),
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) | HirKind::Repetition(_) => None,
    }
}
