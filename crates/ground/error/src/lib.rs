//! The errors that a user sees, as facts: what kind of failure, what failed, why, and the next steps.
//!
//! A library names no verb and no option: it says with [`Next`] what can be done, and the crate `cheetah-words` says how.

#![forbid(unsafe_code)]

mod fact;
pub mod next;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use cheetah_device::Error as DeviceError;
use cheetah_kit::random::NoRandomNumbers;

pub use fact::Fact;
pub use next::Next;

/// The result of an operation that a user asked for.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure an [`Error`] is. It decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is invalid, and repeating it does not help.
    Misuse,
    /// The operation failed.
    Failed,
    /// The evidence is changed, unreadable or incomplete.
    Evidence,
    /// A node cannot be used; what is known about it.
    Node(Fact),
    /// A device reported an error, which is the source.
    Device,
    /// The operating system of this machine has not what the operation takes.
    Unsupported,
}

impl Kind {
    /// Returns the exit code of the command line: 1 failed, 2 misused, 3 evidence problem.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Failed | Self::Node(_) | Self::Device | Self::Unsupported => 1,
            Self::Misuse => 2,
            Self::Evidence => 3,
        }
    }

    /// The word for it in answers for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Misuse => "misuse",
            Self::Failed => "failed",
            Self::Evidence => "evidence",
            Self::Node(fact) => fact.name(),
            Self::Device => "device",
            Self::Unsupported => "unsupported",
        }
    }
}

/// Why an operation failed. As text, it is the sentence without the next steps.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    sentence: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    next: Vec<Next>,
}

impl Error {
    /// An error of this kind; the sentence says what failed, and of which subject.
    pub fn new(kind: Kind, sentence: impl Into<String>) -> Self {
        Self { kind, sentence: sentence.into(), source: None, next: Vec::new() }
    }

