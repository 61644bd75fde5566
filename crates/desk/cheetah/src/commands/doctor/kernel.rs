//! What the kernel has: FUSE, and drivers of block devices.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use cheetah_device::program;
use cheetah_kit::process::is_privileged;

use crate::answers::doctor::{Check, State};
use crate::os;

/// What a mount needs.
pub struct Mounting {
    /// Whether `/dev/fuse` can be opened.
    device: io::Result<()>,
    /// Whether its mode lets every user open it.
    is_for_every_user: bool,
    /// Whether this is root, which needs no helper.
    is_root: bool,
    /// Whether the program that mounts for other users is there.
    has_helper: bool,
}

impl Mounting {
    pub fn of_this_machine() -> Self {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        Self {
            is_for_every_user: device.as_ref().is_ok_and(os::is_for_every_user),
            device: device.map(drop),
            is_root: is_privileged(),
            has_helper: ["fusermount3", "fusermount"].iter().any(|name| program::find(name).is_some()),
        }
    }
}

/// Whether drives and images can be mounted.
pub fn mounts(found: &Mounting) -> Check {
    let check = |finding: String| Check::works("fuse", &["mount", "demo"], finding);
    match &found.device {
        Err(error) if error.kind() == io::ErrorKind::NotFound => check("there is no /dev/fuse".into())
            .but(State::Fails, "load the module (modprobe fuse), or in a container pass the device in"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            check("this user may not open /dev/fuse".into()).but(State::Fails, "as root: chmod 666 /dev/fuse")
        }
        Err(error) => check(format!("/dev/fuse cannot be opened: {error}"))
            .but(State::Fails, "load the module (modprobe fuse), or in a container pass the device in"),
        Ok(()) if !found.has_helper && found.is_root => {
            check("root can mount, and other users cannot, without fusermount3".into())
                .but(State::Note, "install the package fuse3")
        }
        Ok(()) if !found.has_helper => check("there is no fusermount3, without which only root can mount".into())
            .but(State::Fails, "install the package fuse3"),
        Ok(()) if found.is_for_every_user => check("every user can mount".into()),
        Ok(()) if found.is_root => check("root can mount, and not every user may open /dev/fuse".into())
            .but(State::Note, "if others are to mount: chmod 666 /dev/fuse"),
        // As a member of its group.
        Ok(()) => check("this user can mount, and not every user may open /dev/fuse".into()),
    }
}

/// What a block device needs.
pub struct Drivers {
    is_root: bool,
    /// Whether the module nbd is loaded, or part of the kernel.
    has_nbd: bool,
    has_ublk: bool,
    /// Whether the module nbd is installed; `None` if the list of modules cannot be read.
    can_load_nbd: Option<bool>,
}

impl Drivers {
    pub fn of_this_machine() -> Self {
        Self {
            is_root: is_privileged(),
            has_nbd: Path::new("/sys/module/nbd").exists() || Path::new("/sys/block/nbd0").exists(),
            has_ublk: Path::new("/dev/ublk-control").exists(),
            can_load_nbd: installed_modules().map(|modules| modules.contains("/nbd.ko")),
        }
    }
}

/// The list of the kernel's installed modules, by path.
fn installed_modules() -> Option<String> {
    let folder = Path::new("/lib/modules").join(os::kernel_release()?);
    fs::read_to_string(folder.join("modules.dep")).ok()
}

/// Whether drives and images can be attached as block devices.
pub fn block_devices(found: &Drivers) -> Check {
    let check = |finding: &str| Check::works("nbd", &["attach", "detach"], finding);
    let none = "the kernel's module nbd is not loaded";
    let drivers = match (found.has_nbd, found.has_ublk) {
        (true, true) => "the kernel has nbd and ublk",
        (true, false) => "the kernel has nbd",
        (false, true) => "the kernel has ublk",
        (false, false) if found.can_load_nbd == Some(false) => {
            return check("this kernel has no module nbd")
                .but(State::Note, "use cheetah mount instead, or install the kernel's other modules");
        }
        (false, false) => return check(none).but(State::Note, "as root: modprobe nbd; or use cheetah mount instead"),
    };
    match found.is_root {
        true => check(drivers),
        false => check(&format!("{drivers}, and only root can attach"))
            .but(State::Note, "run cheetah attach as root; cheetah mount needs no root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_can_mount_with_the_device_and_the_helper_and_root_without_the_helper() {
        let found = |device: io::Result<()>, is_for_every_user, is_root, has_helper| {
            let check = mounts(&Mounting { device, is_for_every_user, is_root, has_helper });
            assert_eq!(check.mend.is_none(), check.state == State::Works, "{check:?}");
            check
        };
        let state = |device: io::Result<()>, is_root, has_helper| found(device, true, is_root, has_helper).state;
        assert_eq!(state(Ok(()), false, true), State::Works);
        assert_eq!(state(Ok(()), true, false), State::Note);
        assert_eq!(state(Ok(()), false, false), State::Fails);
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied, io::ErrorKind::Other] {
            assert_eq!(state(Err(kind.into()), true, true), State::Fails);
        }
        assert_eq!(found(Ok(()), true, true, true).finding, "every user can mount");
        // Where the device is root's, or its group's.
        for (is_root, expected) in [(true, State::Note), (false, State::Works)] {
            let check = found(Ok(()), false, is_root, true);
            assert_eq!(check.state, expected);
            assert!(check.finding.ends_with("not every user may open /dev/fuse"), "{check:?}");
        }
    }

    #[test]
    fn block_devices_take_root_and_a_driver() {
        let found = |is_root, has_nbd, has_ublk, can_load_nbd| {
            block_devices(&Drivers { is_root, has_nbd, has_ublk, can_load_nbd })
        };
        assert_eq!(found(true, true, false, None).state, State::Works);
        assert_eq!(found(true, false, true, Some(false)).state, State::Works);
        assert_eq!(found(false, true, true, Some(true)).state, State::Note);
        assert!(found(true, false, false, Some(true)).mend.unwrap().contains("modprobe nbd"));
        assert!(found(true, false, false, Some(false)).mend.unwrap().contains("cheetah mount"));
        // Mounts do without.
        assert_eq!(found(true, false, false, None).state, State::Note);
    }
}
