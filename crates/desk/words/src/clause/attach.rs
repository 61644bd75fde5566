//! What can be done about a mount or a block device.

use std::borrow::Cow;

use cheetah_error::next::Attach;

/// The step as a clause.
pub(super) fn clause(step: &Attach) -> Cow<'static, str> {
    match step {
        Attach::Unmount { dir } => format!("remove it first: cheetah unmount {dir}").into(),
        Attach::OtherDirOrUnmount { dir } => {
            format!("take another directory, or unmount it first: cheetah unmount {dir}").into()
        }
        Attach::CloseFiles { dir } => {
            format!("close the files (fuser -vm {dir} lists the programs), or detach it with --lazy").into()
        }
        Attach::RootOrMount => "run this as root, or use `cheetah mount`, which every user can".into(),
        Attach::LoadNbdOrMount => {
            "load the module (modprobe nbd), or use `cheetah mount`, which does without it".into()
        }
        Attach::LoadUblkOrOther => "load the module (modprobe ublk_drv), or use --driver nbd or `cheetah mount`".into(),
        Attach::UseNbd => "use --driver nbd".into(),
        Attach::FreeDevice { device } => {
            format!("leave out --device to take a free one, or detach it first: cheetah detach {device}").into()
        }
        Attach::DetachOne => "detach one first: cheetah detach /dev/nbdN".into(),
        Attach::AllowWrites { device } => {
            format!("allow them first (blockdev --setrw {device}), or take another device with --device").into()
        }
        Attach::UseMount => "use `cheetah mount`".into(),
        Attach::ExportOrGoThere => {
            "use it on a machine with Linux, to which this one may hand it out with `cheetah export`".into()
        }
        Attach::CutOff => "unmount it and close the programs, or cut them off with --force".into(),
    }
}
