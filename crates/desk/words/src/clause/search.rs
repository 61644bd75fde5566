//! What can be done about a search that writes to a folder.

use std::borrow::Cow;

use cheetah_error::next::Search;

/// The step as a clause.
pub(super) fn clause(step: &Search) -> Cow<'static, str> {
    match step {
        Search::NameFolder => "name another folder with --out".into(),
        Search::RepeatOrNameFolder => {
            "repeat the command with which it was begun, or name another folder with --out".into()
        }
        Search::AwaitOrNameFolder => "wait until it ends, or name another folder with --out".into(),
        Search::MakeSet => "make the set from the files themselves, with --known and --save-known".into(),
        Search::DivideKnown => "divide the known files, and make a set of each part".into(),
    }
}
