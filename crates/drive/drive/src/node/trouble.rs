//! Nodes of a drive that cannot be used, and the error of an operation that needs them.

use cheetah_control::ControlError;
use cheetah_error::{Error, Fact, Next, next};

/// A node of a drive that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What is known about it; `None` if it answers, and lacks writes or is of no use for another reason.
    pub fact: Option<Fact>,
    /// The reason, in a sentence that names it.
    pub why: String,
    /// The next steps.
    pub next: Vec<Next>,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self { fact: error.fact(), why: error.to_string(), next: error.steps().to_vec() }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        let Trouble { fact, why, next } = trouble;
        fact.map_or(Self::failed(why.clone()), |fact| Self::node(fact, why)).advise(next)
    }
}

/// Which nodes of `of` do or are what, as clauses: `1 of 3 nodes cannot be reached, 1 of 3 nodes lost`.
pub(crate) fn count(troubles: &[Trouble], of: usize) -> String {
    let counted = Fact::ALL.into_iter().filter_map(|fact| {
        let count = troubles.iter().filter(|trouble| trouble.fact == Some(fact)).count();
        (count > 0).then(|| fact.clause(count, of))
    });
    let behind = troubles.iter().filter(|trouble| trouble.fact.is_none()).count();
    let behind = (behind > 0).then(|| format!("{behind} of {of} nodes cannot be used"));
    counted.chain(behind).collect::<Vec<_>>().join(", ")
}

/// The reasons, a sentence each.
pub(crate) fn reasons(troubles: &[Trouble]) -> String {
    troubles.iter().map(|trouble| trouble.why.as_str()).collect::<Vec<_>>().join("; ")
}

/// The next steps of all.
pub(crate) fn steps(troubles: &[Trouble]) -> impl Iterator<Item = Next> {
    troubles.iter().flat_map(|trouble| trouble.next.iter().cloned())
}

/// The error if a node refuses this member: an operation that goes on regardless would tell its part as lost.
pub(crate) fn refusal(drive: &str, troubles: &[Trouble], of: usize) -> Option<Error> {
    let refused: Vec<_> = troubles.iter().filter(|trouble| trouble.fact == Some(Fact::Refused)).cloned().collect();
    let first = refused.first()?;
    Some(Error::node(Fact::Refused, format!("{drive}: {}: {first}", count(&refused, of))).advise(first.next.clone()))
}

/// The error for a drive that cannot be opened without these nodes; `survives` says how many its layout survives.
pub(crate) fn cannot_open(drive: &str, troubles: &[Trouble], of: usize, survives: usize) -> Error {
    if let Some(refusal) = refusal(drive, troubles, of) {
        return refusal;
    }
    let layout = if survives > 0 { format!(", and its layout survives {survives}") } else { String::new() };
    let sentence = format!("{drive}: {}{layout}: {}", count(troubles, of), reasons(troubles));
    of_worst(sentence, troubles).next(next::Drive::BringBackOrReadRest)
}

/// The error of an operation that needs all nodes of a drive; `None` if each can be used. `done` is what happens to the
/// drive, as in "enlarged".
pub(crate) fn needs_all(drive: &str, done: &str, troubles: &[Trouble], of: usize) -> Option<Error> {
    let first = troubles.first()?;
    let sentence = format!("{drive} is not {done}, because that needs all of its nodes: {first}");
    let needed = || of_worst(sentence, &troubles[..1]).next(next::Drive::BringBackOrRepair);
    Some(refusal(drive, troubles, of).unwrap_or_else(needed))
}

/// What is worst decides, and what is not known may be worse.
fn of_worst(sentence: String, troubles: &[Trouble]) -> Error {
    match troubles.iter().map(|trouble| trouble.fact).max_by_key(|fact| fact.unwrap_or(Fact::Lost)).flatten() {
        Some(fact) => Error::node(fact, sentence),
        None => Error::failed(sentence),
    }
    .advise(steps(troubles))
}

/// The error for a drive that is not verified, because these nodes are needed for it.
pub(crate) fn not_verified(drive: &str, troubles: &[Trouble], of: usize) -> Error {
    let fact = troubles.iter().filter_map(|trouble| trouble.fact).min().unwrap_or(Fact::Unreachable);
    let sentence = format!(
        "{drive} is not verified: {}: {}; that says nothing about its content",
        count(troubles, of),
        reasons(troubles)
    );
    refusal(drive, troubles, of).unwrap_or_else(|| Error::node(fact, sentence).advise(steps(troubles)))
}

/// The error of a call to a node, as the error of an operation that needed the answer.
pub(crate) fn of_call(sentence: impl Into<String>, error: &ControlError) -> Error {
    match error.fact() {
        Some(fact) => Error::node(fact, sentence),
        None => Error::failed(sentence),
    }
    .advise(error.steps().to_vec())
}

/// The reason why a call to a node failed, in a sentence that names the node.
pub(crate) fn sentence(node: &str, error: &ControlError) -> String {
    let why = reason(error);
    match error.fact() {
        Some(Fact::Refused) => format!("node {node} refuses this: {why}"),
        Some(Fact::Lost) if matches!(error, ControlError::NoAnswer { .. }) => {
            format!("node {node} has ended, and what it held is gone: {why}")
        }
        Some(Fact::Unreachable) => format!("node {node} cannot be reached: {why}"),
        Some(Fact::Silent) => format!("node {node} does not answer: {why}"),
        _ => format!("node {node}: {why}"),
    }
}

/// Returns why a call to a node failed, without the node's name. Names the control port, which may be another one than
/// the user's port, but not the address again.
pub(crate) fn reason(error: &ControlError) -> String {
    match error {
        ControlError::NoAnswer { why, fact: Fact::Refused, .. } => why.clone(),
        ControlError::NoAnswer { addr, why, .. } => match addr.rsplit_once(':') {
            Some((_, port)) => format!("{why} (control port {port})"),
            None => why.clone(),
        },
        ControlError::Refused { error, .. } => error.clone(),
        ControlError::NotANode { .. } => error.to_string(),
    }
}

/// Lets errors that all have a fact keep it, if one sentence is made of several.
pub(crate) fn together(sentence: String, errors: &[Error]) -> Error {
    let refused = errors.iter().any(|error| error.fact() == Some(Fact::Refused));
    match errors.iter().map(Error::fact).max().flatten() {
        _ if refused => Error::node(Fact::Refused, sentence),
        Some(fact) if errors.iter().all(|error| error.fact().is_some()) => Error::node(fact, sentence),
        _ => Error::failed(sentence),
    }
    .advise(errors.iter().flat_map(|error| error.steps().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(fact: Fact) -> Trouble {
        Trouble { fact: Some(fact), why: format!("node lab-1: {fact:?}"), next: Vec::new() }
    }

    #[test]
    fn nodes_are_counted_by_what_is_known_of_them() {
        let troubles = [trouble(Fact::Lost), trouble(Fact::Unreachable), trouble(Fact::Lost)];
        assert_eq!(count(&troubles, 4), "1 of 4 nodes cannot be reached, 2 of 4 nodes lost");
        assert_eq!(count(&[trouble(Fact::Silent)], 3), "1 of 3 nodes does not answer");
    }

    #[test]
    fn a_refusal_is_never_told_as_a_loss() {
        let error = cannot_open("case42", &[trouble(Fact::Lost), trouble(Fact::Refused)], 3, 1);
        assert_eq!(error.fact(), Some(Fact::Refused));
        let error = cannot_open("case42", &[trouble(Fact::Unreachable)], 3, 0);
        assert_eq!(error.fact(), Some(Fact::Unreachable));
    }
}
