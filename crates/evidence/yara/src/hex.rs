//! The atoms of hexadecimal strings: of the bytes that are neither masked nor negated, nor apart by a jump.

use std::mem::take;

use yara_x_parser::ast::{HexSubPattern, HexToken};

use crate::need::{Need, all, either, literal};

/// What occurs where the tokens match.
pub fn need(tokens: &HexSubPattern) -> Need {
    let (mut needs, mut run) = (Vec::new(), Vec::new());
    for token in tokens.iter() {
        match token {
            HexToken::Byte(byte) if byte.mask == 0xff => {
                run.push(byte.value);
                continue;
            }
            HexToken::Alternative(found) => needs.push(either(found.alternatives.iter().map(need))),
            HexToken::Byte(_) | HexToken::NotByte(_) | HexToken::Jump(_) => {}
        }
        needs.push(literal(&take(&mut run), false));
    }
    needs.push(literal(&run, false));
    all(needs)
}
