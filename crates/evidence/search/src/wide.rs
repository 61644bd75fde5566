//! Expressions over ASCII as expressions over UTF-16.

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

use crate::encoding::TextEncoding;

/// The same expression over UTF-16; `None` if it is not over ASCII only, or has assertions, which look at single bytes.
pub fn widened(hir: &Hir, encoding: TextEncoding) -> Option<Hir> {
    let each = |subs: &[Hir]| subs.iter().map(|sub| widened(sub, encoding)).collect::<Option<Vec<_>>>();
    Some(match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.is_ascii() => {
            Hir::concat(literal.0.iter().map(|byte| unit(Hir::literal([*byte]), encoding)).collect())
        }
        HirKind::Class(Class::Bytes(class)) if class.is_ascii() => {
            unit(Hir::class(Class::Bytes(class.clone())), encoding)
        }
        HirKind::Class(Class::Unicode(class)) if class.is_ascii() => {
            unit(Hir::class(Class::Bytes(class.to_byte_class()?)), encoding)
        }
        HirKind::Repetition(repetition) => {
            let sub = Box::new(widened(&repetition.sub, encoding)?);
            Hir::repetition(Repetition { sub, ..repetition.clone() })
        }
        HirKind::Capture(capture) => widened(&capture.sub, encoding)?,
        HirKind::Concat(subs) => Hir::concat(each(subs)?),
        HirKind::Alternation(subs) => Hir::alternation(each(subs)?),
        HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => return None,
    })
}

/// An ASCII byte as a unit of UTF-16.
fn unit(byte: Hir, encoding: TextEncoding) -> Hir {
    let zero = Hir::literal([0]);
    match encoding {
        TextEncoding::Utf16Be => Hir::concat(vec![zero, byte]),
        _ => Hir::concat(vec![byte, zero]),
    }
}
