//! What can be done about the key of a sealed drive.

use std::borrow::Cow;

use cheetah_error::next::Seal;

/// The step as a clause.
pub(super) fn clause(step: &Seal) -> Cow<'static, str> {
    match step {
        Seal::NameRecipient => "give --recipient age1…, --identity FILE or --passphrase-file FILE".into(),
        Seal::GiveKey { identity_variable, passphrase_variable } => format!("give the key with --identity FILE or --passphrase-file FILE, or name the file in {identity_variable} or {passphrase_variable}").into(),
        Seal::AskToShare => "ask an examiner that can open it to share it (cheetah drive share)".into(),
        Seal::ShareOrDestroy => "share it first, or destroy it (cheetah destroy)".into(),
        Seal::PrintRecipient => "give the age1… that `age-keygen` or `cheetah drive identity` printed".into(),
        Seal::MakeIdentity => "`age-keygen` and `cheetah drive identity` make such files".into(),
        Seal::AcceptUnverified => "cheetah verify lists it, --accept-unverified takes it".into(),
        Seal::TakeUnverified => "--accept-unverified takes it".into(),
    }
}
