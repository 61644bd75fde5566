//! What can be done about a node.

use std::borrow::Cow;

use cheetah_error::next::Node;

/// The step as a clause.
pub(super) fn clause(step: &Node) -> Cow<'static, str> {
    match step {
        Node::StartAnnouncing => "start `cheetah node` with --announce on the machines, or name them".into(),
        Node::CheckNode => "is `cheetah node` running there, and listening on that address?".into(),
        Node::AskStatus => "`cheetah status` asks them".into(),
        Node::Undrain => "`cheetah drain --undrain` ends that".into(),
        Node::NameDrive => "name its file with --drive".into(),
        Node::NameDestination => "name nodes with --to".into(),
        Node::GiveHttp => "give its address with --http".into(),
        Node::OverwriteServer => "name another server, or --overwrite if nobody needs that data".into(),
    }
}
