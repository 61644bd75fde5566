//! The next steps as clauses of the command line.

mod acquisition;
mod attach;
mod drive;
mod files;
mod layout;
mod lease;
mod measure;
mod node;
mod room;
mod seal;
mod search;
mod source;

use std::borrow::Cow;

use cheetah_error::Next;

/// A next step as a clause, which names verbs and options: `begin again with --restart`.
pub fn clause(next: &Next) -> Cow<'static, str> {
    match next {
        Next::Acquisition(step) => acquisition::clause(step),
        Next::Files(step) => files::clause(step),
        Next::Source(step) => source::clause(step),
        Next::Lease(step) => lease::clause(step),
        Next::Layout(step) => layout::clause(step),
        Next::Drive(step) => drive::clause(step),
        Next::Node(step) => node::clause(step),
        Next::Seal(step) => seal::clause(step),
        Next::Room(step) => room::clause(step),
        Next::Attach(step) => attach::clause(step),
        Next::Measure(step) => measure::clause(step),
        Next::Search(step) => search::clause(step),
    }
}
