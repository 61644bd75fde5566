//! What can be done if a drive cannot be laid out over its nodes.

use std::borrow::Cow;

use cheetah_error::next::Layout;

/// The step as a clause.
pub(super) fn clause(step: &Layout) -> Cow<'static, str> {
    match step {
        Layout::NameMoreNodes { lost } => format!("name more with --nodes ({lost} nodes are lost)").into(),
        Layout::ChooseLayout => "name more nodes, or choose another --layout".into(),
        Layout::ChooseLayoutLike => "choose another --layout, or name more nodes, also those that it has".into(),
        Layout::ChooseRedundancy => "choose --layout mirror or parity".into(),
        Layout::LeaveOutParts => "leave out --parts, or choose --layout mirror or parity".into(),
        Layout::LeaveOutThin => "leave out --thin, or choose --layout stripe".into(),
        Layout::NameOnce => "name it once, or choose --layout stripe".into(),
        Layout::AddMemory => "add nodes, or start them with more --memory".into(),
    }
}
