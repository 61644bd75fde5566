//! What a condition needs of the strings of its rule.

use std::collections::BTreeMap;

use yara_x_parser::ast::{Expr, OfItems, Pattern, PatternSet, Quantifier};

use crate::need::{Atoms, Need, all, at_least, either};

/// The maximum number of expressions that are looked at for one rule, and of atoms that they have: loops over strings look at theirs for
/// each string.
const STEPS_MAX: usize = 1 << 18;

/// The condition of a rule.
pub struct Condition<'a, 'src> {
    strings: &'a [Pattern<'src>],
    needs: &'a [Need],
    places: BTreeMap<&'src str, usize>,
    /// What the rules before it in the same file need.
    rules: &'a BTreeMap<String, Need>,
    steps: usize,
}

/// Where an expression stands.
#[derive(Debug, Clone, Copy, Default)]
struct Scope {
    /// The string that `$` stands for.
    current: Option<usize>,
    /// Whether names may be those of variables.
    has_variables: bool,
}

impl<'a, 'src> Condition<'a, 'src> {
    /// A condition over these strings, each of which needs what stands in `needs` at its place.
    pub fn new(strings: &'a [Pattern<'src>], needs: &'a [Need], rules: &'a BTreeMap<String, Need>) -> Self {
        let names = strings.iter().map(|string| string.identifier().name.get(1..).unwrap_or_default());
        let places = names.enumerate().map(|(place, name)| (name, place)).collect();
        Self { strings, needs, places, rules, steps: STEPS_MAX }
    }

    /// What occurs wherever the condition holds.
    pub fn need(mut self, condition: &Expr<'_>) -> Need {
        self.of(condition, Scope::default())
    }

    fn of(&mut self, expression: &Expr<'_>, scope: Scope) -> Need {
        self.steps = self.steps.checked_sub(1)?;
        let found = self.of_kind(expression, scope)?;
        self.steps = self.steps.checked_sub(found.len())?;
        Some(found)
    }

    fn of_kind(&mut self, expression: &Expr<'_>, scope: Scope) -> Need {
        match expression {
            Expr::False { .. } => Some(Atoms::new()),
            Expr::PatternMatch(found) => self.string(found.identifier.name, scope),
            Expr::And(parts) => all(parts.operands().map(|part| self.of(part, scope))),
            Expr::Or(parts) => either(parts.operands().map(|part| self.of(part, scope))),
            Expr::Gt(two) => self.counted(&two.lhs, &two.rhs, 1, scope),
            Expr::Ge(two) => self.counted(&two.lhs, &two.rhs, 0, scope),
            Expr::Lt(two) => self.counted(&two.rhs, &two.lhs, 1, scope),
            Expr::Le(two) => self.counted(&two.rhs, &two.lhs, 0, scope),
            Expr::Eq(two) => {
                self.counted(&two.lhs, &two.rhs, 0, scope).or_else(|| self.counted(&two.rhs, &two.lhs, 0, scope))
            }
            Expr::Of(of) => {
                let needs: Vec<_> = match &of.items {
                    OfItems::PatternSet(set) => self.members(set).into_iter().map(|place| self.at(place)).collect(),
                    OfItems::BoolExprTuple(parts) => parts.iter().map(|part| self.of(part, scope)).collect(),
                };
                at_least(least(&of.quantifier, needs.len()), needs)
            }
            Expr::ForOf(each) => {
                let members = self.members(&each.pattern_set).into_iter();
                let at = |place| Scope { current: Some(place), ..scope };
                let needs: Vec<_> = members.map(|place| self.of(&each.body, at(place))).collect();
                at_least(least(&each.quantifier, needs.len()), needs)
            }
            // Over nothing, `all` may hold.
            Expr::ForIn(each) if least(&each.quantifier, 0) > 0 => {
                self.of(&each.body, Scope { has_variables: true, ..scope })
            }
            Expr::With(with) => self.of(&with.body, Scope { has_variables: true, ..scope }),
            Expr::Ident(name) if !scope.has_variables => self.rules.get(name.name).cloned().flatten(),
            _ => None,
        }
    }

    /// What the string with an identifier needs, such as `$a` or `#a`; without a name, the one that a loop is at.
    fn string(&self, identifier: &str, scope: Scope) -> Need {
        let name = identifier.get(1..)?;
        let place = if name.is_empty() { scope.current? } else { *self.places.get(name)? };
        self.at(place)
    }

    fn at(&self, place: usize) -> Need {
        self.needs.get(place).cloned().flatten()
    }

    /// What a count that is at least `number + more` needs.
    fn counted(&self, count: &Expr<'_>, number: &Expr<'_>, more: i64, scope: Scope) -> Need {
        let (Expr::PatternCount(count), Expr::LiteralInteger(number)) = (count, number) else { return None };
        let is_one_at_least = !number.is_unsigned && number.value.checked_add(more)? > 0;
        if is_one_at_least { self.string(count.identifier.name, scope) } else { None }
    }

    /// The places of the strings in a set.
    fn members(&self, set: &PatternSet<'_>) -> Vec<usize> {
        let is_member = |string: &Pattern<'_>| match set {
            PatternSet::Them { .. } => true,
            PatternSet::Set(items) => items.iter().any(|item| item.matches(string.identifier())),
        };
        let strings = self.strings.iter().enumerate();
        strings.filter(|(_, string)| is_member(string)).map(|(place, _)| place).collect()
    }
}

/// The number of things, of `total`, that must hold at least; 0 if that is not known.
fn least(quantifier: &Quantifier<'_>, total: usize) -> usize {
    match quantifier {
        Quantifier::Any { .. } => 1,
        Quantifier::All { .. } => total,
        Quantifier::Expr(Expr::LiteralInteger(number)) if !number.is_unsigned => {
            usize::try_from(number.value).unwrap_or(0)
        }
        Quantifier::Expr(_) | Quantifier::None { .. } | Quantifier::Percentage(_) => 0,
    }
}
