//! Whether rules can be tried on a file piece by piece.

use regex_syntax::ParserBuilder;
use yara_x_parser::ast::{AST, Expr, HexSubPattern, HexToken, Item, OfItems, Pattern, Quantifier, Regexp};

use crate::expression::DEPTH_MAX;
use crate::rules::FILE_BYTES_MAX;

/// The maximum length of a match, in bytes, that pieces have in common with their neighbours.
pub const PIECE_OVERLAP_BYTES: usize = 64 << 10;
/// The maximum length of a text, in bytes: each modifier makes less than this part of the overlap of it.
const TEXT_BYTES_MAX: usize = PIECE_OVERLAP_BYTES / 16;

/// Whether the rules in files, whose texts these are, need whole files: a condition may hold for a file and for no piece of it, or the
/// other way round. It does not if a single match of a string decides, wherever it is, and no match is longer than
/// [`PIECE_OVERLAP_BYTES`], by which pieces overlap. A piece also sees the character before it, which may make its first word a part of a
/// longer one. What is in doubt needs whole files.
pub fn needs_whole_files(files: &[&str]) -> bool {
    files.iter().any(|source| {
        if source.len() > FILE_BYTES_MAX {
            return true;
        }
        let parsed = AST::from(*source);
        let is_known = parsed.errors().is_empty() && !parsed.items().any(|item| matches!(item, Item::Include(_)));
        !is_known
            || parsed.rules().any(|rule| {
                let strings = rule.patterns.as_deref().unwrap_or_default();
                !is_decided_by_a_match(&rule.condition) || !strings.iter().all(is_short)
            })
    })
}

/// Whether a condition holds wherever one of some strings is, and nowhere else.
fn is_decided_by_a_match(condition: &Expr<'_>) -> bool {
    match condition {
        Expr::PatternMatch(found) => found.anchor.is_none(),
        Expr::Or(parts) => parts.operands().all(is_decided_by_a_match),
        Expr::Of(of) => {
            let is_any = of.anchor.is_none() && matches!(of.quantifier, Quantifier::Any { .. });
            is_any
                && match &of.items {
                    OfItems::PatternSet(_) => true,
                    OfItems::BoolExprTuple(parts) => parts.iter().all(is_decided_by_a_match),
                }
        }
        _ => false,
    }
}

/// Whether no match of a string is longer than the overlap, or depends on what is beside it.
fn is_short(string: &Pattern<'_>) -> bool {
    match string {
        Pattern::Text(found) => found.text.value.len() <= TEXT_BYTES_MAX,
        Pattern::Hex(found) => hex_bytes_max(&found.sub_patterns).is_some_and(|bytes| bytes <= PIECE_OVERLAP_BYTES),
        // As UTF-16, it has twice the bytes.
        Pattern::Regexp(found) => {
            expression_bytes_max(&found.regexp).is_some_and(|bytes| bytes <= PIECE_OVERLAP_BYTES / 2)
        }
    }
}

fn hex_bytes_max(tokens: &HexSubPattern) -> Option<usize> {
    tokens.iter().try_fold(0_usize, |bytes, token| {
        let more = match token {
            HexToken::Byte(_) | HexToken::NotByte(_) => 1,
            HexToken::Jump(jump) => usize::try_from(jump.end?).ok()?,
            HexToken::Alternative(found) => {
                found.alternatives.iter().map(hex_bytes_max).try_fold(0, |most, bytes| Some(bytes?.max(most)))?
            }
        };
        bytes.checked_add(more)
    })
}

fn expression_bytes_max(expression: &Regexp<'_>) -> Option<usize> {
    let mut parser = ParserBuilder::new();
    parser.unicode(false).utf8(false).nest_limit(DEPTH_MAX);
    let parsed = parser.build().parse(expression.src).ok()?;
    let properties = parsed.properties();
    if properties.look_set().is_empty() { properties.maximum_len() } else { None }
}