    /// An error of [`Kind::Failed`].
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Failed, sentence)
    }

    /// An error of [`Kind::Misuse`].
    pub fn misuse(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Misuse, sentence)
    }

    /// An error of [`Kind::Evidence`].
    pub fn evidence(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Evidence, sentence)
    }

    /// An error of this kind with a source, which says what failed.
    pub fn caused(kind: Kind, source: impl StdError + Send + Sync + 'static) -> Self {
        Self::new(kind, source.to_string()).because(source)
    }

    /// An error of [`Kind::Node`].
    pub fn node(fact: Fact, sentence: impl Into<String>) -> Self {
        Self::new(Kind::Node(fact), sentence)
    }

    /// Wraps an operating-system error with the operation that failed.
    pub fn io(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::failed(format!("{doing}: {}", cheetah_device::os_error::describe(error))).advise(Next::of_io(error))
    }

    /// Wraps a device's error with the operation that failed.
    pub fn device(doing: impl Into<String>) -> impl FnOnce(DeviceError) -> Self {
        let doing = doing.into();
        move |error| Self::new(Kind::Device, doing).advise(Next::of_device(&error)).because(error)
    }

    /// The same error with a next step, after those that it has.
    #[must_use]
    pub fn next(self, next: impl Into<Next>) -> Self {
        self.advise([next.into()])
    }

    /// The same error with these next steps, after those that it has. A step that it has is not added again.
    #[must_use]
    pub fn advise(mut self, steps: impl IntoIterator<Item = Next>) -> Self {
        for step in steps {
            if !self.next.contains(&step) {
                self.next.push(step);
            }
        }
        self
    }

    /// The same error with its source.
    #[must_use]
    pub fn because(self, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// The same error, with what was being done before its sentence.
    #[must_use]
    pub fn within(self, doing: impl fmt::Display) -> Self {
        let sentence = format!("{doing}: {}", self.sentence);
        Self { sentence, ..self }
    }

    /// The same error, with another sentence that is made of this one.
    #[must_use]
    pub fn said(self, sentence: impl FnOnce(&Self) -> String) -> Self {
        let sentence = sentence(&self);
        // The sentence of an error of a device has the device's error at its end.
        let kind = if self.kind == Kind::Device { Kind::Failed } else { self.kind };
        Self { sentence, kind, ..self }
    }

    /// The same error as one of [`Kind::Failed`].
    #[must_use]
    pub fn as_failed(self) -> Self {
        Self { kind: Kind::Failed, ..self.said(ToString::to_string) }
    }

    /// The same error as one of [`Kind::Misuse`].
    #[must_use]
    pub fn as_misuse(self) -> Self {
        Self { kind: Kind::Misuse, ..self.said(ToString::to_string) }
    }

    /// Its kind.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the exit code of the command line: 1 failed, 2 misused, 3 evidence problem.
    pub const fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// Whether the evidence is changed, unreadable or incomplete.
    pub fn is_evidence(&self) -> bool {
        self.kind == Kind::Evidence
    }

    /// Whether the request is invalid.
    pub fn is_misuse(&self) -> bool {
        self.kind == Kind::Misuse
    }

    /// The fact about a node for which the operation failed, if that is why.
    pub const fn fact(&self) -> Option<Fact> {
        match self.kind {
            Kind::Node(fact) => Some(fact),
            _ => None,
        }
    }

    /// What can be done, in the order of the steps; none if the sentence says all that is known.
    pub fn steps(&self) -> &[Next] {
        &self.next
    }

    /// Whether this is one of its next steps.
    pub fn has_next(&self, step: impl Into<Next>) -> bool {
        self.next.contains(&step.into())
    }

    /// Its source, if that is of this type.
    pub fn cause<T: StdError + 'static>(&self) -> Option<&T> {
        self.source.as_deref()?.downcast_ref()
    }

    /// The device's error, if a device reported one.
    pub fn device_error(&self) -> Option<&DeviceError> {
        self.cause()
    }

    /// What was being done when a device reported its error; otherwise the whole sentence.
    pub fn doing(&self) -> &str {
        &self.sentence
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(error) if self.kind == Kind::Device => write!(f, "{}: {error}", self.sentence),
            _ => f.write_str(&self.sentence),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Errors are equal if a user cannot tell them apart.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.next == other.next && self.to_string() == other.to_string()
    }
}

impl Eq for Error {}

impl From<NoRandomNumbers> for Error {
    fn from(error: NoRandomNumbers) -> Self {
        Self::failed(error.to_string()).because(error)
    }
}

/// `name` or `name and name` or `name, name and name`.
pub fn list<T: AsRef<str>>(names: &[T]) -> String {
    match names {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", first.join(", "), last.as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::next::{Acquisition, Room};
    use super::*;

    #[test]
    fn an_error_of_a_device_shows_it_and_has_it_as_its_source() {
        let error = Error::device("reading case.raw")(DeviceError::ReadOnly);
        assert_eq!(error.to_string(), "reading case.raw: the device is read-only");
        assert_eq!(error.source().unwrap().downcast_ref(), Some(&DeviceError::ReadOnly));
        assert_eq!((error.device_error(), error.exit_code()), (Some(&DeviceError::ReadOnly), 1));
    }

    #[test]
    fn what_is_put_before_an_error_keeps_its_kind_and_its_next_steps() {
        let error = Error::evidence("line 3 is damaged").next(Acquisition::BeginAgain).within("the journal");
        assert_eq!(error.to_string(), "the journal: line 3 is damaged");
        assert_eq!((error.kind(), error.steps()), (Kind::Evidence, &[Acquisition::BeginAgain.into()][..]));
    }

    #[test]
    fn an_error_inside_an_error_of_the_system_keeps_its_next_step() {
        let inner = Error::failed("the server speaks TLS only").next(Room::SayRoom);
        let error = Error::io("connecting to lab-1", &std::io::Error::other(inner));
        assert_eq!(error.to_string(), "connecting to lab-1: the server speaks TLS only");
        assert!(error.has_next(Room::SayRoom));
    }
}
